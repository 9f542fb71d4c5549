"""What our exporters say of a cluster that is well, that is ill, and that is gone."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType

from prometheus_client import generate_latest

from agent.mig.progress import Outcome
from agent.monitor.metrics import AgentMetrics
from agent.monitor.samples import MonitorSnapshot
from agent.monitor.violation import ViolationKind
from agent.region.repair import RepairKind
from allocator.model.decision import Reason
from allocator.model.units import MiB
from tests.harness.prometheus import Target
from tests.unit.agent.monitor.test_metrics import BUSY, CUT, SOFT, WRONG
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

    def exposition() -> bytes:
        step(metrics)
        return generate_latest(metrics.registry)

    return exposition


def work(metrics: WebhookMetrics) -> None:
    """Decide a few pods and binds, quickly."""
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
    for _ in range(20):
        metrics.count_decision("error", namespace=NAMESPACE)
        metrics.count_decision("refused", reason=Reason.MEMORY_SHORT, namespace=NAMESPACE)
        metrics.count_bind("refused", Reason.MEMORY_SHORT)
        metrics.observe_decision("mutate", 2.0)
        metrics.shed()
        metrics.dropped()


def refuse(metrics: WebhookMetrics) -> None:
    """Work, and refuse now and then."""
    work(metrics)
    metrics.count_decision("refused", reason=Reason.MEMORY_SHORT, namespace=NAMESPACE)


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


def well() -> Sequence[Target]:
    """Return a cluster in which everything works."""
    return (
        Target("vgpu-webhook", "vgpu-webhook-a", "cpu-1", webhook(work)),
        Target("vgpu-webhook", "vgpu-webhook-b", "cpu-2", webhook(work)),
        Target("vgpu-agent", "vgpu-agent-a", NODE, agent(idle(CALMED, 5.0), ill=False)),
    )


def ill() -> Sequence[Target]:
    """Return a cluster in which everything that still answers complains."""
    foreign = {SOFT: MiB(4096), CUT: MiB(2048)}
    snapshot = idle(replace(WRONG, foreign=foreign), 7200.0)
    return (
        Target("vgpu-webhook", "vgpu-webhook-a", "cpu-1", webhook(fail)),
        Target("vgpu-webhook", "vgpu-webhook-b", "cpu-2", webhook(refuse, certified=False)),
        Target("vgpu-agent", "vgpu-agent-a", NODE, agent(snapshot, ill=True)),
        Target("apiserver", "kube-apiserver", "cpu-1", api_server),
    )


def gone() -> Sequence[Target]:
    """Return a cluster in which nothing of ours answers."""
    return tuple(replace(target, exposition=None) for target in well())
