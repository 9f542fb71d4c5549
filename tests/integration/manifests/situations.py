"""What our exporters say of a cluster that is well, that is ill, and that is gone."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from types import MappingProxyType

from prometheus_client import generate_latest

from agent.mig.progress import Outcome
from agent.monitor.metrics import AgentMetrics
from agent.monitor.samples import MonitorSnapshot
from agent.monitor.violation import ViolationKind
from agent.region.repair import RepairKind
from allocator.model.decision import Reason
from allocator.model.request import Mode
from allocator.model.units import MiB
from allocator.scheduling.capacity import FreeCapacity
from console.receive.console_metrics import ConsoleMetrics
from console.records.rows import StoreFigures
from tests.harness.prometheus import Target
from tests.unit.agent.monitor.test_metrics import BUSY, CUT, SOFT, WRONG
from webhook.records.waiting_controller import WaitingFigure
from webhook.serve.metrics import WebhookMetrics

DAY = 86400.0
NODE = "gpu-1"
CALMED = replace(BUSY, unhealthy={}, stuck={}, foreign={})
NAMESPACE = "team-a"


def idle(snapshot: MonitorSnapshot, seconds: float) -> MonitorSnapshot:
    """Return *snapshot* with kernels that were launched *seconds* ago."""
    launched = int(time.time() - seconds)
    measured = {
        key: use if use.last_kernel is None else replace(use, last_kernel=launched)
        for key, use in snapshot.measured.items()
    }
    return replace(snapshot, now=time.time(), measured=MappingProxyType(measured))


def webhook(
    step: Callable[[WebhookMetrics], None], *, certified: bool = True
) -> Callable[[], bytes]:
    """Return the exposition of a replica that does *step* before each scrape."""
    metrics = WebhookMetrics(version="0.1.0")
    if certified:
        metrics.set_certificate_expiry(time.time() + 60 * DAY)
    metrics.set_drift("missing", 0)
    metrics.failure_counter("drift")
    if step is fail:
        metrics.delivery.follow(Backlog())

    def exposition() -> bytes:
        step(metrics)
        return generate_latest(metrics.registry)

    return exposition


def lead(metrics: WebhookMetrics, *, stranded: int = 0, waiting: bool = False) -> None:
    """Measure the cluster, as the holder of the lease does."""
    largest = {(Mode.MIG, "NVIDIA A30"): MiB(6144), (Mode.HAMI_CORE, "Tesla T4"): MiB(0)}
    metrics.leader.set_capacity(FreeCapacity(largest=largest, stranded=MiB(stranded)))
    figures = {(NAMESPACE, "Unschedulable"): WaitingFigure(2, 7200.0)}
    metrics.leader.set_waiting(figures if waiting else {})


def work(metrics: WebhookMetrics) -> None:
    """Decide a few pods and binds, quickly."""
    lead(metrics)
    for kind in ("gpunodes", "nodes", "pods"):
        metrics.synced.labels(kind).set(time.time())
    for _ in range(5):
        metrics.count_decision("rewritten", mode="mig", namespace=NAMESPACE)
        metrics.count_decision("untouched", namespace=NAMESPACE)
        metrics.count_bind("promised", "")
        metrics.count_workload("silent")
        for step in ("mutate", "validate", "bind"):
            metrics.observe_decision(step, 0.004)
        metrics.observe_answer("filter", 0.01)


def fail(metrics: WebhookMetrics) -> None:
    """Refuse, fail, shed and drop."""
    work(metrics)
    for kind in ("gpunodes", "nodes", "pods"):
        metrics.synced.labels(kind).set(time.time() - 300)
    metrics.set_certificate_expiry(time.time() + DAY)
    metrics.set_drift("missing", 2)
    lead(metrics, stranded=100_000, waiting=True)
    for _ in range(20):
        metrics.count_decision("error", namespace=NAMESPACE)
        metrics.count_decision("refused", reason=Reason.MEMORY_SHORT, namespace=NAMESPACE)
        metrics.count_bind("refused", Reason.MEMORY_SHORT)
        metrics.observe_decision("mutate", 2.0)
        metrics.shed()
        metrics.delivery.count_dropped()
        metrics.delivery.count_rejected(1)


def refuse(metrics: WebhookMetrics) -> None:
    """Work, and refuse now and then."""
    work(metrics)
    metrics.count_decision("refused", reason=Reason.MEMORY_SHORT, namespace=NAMESPACE)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Records that the console did not take."""

    queue_length: int = 5000
    spooled_bytes: int = 1 << 20


