"""Prometheus instruments."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from allocator.cluster.inventory import Inventory
from allocator.delivery.delivery_metrics import DeliveryMetrics
from allocator.model.decision import Reason
from allocator.model.untrusted import escaped
from allocator.scheduling.capacity import FreeCapacity
from allocator.volcano.scheduler_samples import FAMILIES, SchedulerSample, samples_of
from kube.clock import SYSTEM, Clock
from webhook.records.waiting_controller import WaitingFigures

_MOST_NAMESPACES: Final = 1000
_LONGEST_NAMESPACE: Final = 63  # characters, as in Kubernetes
_STATUSES: Final = ("Conflict", "Forbidden", "Invalid", "NotFound")  # where no finding says why
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

# The instruments: the name of each and what it counts. A counter's name ends in _total as well.
_BUILD: Final = ("vgpu_build_info", "Build information; always 1.")
_DECISIONS: Final = ("vgpu_admission_decisions", "Decisions about pods.")
_WORKLOADS: Final = (
    "vgpu_workload_reviews",
    "Reviews of workloads, which are always allowed, by whether a warning was given.",
)
_BINDS: Final = ("vgpu_bind_decisions", "Decisions about binds of pods that ask for vGPU.")
_DRIFT: Final = (
    "vgpu_ledger_drift",
    "Differences between ledger, agents and pods; from the lease holder.",
)
_FAILURES: Final = (
    "vgpu_duty_failures",
    "Rounds of a duty of the lease holder that failed with an unexpected error.",
)
_ANSWERS: Final = (
    "vgpu_schedule_duration_seconds",
    "Time to answer one call of the scheduler extender.",
)
_REVIEWS: Final = ("vgpu_admission_duration_seconds", "Time to decide one review.")
_SHED: Final = ("vgpu_admission_shed", "Reviews rejected with 429 and Retry-After.")
_SYNCED: Final = (
    "vgpu_cache_synced_timestamp_seconds",
    "Unix time of the last message of the watch, by kind.",
)
_WAITING: Final = ("vgpu_waiting_pods", "Pods that ask for vGPU and no node took.")
_OLDEST: Final = (
    "vgpu_waiting_oldest_seconds",
    "For how long the oldest of them has waited, since it was created.",
)
_LARGEST: Final = (
    "vgpu_cluster_largest_fit_bytes",
    "Most GPU memory that one more container can have on one GPU now.",
)
_STRANDED: Final = (
    "vgpu_cluster_stranded_memory_bytes",
    "Free memory of GPUs that take no container: out of service, or no share or slot is left.",
)
_FIGURES_LAST: Final = 120.0  # seconds; a replica that leads no longer has none
_MOST_REASONS: Final = 32  # that a scheduler wrote on waiting pods
_MIB: Final = 1024**2
_NOT_AFTER: Final = (
    "vgpu_certificate_not_after_timestamp_seconds",
    "Unix time at which the serving certificate expires.",
)


class WebhookMetrics:
    """The webhook's instruments on one registry.

    The hot path keeps resolved children, because looking one up by its labels costs more than
    counting does.
    """

    def __init__(self, *, version: str) -> None:
        """Declare every instrument; closed label sets start at zero so that increases show."""
        # A second series for every counter, which nobody reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # ships it without types
        self.registry = CollectorRegistry()
        build = self._gauge(*_BUILD, "component", "version")
        build.labels("webhook", version).set(1)
        self._decisions = self._counter(*_DECISIONS, "decision", "reason", "mode", "namespace")
        self._binds = self._counter(*_BINDS, "decision", "reason")
        self._workloads = self._counter(*_WORKLOADS, "result")
        self._drift = self._gauge(*_DRIFT, "kind")
        self._failed = self._counter(*_FAILURES, "duty")
        verbs = ("filter", "prioritize", "preempt", "bind")
        self._answered = self._timers(*_ANSWERS, label="verb", values=verbs)
        passes = ("mutate", "validate", "ephemeral", "bind", "workload")
        self._observe = self._timers(*_REVIEWS, label="pass", values=passes)
        self.shed = self._counter(*_SHED).inc
        self.delivery = DeliveryMetrics(self.registry)
        self.dropped = self.delivery.count_dropped
        self.synced = self._gauge(*_SYNCED, "kind")
        self.leader = LeaderFigures()
        self.registry.register(self.leader)
        self._not_after: Gauge | None = None
        self._children: dict[tuple[str, str, str, str], Callable[[], None]] = {}
        self._namespaces: set[str] = set()
        self._begin()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _timers(
        self, name: str, text: str, *, label: str, values: Iterable[str]
    ) -> dict[str, Callable[[float], None]]:
        """Return what takes seconds, for each of the *values* of one *label*."""
        timer = Histogram(name, text, [label], buckets=_BUCKETS, registry=self.registry)
        return {value: timer.labels(value).observe for value in values}

    def _begin(self) -> None:
        """Begin closed label sets at zero."""
        for decision in ("promised", "elsewhere"):
            self._binds.labels(decision, "")
        for reason in (*Reason, *_STATUSES):
            self._binds.labels("refused", reason)
        for result in ("warned", "silent", "error"):
            self._workloads.labels(result)
        for decision in ("untouched", "rewritten", "error"):
            self._decisions.labels(decision, "", "", "")
        for reason in Reason:
            self._decisions.labels("refused", reason, "", "")

    def set_certificate_expiry(self, until: float) -> None:
        """Note when the serving certificate expires, in Unix seconds; absent until there is one."""
        if self._not_after is None:
            self._not_after = self._gauge(*_NOT_AFTER)
        self._not_after.set(until)

    def count_decision(
        self, decision: str, *, reason: str = "", mode: str = "", namespace: str
    ) -> None:
        """Count one decision; beyond a thousand namespaces the label says ``other``.

        It does so too for what is no name of a namespace, which the network may have made up.
        """
        key = (decision, reason, mode, namespace)
        child = self._children.get(key)
        if child is None:
            key = (decision, reason, mode, self._label_of(namespace))
            child = self._children.setdefault(key, self._decisions.labels(*key).inc)
        child()

    def _label_of(self, namespace: str) -> str:
        if namespace not in self._namespaces:
            if len(namespace) > _LONGEST_NAMESPACE or len(self._namespaces) >= _MOST_NAMESPACES:
                return "other"
            self._namespaces.add(namespace)
        return namespace

    def count_bind(self, decision: str, reason: str) -> None:
        """Count one decision about a bind; the labels are closed sets."""
        self._binds.labels(decision, reason).inc()

    def count_workload(self, result: str) -> None:
        """Count one review of a workload; the label is a closed set."""
        self._workloads.labels(result).inc()

    def failure_counter(self, duty: str) -> Callable[[], None]:
        """Return what counts one failed round of *duty*, from zero on."""
        return self._failed.labels(duty).inc

    def set_drift(self, kind: str, number: int) -> None:
        """Note how many differences of a kind there are; absent where nobody has looked."""
        self._drift.labels(kind).set(number)

    def observe_answer(self, verb: str, seconds: float) -> None:
        """Note how long one answer to a scheduler took."""
        self._answered[verb](seconds)

    def observe_decision(self, step: str, seconds: float) -> None:
        """Note how long one decision of pass *step* took."""
        self._observe[step](seconds)


class LeaderFigures(Collector):
    """What the lease holder measures of the cluster. It ends with the term of the holder.

    Values are replaced, never edited: scrapes run in a thread.
    """

    def __init__(self, clock: Clock = SYSTEM) -> None:
        """Begin with nothing to say."""
        self._clock = clock
        self._capacity: tuple[float, FreeCapacity] | None = None
        self._waiting: tuple[float, WaitingFigures] | None = None

    def set_capacity(self, capacity: FreeCapacity) -> None:
        """Take how much more the cluster can take."""
        self._capacity = self._clock.monotonic(), capacity

    def set_waiting(self, figures: WaitingFigures) -> None:
        """Take who waits, by namespace and reason."""
        self._waiting = self._clock.monotonic(), figures

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield each metric that was measured lately."""
        capacity, waiting = self._capacity, self._waiting
        if capacity is not None and self._is_young(capacity[0]):
            largest = GaugeMetricFamily(*_LARGEST, labels=["mode", "model"])
            for (mode, model), memory in capacity[1].largest.items():
                largest.add_metric([str(mode), model], memory * _MIB)
            yield largest
            yield GaugeMetricFamily(*_STRANDED, value=capacity[1].stranded * _MIB)
        if waiting is not None and self._is_young(waiting[0]):
            yield from _waiting_metrics(waiting[1])

    def _is_young(self, taken: float) -> bool:
        return self._clock.monotonic() - taken <= _FIGURES_LAST


