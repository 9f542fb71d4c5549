"""The console's instruments for Prometheus."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from console.records.rows import StoreFigures

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LOGINS: Final = ("accepted", "refused", "throttled")
RESULTS: Final = ("stored", "known", "rejected")
_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

# Name of each, what it counts, and its labels. A counter's name ends in _total as well.
INSTRUMENTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "vgpu_build_info": ("Build information; always 1.", ("component", "version")),
    "vgpu_console_records": ("Records received, by what became of them.", ("result",)),
    "vgpu_console_batches": ("Batches of records received, by HTTP status.", ("code",)),
    "vgpu_console_over_limit_batches": (
        "Batches that were refused because their node had sent its records of a day.",
        (),
    ),
    "vgpu_console_logins": ("Logins, by what became of them.", ("result",)),
    "vgpu_console_requests": ("Requests of pages and their data, by HTTP status.", ("code",)),
    "vgpu_console_request_duration_seconds": ("Time to answer a page or its data.", ()),
    "vgpu_console_writes_waiting": ("Batches that wait for the store.", ()),
    "vgpu_console_store_bytes": ("Size of the store.", ()),
    "vgpu_audit_store_limit_bytes": (
        "Size of the store beyond which the oldest records are removed.",
        (),
    ),
    "vgpu_console_store_records": ("Records in the store.", ()),
    "vgpu_console_store_decisions": ("Decisions in the store.", ()),
    "vgpu_cache_synced_timestamp_seconds": (
        "Unix time of the last message of the watch, by kind.",
        ("kind",),
    ),
    "vgpu_certificate_not_after_timestamp_seconds": (
        "Unix time at which the serving certificate expires.",
        (),
    ),
}


class ConsoleMetrics:
    """The instruments on one registry; closed label sets start at zero so that increases show."""

    def __init__(self, *, version: str) -> None:
        """Declare every instrument."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # ships it without types
        self.registry = CollectorRegistry()
        self._gauge("vgpu_build_info").labels("console", version).set(1)
        self._records = self._counter("vgpu_console_records")
        for result in RESULTS:
            self._records.labels(result)
        self._batches = self._counter("vgpu_console_batches")
        self._over_limit = self._counter("vgpu_console_over_limit_batches")
        self._logins = self._counter("vgpu_console_logins")
        for result in LOGINS:
            self._logins.labels(result)
        self._requests = self._counter("vgpu_console_requests")
        name = "vgpu_console_request_duration_seconds"
        self._durations = Histogram(
            name, INSTRUMENTS[name][0], buckets=_BUCKETS, registry=self.registry
        )
        self.waiting = self._gauge("vgpu_console_writes_waiting")
        self._bytes = self._gauge("vgpu_console_store_bytes")
        self._limit = self._gauge("vgpu_audit_store_limit_bytes")
        self._stored = self._gauge("vgpu_console_store_records")
        self._decisions = self._gauge("vgpu_console_store_decisions")
        self._synced = self._gauge("vgpu_cache_synced_timestamp_seconds")
        self._not_after = self._gauge("vgpu_certificate_not_after_timestamp_seconds")

    def _counter(self, name: str) -> Counter:
        text, labels = INSTRUMENTS[name]
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str) -> Gauge:
        text, labels = INSTRUMENTS[name]
        return Gauge(name, text, labels, registry=self.registry)

    def count_batch(self, status: HTTPStatus) -> None:
        """Count one batch of records."""
        self._batches.labels(str(int(status))).inc()

    def count_over_limit(self) -> None:
        """Count one batch of a node that had sent its records of a day."""
        self._over_limit.inc()

    def count_records(self, stored: int, known: int, rejected: int) -> None:
        """Count the records of one batch."""
        for result, number in zip(RESULTS, (stored, known, rejected), strict=True):
            self._records.labels(result).inc(number)

    def count_login(self, result: str) -> None:
        """Count one login, by one of ``LOGINS``."""
        self._logins.labels(result).inc()

    def observe_request(self, status: int, seconds: float) -> None:
        """Count one answer of a page or its data."""
        self._requests.labels(str(status)).inc()
        self._durations.observe(seconds)

    def set_figures(self, figures: StoreFigures) -> None:
        """Note how much is stored."""
        self._bytes.set(figures.size)
        self._stored.set(figures.records)
        self._decisions.set(figures.decisions)

    def set_store_limit(self, size: int) -> None:
        """Note how large the store may become, in bytes."""
        self._limit.set(size)

    def set_watches(self, last_messages: Mapping[str, float]) -> None:
        """Note when watches were last heard of, in Unix seconds by kind."""
        for kind, seen in last_messages.items():
            self._synced.labels(kind).set(seen)

    def set_certificate_expiry(self, at: float) -> None:
        """Note until when the serving certificate is valid, in Unix seconds."""
        self._not_after.set(at)

    def text(self, refresh: Callable[[], None] = lambda: None) -> tuple[str, bytes]:
        """Return content type and text of all metrics, after *refresh*."""
        refresh()
        return CONTENT_TYPE, generate_latest(self.registry)
