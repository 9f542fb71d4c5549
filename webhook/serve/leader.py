"""Wiring of the controllers that the leader runs, one replica at a time."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from allocator.cli.process import Start
from allocator.cluster.hami_nodes import hami_locks, hami_register_inputs, ownership_warnings
from allocator.cluster.inventory import Inventory
from allocator.cluster.pods import Pods
from allocator.config.settings import NodeAgent
from allocator.controllers import (
    capacity,
    closed_nodes,
    drift,
    hiding_policy,
    match_conditions,
    requeue,
    sole_capacity,
)
from allocator.controllers.gang import GangController
from allocator.controllers.gpunode import GpuNodeController
from allocator.controllers.reclaim import ReclaimController
from allocator.controllers.volcano_register import VolcanoRegisterController, register_inputs
from allocator.groups import hyper_nodes_controller
from allocator.groups.hyper_nodes_controller import (
    HyperNodesController,
    PodGroupTopologyController,
)
from allocator.hami import ownership_controller
from allocator.hami.node_lock_client import NodeLockClient
from allocator.hami.node_lock_controller import NodeLockController
from allocator.hami.register_controller import HamiRegisterController
from allocator.supernode.groups import GroupService
from kube.client import Client
from kube.clock import SYSTEM
from kube.events import Recorder
from kube.leases import Election
from kube.workqueue import SWEEP_SECONDS, run_while_leading
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_server import BindingHandler
from webhook.binding.late_commit_controller import Caches, LateCommitController
from webhook.records import settings_controller, waiting_controller
from webhook.records.trail import AuditTrail
from webhook.serve.metrics import WebhookMetrics

# vc-scheduler begins a session each second, and may place a job in the next one.
TOPOLOGY_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderContext:
    """What the controllers of the leader work with."""

    client: Client
    inventory: Inventory
    pods: Pods
    binder: BindingHandler
    gangs: GangController
    groups: GroupService
    context_of: Callable[[str], AdmissionContext]  # by namespace
    events: Recorder
    trail: AuditTrail
    metrics: WebhookMetrics


def start_controllers(leader: LeaderContext, election: Election, start: Start) -> None:
    """Start every controller. They do nothing while another replica holds the lease."""
    requeue_controller = _requeue_controller(leader)
    sweeps: Mapping[str, tuple[Callable[[], Awaitable[None]], float]] = {
        "reconciler": (_reclaim_controller(leader).sweep, SWEEP_SECONDS),
        "upkeep": (_gpunode_controller(leader).sweep, SWEEP_SECONDS),
        "late commits": (_late_commit_controller(leader).sweep, SWEEP_SECONDS),
        "registrar": (_register_controller(leader).sweep, SWEEP_SECONDS),
        "HAMi's registers": (_hami_register_controller(leader).sweep, SWEEP_SECONDS),
        "two owners": (_ownership_controller(leader).sweep, ownership_controller.SWEEP_SECONDS),
        "HAMi's locks": (_node_lock_controller(leader).sweep, SWEEP_SECONDS),
        "gangs": (lambda: leader.gangs.sweep(leader.inventory.settings), SWEEP_SECONDS),
        "waker": (lambda: requeue_controller.sweep(election.term), requeue.SWEEP_SECONDS),
        "closed nodes": (_closed_nodes_controller(leader).sweep, closed_nodes.SWEEP_SECONDS),
        "drift": (_drift_controller(leader).sweep, drift.SWEEP_SECONDS),
        "sole capacity": (_sole_capacity_controller(leader).sweep, sole_capacity.SWEEP_SECONDS),
        "match conditions": (_conditions_controller(leader).sweep, match_conditions.SWEEP_SECONDS),
        "capacity": (_capacity_controller(leader).sweep, capacity.SWEEP_SECONDS),
        "waiting pods": (_waiting_controller(leader).sweep, waiting_controller.SWEEP_SECONDS),
        "settings records": (
            _settings_record_controller(leader).sweep,
            settings_controller.SWEEP_SECONDS,
        ),
        "hyper nodes": (
            _hyper_nodes_controller(leader).sweep,
            hyper_nodes_controller.SWEEP_SECONDS,
        ),
        "group topology": (_topology_controller(leader).sweep, TOPOLOGY_SECONDS),
        "hiding policy": (_hiding_controller(leader).sweep, hiding_policy.SWEEP_SECONDS),
    }
    start(election.run(), "ledger election")
    start(leader.gangs.run(), "refused members")
    for name, (sweep, every) in sweeps.items():
        failed = leader.metrics.failure_counter(name)
        start(run_while_leading(sweep, lambda: election.is_leader, every, failed=failed), name)


def _reclaim_controller(leader: LeaderContext) -> ReclaimController:
    return ReclaimController(
        leader.client,
        pods=leader.pods,
        ledgers=leader.inventory.ledgers,
        agents_serve=lambda: leader.inventory.settings.node_agent is NodeAgent.OURS,
        write_record=leader.trail.writer.write,
    )


def _gpunode_controller(leader: LeaderContext) -> GpuNodeController:
    inventory = leader.inventory
    return GpuNodeController(
        leader.client, inventory, upstream=lambda: inventory.settings.node_agent.is_other
    )


def _late_commit_controller(leader: LeaderContext) -> LateCommitController:
    caches = Caches(
        pods=leader.pods, ledgers=leader.inventory.ledgers, context_of=leader.context_of
    )
    return LateCommitController(
        calls=leader.client,
        binder=leader.binder,
        caches=caches,
        record_event=leader.events.record,
        remember=leader.trail.sink.remember,
    )


def _register_controller(leader: LeaderContext) -> VolcanoRegisterController:
    return VolcanoRegisterController(
        leader.client, lambda: register_inputs(leader.inventory, leader.pods.by_uid)
    )


def _hami_register_controller(leader: LeaderContext) -> HamiRegisterController:
    return HamiRegisterController(
        leader.client, lambda: hami_register_inputs(leader.inventory, leader.pods)
    )


def _node_lock_controller(leader: LeaderContext) -> NodeLockController:
    locks = NodeLockClient(calls=leader.client)
    return NodeLockController(locks, lambda: hami_locks(leader.inventory))


def _ownership_controller(leader: LeaderContext) -> ownership_controller.OwnershipController:
    return ownership_controller.OwnershipController(
        lambda: ownership_warnings(leader.inventory), record=leader.events.record
    )


def _requeue_controller(leader: LeaderContext) -> requeue.RequeueController:
    inventory = leader.inventory
    return requeue.RequeueController(
        leader.client,
        leader.pods,
        ledgers=inventory.ledgers,
        vocabularies=lambda: inventory.vocabularies,
    )


def _closed_nodes_controller(leader: LeaderContext) -> closed_nodes.ClosedNodesController:
    inventory = leader.inventory
    return closed_nodes.ClosedNodesController(
        leader.client,
        inventory,
        upstream=lambda: inventory.settings.node_agent.is_other,
        slot=lambda: inventory.vocabularies[0].slot,
        record=leader.events.record,
    )


def _sole_capacity_controller(leader: LeaderContext) -> sole_capacity.SoleCapacityController:
    inventory = leader.inventory
    return sole_capacity.SoleCapacityController(
        leader.client,
        inventory,
        vocabularies=lambda: inventory.vocabularies,
        upstream=lambda: inventory.settings.node_agent.is_other,
    )


def _conditions_controller(leader: LeaderContext) -> match_conditions.MatchConditionsController:
    return match_conditions.MatchConditionsController(
        leader.client,
        vocabularies=lambda: leader.inventory.vocabularies,
        record=leader.events.record,
    )


def _hiding_controller(leader: LeaderContext) -> hiding_policy.HidingPolicyController:
    return hiding_policy.HidingPolicyController(
        leader.client, vocabularies=lambda: leader.inventory.vocabularies
    )


def _hyper_nodes_controller(leader: LeaderContext) -> HyperNodesController:
    settings, groups = leader.inventory, leader.groups.node_groups
    return HyperNodesController(
        leader.client,
        tree=lambda: None if groups.why_unknown else groups.tree,
        enabled=lambda: settings.settings.hyper_nodes,
    )


def _topology_controller(leader: LeaderContext) -> PodGroupTopologyController:
    inventory, pods = leader.inventory, leader.groups.pods
    return PodGroupTopologyController(
        leader.client,
        waiting=lambda: [(job, pods.job(job)) for job in pods.waiting_jobs(SYSTEM.wall())],
        counts=lambda: {v.count for v in inventory.vocabularies if v.count is not None},
        enabled=lambda: inventory.settings.hyper_nodes,
    )


def _waiting_controller(leader: LeaderContext) -> waiting_controller.WaitingController:
    return waiting_controller.WaitingController(
        calls=leader.client,
        pods=leader.pods,
        vocabularies=lambda: leader.inventory.vocabularies,
        write_record=leader.trail.writer.write,
        report=leader.metrics.leader.set_waiting,
    )


def _settings_record_controller(
    leader: LeaderContext,
) -> settings_controller.SettingsRecordController:
    return settings_controller.SettingsRecordController(
        config_maps=leader.inventory.config_maps, write_record=leader.trail.writer.write
    )


def _capacity_controller(leader: LeaderContext) -> capacity.FreeCapacityController:
    return capacity.FreeCapacityController(
        index=leader.inventory.index,
        device_config=lambda: leader.inventory.device_config,
        report=leader.metrics.leader.set_capacity,
    )


def _drift_controller(leader: LeaderContext) -> drift.DriftController:
    return drift.DriftController(
        leader.inventory.ledgers,
        leader.pods,
        record=leader.events.record,
        count=leader.metrics.set_drift,
    )
