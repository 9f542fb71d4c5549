"""A node as one preemptor finds it, with room about to be freed and room that is reserved."""

from dataclasses import dataclass, replace

from allocator.extender.filter import node_with_nominees
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
    """One node with everybody's grants but the pod's own, and with what is spoken for.

    ``ebbing`` are pods that are gone or over: what they were promised is free once their node
    says so. ``leaving`` are pods that were deleted and still run. ``overdue`` are neither of them
    any more: their room should have been free by now, and is taken until it is.
    """

    node: Node
    entries: Entries
    ebbing: frozenset[str]
    leaving: frozenset[str]
    overdue: frozenset[str]
    request: PodRequest
    terms: PlacementPolicy
    demand: Demand

    @property
    def coming_uids(self) -> frozenset[str]:
        """Return whose room is coming: theirs who are gone, over, or on their way."""
        return self.ebbing | self.leaving

    @property
    def single(self) -> bool:
        """Say whether the pod asks for one GPU only."""
        return sum(container_request.count for container_request in self.request.containers) == 1

    def fits(self, gone: frozenset[str]) -> bool:
        """Say whether the pod fits once the pods *gone* are; with nobody gone is asked first."""
        node, leaving = self.node, [self.entries[uid] for uid in gone]
        if gone and self.single:  # elsewhere on the node nothing has changed
            touched = set().union(*map(held_gpus, leaving))
            node = replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.uuid in touched))
        node = without_entries(node, leaving)
        return place_on(node, self.request, terms=self.terms, demand=self.demand) is not None


def preemption_node(
    index: Index, name: str, *, pod: SchedulingPod, wanted: PodClaim, terms: PlacementPolicy
) -> PreemptionNode | None:
    """Return node *name* as *pod* finds it; ``None`` where it has nothing to hope for there.

    That is a node on which nothing may be promised, and one where pods that are nominated, and no
    less important, have not found their own room yet.
    """
    site = index.sites.get(name)
    node = node_with_nominees(index, name, pod, terms=terms)
    if site is None or site.closed or node is None:
        return None
    entries = {uid: entry for uid, entry in site.entries.items() if uid != pod.uid}
    ebbing = frozenset(uid for uid in entries if _is_ended(index.pods.get(uid)))
    leaving = frozenset(
        uid for uid in entries.keys() - ebbing if _is_leaving(index.pods[uid], name)
    )
    overdue = frozenset(uid for uid in ebbing | leaving if _is_overdue(index, entries[uid]))
    return PreemptionNode(
        node=node,
        entries=entries,
        ebbing=ebbing - overdue,
        leaving=leaving - overdue,
        overdue=overdue,
        request=in_mode(wanted.request, wanted.mode),
        terms=terms,
        demand=index.snapshot.demand,
    )


def _is_ended(pod: SchedulingPod | None) -> bool:
    return pod is None or pod.over or (pod.deleting and not pod.node)


def _is_leaving(pod: SchedulingPod, node: str) -> bool:
    return pod.deleting and pod.node == node


def _is_overdue(index: Index, entry: Entry) -> bool:
    return index.endings is not None and index.endings.is_overdue(entry, index.pods.get(entry.uid))


def held_gpus(entry: Entry) -> set[str]:
    """Return the GPUs that *entry* promises a part of."""
    return {grant.gpu for container in entry.containers for grant in container.grants}
