"""One node as the preemptor finds it: ended and terminating pods, and reserved room."""

from dataclasses import dataclass, replace

from allocator.extender.filter import node_with_nominations
from allocator.extender.index import Entries, Index
from allocator.extender.pod import SchedulingPod
from allocator.ledger.assign import PodClaim
from allocator.model.allocation import Entry
from allocator.model.demand import Demand
from allocator.model.gpu import Node
from allocator.model.request import PodRequest
from allocator.model.usage import without_entries
from allocator.placement.choose import PlacementPolicy, in_mode, place_on


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionNode:
    """One node as a preemptor finds it; pods are given by uid."""

    node: Node  # with all grants but the pod's own, and with room for nominated pods taken
    entries: Entries  # of all other pods
    ended: frozenset[str]  # gone or over: their GPUs are free once the node reports it
    terminating: frozenset[str]  # deleted, and still running
    overdue: frozenset[str]  # ended or terminating for too long: their room counts as taken
    request: PodRequest
    policy: PlacementPolicy
    demand: Demand

    @property
    def coming_uids(self) -> frozenset[str]:
        """Return pods whose room is becoming free."""
        return self.ended | self.terminating

    @property
    def wants_single_gpu(self) -> bool:
        """Say whether the pod asks for one GPU only."""
        return sum(container_request.count for container_request in self.request.containers) == 1

    def fits(self, gone: frozenset[str]) -> bool:
        """Say whether the pod fits without the pods *gone*; to be asked without any first."""
        node, removed = self.node, [self.entries[uid] for uid in gone]
        if gone and self.wants_single_gpu:  # elsewhere on the node nothing has changed
            touched = set().union(*map(held_gpus, removed))
            node = replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.uuid in touched))
        node = without_entries(node, removed)
        return place_on(node, self.request, policy=self.policy, demand=self.demand) is not None


def preemption_node(
    index: Index, name: str, *, pod: SchedulingPod, claim: PodClaim, policy: PlacementPolicy
) -> PreemptionNode | None:
    """Return node *name* as *pod* finds it; ``None`` where no eviction can help.

    That is a closed node, and one where nominated pods of the same or higher priority do not find
    room themselves.
    """
    info = index.node_infos.get(name)
    node = node_with_nominations(index, name, pod, policy=policy)
    if info is None or info.closed or node is None:
        return None
    entries = {uid: entry for uid, entry in info.entries.items() if uid != pod.uid}
    ended = frozenset(uid for uid in entries if _is_ended(index.pods.get(uid)))
    terminating = frozenset(
        uid for uid in entries.keys() - ended if _is_terminating(index.pods[uid], name)
    )
    overdue = frozenset(uid for uid in ended | terminating if _is_overdue(index, entries[uid]))
    return PreemptionNode(
        node=node,
        entries=entries,
        ended=ended - overdue,
        terminating=terminating - overdue,
        overdue=overdue,
        request=in_mode(claim.request, claim.mode),
        policy=policy,
        demand=index.snapshot.demand,
    )


def _is_ended(pod: SchedulingPod | None) -> bool:
    return pod is None or pod.over or (pod.deleting and not pod.node)


def _is_terminating(pod: SchedulingPod, node: str) -> bool:
    return pod.deleting and pod.node == node


def _is_overdue(index: Index, entry: Entry) -> bool:
    return index.terminations is not None and index.terminations.is_overdue(
        entry, index.pods.get(entry.uid)
    )


def held_gpus(entry: Entry) -> set[str]:
    """Return the GPUs that *entry* promises a part of."""
    return {grant.gpu for container in entry.containers for grant in container.grants}
