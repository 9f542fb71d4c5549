"""Wiring of the controllers that the leader runs, one replica at a time."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from allocator.cli.process import Start
from allocator.cluster.inventory import Inventory
from allocator.cluster.pods import Pods
from allocator.config.settings import NodeAgent
from allocator.controllers import drift, requeue
from allocator.controllers.gang import GangController
from allocator.controllers.gpunode import GpuNodeController
from allocator.controllers.reclaim import ReclaimController
from allocator.controllers.volcano_register import VolcanoRegisterController, register_inputs
from kube.client import Client
from kube.events import Recorder
from kube.leases import Election
from kube.workqueue import SWEEP_SECONDS, run_while_leading
from webhook.admission.audit_log import AuditLog
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_server import BindingHandler
from webhook.binding.late_commit_controller import Caches, LateCommitController
from webhook.serve.metrics import WebhookMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderContext:
    """What the duties work with; ``around`` returns the surroundings of a namespace."""

    client: Client
    inventory: Inventory
    pods: Pods
    binder: BindingHandler
    gangs: GangController
    around: Callable[[str], AdmissionContext]
    events: Recorder
    journal: AuditLog
    metrics: WebhookMetrics


def attend(means: LeaderContext, election: Election, start: Start) -> None:
    """Start every duty; all of them rest while *election* is lost."""
    waker = _requeue(means)
    duties: Mapping[str, tuple[Callable[[], Awaitable[None]], float]] = {
        "reconciler": (_reconciler(means).sweep, SWEEP_SECONDS),
        "upkeep": (_upkeep(means).sweep, SWEEP_SECONDS),
        "late commits": (_late_commits(means).sweep, SWEEP_SECONDS),
        "registrar": (_registrar(means).sweep, SWEEP_SECONDS),
        "gangs": (lambda: means.gangs.sweep(means.inventory.settings), SWEEP_SECONDS),
        "waker": (lambda: waker.sweep(election.term), requeue.SWEEP_SECONDS),
        "drift": (_drift(means).sweep, drift.SWEEP_SECONDS),
    }
    start(election.run(), "ledger election")
    start(means.gangs.run(), "refused members")
    for name, (sweep, every) in duties.items():
        failed = means.metrics.failure_counter(name)
        start(run_while_leading(sweep, lambda: election.is_leader, every, failed=failed), name)


def _reconciler(means: LeaderContext) -> ReclaimController:
    return ReclaimController(
        means.client,
        pods=means.pods,
        ledgers=means.inventory.ledgers,
        agents_serve=lambda: means.inventory.settings.node_agent is NodeAgent.OURS,
    )


def _upkeep(means: LeaderContext) -> GpuNodeController:
    inventory = means.inventory
    upstream = NodeAgent.UPSTREAM
    return GpuNodeController(
        means.client, inventory, upstream=lambda: inventory.settings.node_agent is upstream
    )


def _late_commits(means: LeaderContext) -> LateCommitController:
    caches = Caches(pods=means.pods, ledgers=means.inventory.ledgers, around=means.around)
    return LateCommitController(
        calls=means.client,
        binder=means.binder,
        caches=caches,
        tell=means.events.record,
        remember=means.journal.remember,
    )


def _registrar(means: LeaderContext) -> VolcanoRegisterController:
    return VolcanoRegisterController(
        means.client, lambda: register_inputs(means.inventory, means.pods.by_uid)
    )


def _requeue(means: LeaderContext) -> requeue.RequeueController:
    inventory = means.inventory
    return requeue.RequeueController(
        means.client,
        means.pods,
        ledgers=inventory.ledgers,
        vocabularies=lambda: inventory.vocabularies,
    )


def _drift(means: LeaderContext) -> drift.DriftController:
    return drift.DriftController(
        means.inventory.ledgers,
        means.pods,
        record=means.events.record,
        count=means.metrics.set_drift,
    )
