"""The metrics that the agent exports; names and labels are public API.

Each scrape builds the gauges from the last monitoring cycle, so that a pod's series end with it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from agent.mig.progress import Outcome
from agent.monitor.metric_names import OLD, OURS, MetricFamily
from agent.monitor.samples import MetricSample, MonitorSnapshot, samples
from agent.monitor.violation import ViolationKind
from agent.mps.trouble import MpsTroubleKind
from agent.region.repair import RepairKind
from allocator.delivery.delivery_metrics import DeliveryMetrics
from allocator.model.request import Mode

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MOST_SAMPLES: Final = 10_000  # samples of one scrape
# Seconds. A pod with a MIG instance runs after some; one that waits for a GPU may take a day.
START_BUCKETS: Final = (1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600, 14_400, 86_400)


@dataclass(frozen=True, slots=True, kw_only=True)
class _KindCounter:
    """A counter whose one label has the values of an enumeration."""

    name: str
    about: str
    label: str = "kind"
    values: type[StrEnum]


_VIOLATIONS: Final = _KindCounter(
    name="vgpu_isolation_violations",
    about="Isolation violations, counted once at their onset.",
    values=ViolationKind,
)
_RECONFIGURATIONS: Final = _KindCounter(
    name="vgpu_mig_reconfigurations",
    about="Attempts to create or remove MIG instances.",
    label="outcome",
    values=Outcome,
)
_REPAIRS: Final = _KindCounter(
    name="vgpu_region_repairs",
    about="Repairs of shared regions that killed processes or tenants left broken.",
    values=RepairKind,
)
_MPS_TROUBLES: Final = _KindCounter(
    name="vgpu_mps_troubles",
    about="Ends and faults of MPS daemons and servers.",
    values=MpsTroubleKind,
)


class _Gauges(Collector):
    """Exports the figures of the last monitoring cycle; nothing before the first."""

    def __init__(
        self, snapshot: Callable[[], MonitorSnapshot | None], old: Callable[[], bool]
    ) -> None:
        self._snapshot = snapshot
        self._old = old

    def collect(self) -> Iterator[GaugeMetricFamily]:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        samples_by_family: dict[MetricFamily, list[MetricSample]] = defaultdict(list)
        for number, sample in enumerate(samples(snapshot, old=self._old())):
            if number < MOST_SAMPLES:
                samples_by_family[sample.family].append(sample)
        for family in (*OURS, *OLD):
            if family in samples_by_family:
                metric = GaugeMetricFamily(family.name, family.about, labels=family.labels)
                for sample in samples_by_family[family]:
                    metric.add_metric(sample.labels, sample.value)
                yield metric


class AgentMetrics:
    """The agent's instruments; closed label sets begin at zero so that increases show."""

    def __init__(
        self,
        *,
        version: str,
        snapshot: Callable[[], MonitorSnapshot | None],
        hung: Callable[[], float],
        old: Callable[[], bool],
    ) -> None:
        """Export *snapshot*, also under the names of Volcano's plugin while *old* returns true.

        *hung* returns the seconds for which a driver call has been hanging.
        """
        # A second series for every counter, which nobody reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # ships it without types
        self._registry = CollectorRegistry()
        _register_build(self._registry, version)
        self._violations = _counter(self._registry, _VIOLATIONS)
        self._evictions = Counter(
            "vgpu_evictions", "Pods whose eviction was requested.", registry=self._registry
        )
        self._failures = Counter(
            "vgpu_monitor_failures", "Monitoring cycles that failed.", registry=self._registry
        )
        self._reconfigurations = _counter(self._registry, _RECONFIGURATIONS)
        self._repairs = _counter(self._registry, _REPAIRS)
        self._starts = _starts(self._registry)
        self._mps_troubles = _counter(self._registry, _MPS_TROUBLES)
        self.delivery = DeliveryMetrics(self._registry)
        _register_hung_seconds(self._registry, hung)
        self._registry.register(_Gauges(snapshot, old))

    def count_violation(self, kind: ViolationKind) -> None:
        """Count a violation that began."""
        self._violations.labels(kind).inc()

    def count_repair(self, kind: RepairKind) -> None:
        """Count a repair of a region."""
        self._repairs.labels(kind).inc()

    def count_eviction(self) -> None:
        """Count a pod whose eviction was requested."""
        self._evictions.inc()

    def count_failure(self) -> None:
        """Count a monitoring cycle that failed."""
        self._failures.inc()

    def count_reconfiguration(self, outcome: Outcome) -> None:
        """Count an attempt to reconfigure a GPU."""
        self._reconfigurations.labels(outcome).inc()

    def observe_start(self, mode: str, seconds: float) -> None:
        """Note how long a pod took from its creation to its first container; *mode* is a Mode."""
        self._starts.labels(Mode(mode)).observe(seconds)

    def count_mps_trouble(self, kind: MpsTroubleKind) -> None:
        """Count what became of an MPS daemon or its server."""
        self._mps_troubles.labels(kind).inc()

    def exposition(self) -> tuple[str, bytes]:
        """Return the answer to a scrape: content type and text."""
        return CONTENT_TYPE, generate_latest(self._registry)


def _counter(registry: CollectorRegistry, kinds: _KindCounter) -> Counter:
    """Return a counter with one label, at zero for each of its values."""
    counter = Counter(kinds.name, kinds.about, [kinds.label], registry=registry)
    for value in kinds.values:
        counter.labels(value)
    return counter


def _starts(registry: CollectorRegistry) -> Histogram:
    starts = Histogram(
        "vgpu_admission_to_running_seconds",
        "Time from the creation of a pod until a container of it runs with its share.",
        ["mode"],
        buckets=START_BUCKETS,
        registry=registry,
    )
    for mode in Mode:
        starts.labels(mode)
    return starts


def _register_build(registry: CollectorRegistry, version: str) -> None:
    build = Gauge(
        "vgpu_build_info",
        "Build information; always 1.",
        ["component", "version"],
        registry=registry,
    )
    build.labels("agent", version).set(1)


def _register_hung_seconds(registry: CollectorRegistry, hung: Callable[[], float]) -> None:
    hung_seconds = Gauge(
        "vgpu_driver_hung_seconds",
        "Seconds for which a driver call has been hanging; 0 while the driver answers.",
        registry=registry,
    )
    hung_seconds.set_function(hung)