def _waiting_metrics(figures: WaitingFigures) -> Iterator[GaugeMetricFamily]:
    """Yield how many pods wait, and for how long; names beyond a bound are ``other``."""
    spaces = set(sorted({space for space, _ in figures})[:_MOST_NAMESPACES])
    reasons = set(sorted({reason for _, reason in figures})[:_MOST_REASONS])  # of a scheduler
    summed: dict[tuple[str, str], tuple[int, float]] = {}
    for (space, reason), figure in figures.items():
        word = (escaped(reason) or "unknown") if reason in reasons else "other"
        key = space if space in spaces else "other", word
        pods, oldest = summed.get(key, (0, 0.0))
        summed[key] = pods + figure.pods, max(oldest, figure.oldest_seconds)
    waiting = GaugeMetricFamily(*_WAITING, labels=["namespace", "reason"])
    ages = GaugeMetricFamily(*_OLDEST, labels=["namespace", "reason"])
    for key, (pods, oldest) in summed.items():
        waiting.add_metric(key, pods)
        ages.add_metric(key, oldest)
    yield waiting
    yield ages


class Deviceshare(Collector):
    """Hands out ``samples``, which are replaced, never edited: scrapes run in a thread."""

    def __init__(self) -> None:
        """Begin with nothing to say."""
        self.samples: Sequence[SchedulerSample] = ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield each metric that has samples."""
        scheduler_samples = self.samples
        for family in FAMILIES:
            of_it = [sample for sample in scheduler_samples if sample.family is family]
            if of_it:
                metric = GaugeMetricFamily(family.name, family.documentation, labels=family.labels)
                for sample in of_it:
                    metric.add_metric(sample.labels, sample.value)
                yield metric

    def renew(self, inventory: Inventory) -> None:
        """Take what is promised now, or nothing where the settings do not ask for it."""
        if not inventory.settings.volcano_metrics:
            self.samples = ()
            return
        factor = inventory.device_config.memory_factor
        sites = inventory.index().node_infos.values()
        self.samples = [
            sample
            for site in sites
            for sample in samples_of(site.node, site.entries.values(), factor=factor)
        ]