def console(*, days: float = 30.0, limit: int = 1 << 30) -> Callable[[], bytes]:
    """Return the exposition of a console whose certificate lasts for *days*.

    Its store has a megabyte, and may have *limit* bytes. Where that is too little, nodes flood it.
    """
    size = 1 << 20
    metrics = ConsoleMetrics(version="0.1.0")
    metrics.set_certificate_expiry(time.time() + days * DAY)
    metrics.set_store_limit(limit)
    metrics.set_figures(StoreFigures(records=100, decisions=10, size=size, oldest="", newest=""))

    def exposition() -> bytes:
        metrics.set_watches({"nodes": time.time()})
        metrics.count_batch(HTTPStatus.OK)
        metrics.count_records(50, 1, 0)
        if limit < size:
            metrics.count_over_limit()
        metrics.count_login("accepted")
        metrics.observe_request(200, 0.02)
        return metrics.text()[1]

    return exposition


def agent(snapshot: MonitorSnapshot, *, ill: bool) -> Callable[[], bytes]:
    """Return the exposition of an agent; one that is ill counts violations and failures."""
    metrics = AgentMetrics(
        version="0.1.0",
        snapshot=lambda: snapshot,
        hung=lambda: 120.0 if ill else 0.0,
        old=lambda: True,
    )

    def exposition() -> bytes:
        metrics.count_reconfiguration(Outcome.DONE)
        metrics.count_repair(RepairKind.COUNTER)
        metrics.observe_start("mig", 4.0)
        if ill:
            metrics.count_violation(ViolationKind.MEMORY)
            metrics.count_eviction()
            metrics.count_failure()
        return metrics.exposition()[1]

    return exposition


def api_server() -> bytes:
    """Return what an API server counts of hooks that it cannot call.

    The names are Kubernetes' own, from its list of metrics.
    """
    calls = int(time.time())
    labels = 'name="pods.vgpu-admission.io",type="admit",operation="CREATE"'
    return (
        "# TYPE apiserver_admission_webhook_rejection_count counter\n"
        f"apiserver_admission_webhook_rejection_count{{{labels},"
        f'error_type="calling_webhook_error",rejection_code="0"}} {calls}\n'
        "# TYPE apiserver_admission_webhook_fail_open_count counter\n"
        f"apiserver_admission_webhook_fail_open_count{{{labels}}} {calls}\n"
    ).encode()


def kubelet() -> bytes:
    """Return what a kubelet measures of a volume that is nearly full; the names are its own."""
    labels = 'namespace="vgpu-admission-system",persistentvolumeclaim="vgpu-console"'
    return (
        "# TYPE kubelet_volume_stats_available_bytes gauge\n"
        f"kubelet_volume_stats_available_bytes{{{labels}}} 1e+08\n"
        "# TYPE kubelet_volume_stats_capacity_bytes gauge\n"
        f"kubelet_volume_stats_capacity_bytes{{{labels}}} 4e+09\n"
    ).encode()


def well() -> Sequence[Target]:
    """Return a cluster in which everything works."""
    return (
        Target("vgpu-webhook", "vgpu-webhook-a", "cpu-1", webhook(work)),
        Target("vgpu-webhook", "vgpu-webhook-b", "cpu-2", webhook(work)),
        Target("vgpu-agent", "vgpu-agent-a", NODE, agent(idle(CALMED, 5.0), ill=False)),
        Target("vgpu-console", "vgpu-console-a", "cpu-1", console()),
    )


def ill() -> Sequence[Target]:
    """Return a cluster in which everything that still answers complains."""
    foreign = {SOFT: MiB(4096), CUT: MiB(2048)}
    # What exceeds its memory computes beyond its promise too.
    greedy = tuple(replace(each, kind=ViolationKind.COMPUTE) for each in WRONG.violations)
    wrong = replace(WRONG, foreign=foreign, violations=(*WRONG.violations, *greedy))
    snapshot = idle(wrong, 7200.0)
    return (
        Target("vgpu-webhook", "vgpu-webhook-a", "cpu-1", webhook(fail)),
        Target("vgpu-webhook", "vgpu-webhook-b", "cpu-2", webhook(refuse, certified=False)),
        Target("vgpu-agent", "vgpu-agent-a", NODE, agent(snapshot, ill=True)),
        Target("vgpu-console", "vgpu-console-a", "cpu-1", console(days=2.0, limit=1 << 19)),
        Target("others", "kube-apiserver", "cpu-1", api_server),
        Target("others", "kubelet", "cpu-1", kubelet),
    )


def gone() -> Sequence[Target]:
    """Return a cluster in which nothing of ours answers."""
    return tuple(replace(target, exposition=None) for target in well())
