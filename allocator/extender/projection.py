"""Projection: nodes once the pods that are being bound there have their GPUs.

A burst asks about the same few nodes again and again, with one more pod on its way each time, so
the last result for each node is kept and extended while the node is unchanged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import Final

from allocator.extender.equivalence import NodeClass, single_node_class
from allocator.extender.index import Index, NodeInfo
from allocator.extender.pod import SchedulingPod
from allocator.ledger.assign import PodClaim
from allocator.model.allocation import Grant
from allocator.model.gpu import Node
from allocator.model.usage import peak_grants, with_grants, without_entries
from allocator.placement.choose import PlacementPolicy, in_mode, place_on

MOST_KNOWN: Final = 256  # nodes, those that were asked about last


@dataclass(slots=True)
class _ProjectedNode:
    """One node with the GPUs of the pods *placed* taken."""

    info: NodeInfo  # the node without them
    policy: PlacementPolicy
    now: Node | None  # None where one of them finds no room
    once_ended: Node  # the same without the entries of ending pods
    ending: frozenset[str]  # uids of ending pods
    last_class: NodeClass  # the last one that was built, whose parts are reused
    placed: list[str] = field(default_factory=list)  # uids, in the order of placing
    taken: list[list[Grant]] = field(default_factory=list)  # by each of them
    node_class: NodeClass | None = None  # of now; None until it is asked for


class Projection:
    """The last results, by node."""

    def __init__(self) -> None:
        """Begin empty."""
        self._known: dict[str, _ProjectedNode] = {}

    def node_class(
        self, index: Index, name: str, others: Sequence[SchedulingPod], *, policy: PlacementPolicy
    ) -> NodeClass | None:
        """Return the class of node *name*, which must be known, with *others* placed in turn.

        ``None`` where one of them finds no room.
        """
        known = self._known.pop(name, None)
        if (
            known is None
            or known.policy != policy
            or not _is_unchanged(known, index, name)
            or not _begins_with(others, known.placed)
        ):
            known = _first_state(index, name, policy)
        self._known[name] = known
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        for other in others[len(known.placed) :]:
            _place(known, other)
        if known.now is not None and known.node_class is None:
            known.last_class = known.node_class = single_node_class(
                known.now, like=known.last_class
            )
        return known.node_class


def _begins_with(others: Sequence[SchedulingPod], placed: Sequence[str]) -> bool:
    """Say whether *others* begin with the pods *placed*."""
    return [other.uid for other in others[: len(placed)]] == placed


def _is_unchanged(known: _ProjectedNode, index: Index, name: str) -> bool:
    """Say whether the node is unchanged, or only got entries for pods placed, just as placed."""
    info = index.node_infos[name]
    if info is known.info:
        return True
    committed = len(list(takewhile(info.entries.__contains__, known.placed)))
    expected = with_grants(known.info.node, list(chain.from_iterable(known.taken[:committed])))
    if known.now is None or expected != info.node or _ending_pods(index, info) != known.ending:
        return False
    known.info = info
    del known.placed[:committed], known.taken[:committed]
    return True


def _first_state(index: Index, name: str, policy: PlacementPolicy) -> _ProjectedNode:
    info = index.node_infos[name]
    ending = _ending_pods(index, info)
    then = without_entries(info.node, [info.entries[uid] for uid in ending])
    return _ProjectedNode(
        info=info,
        policy=policy,
        now=info.node,
        once_ended=then,
        ending=ending,
        last_class=info.node_class,
    )


def _ending_pods(index: Index, info: NodeInfo) -> frozenset[str]:
    return frozenset(uid for uid in info.entries if is_ending(index.pods.get(uid)))


def _place(known: _ProjectedNode, pod: SchedulingPod) -> None:
    grants: list[Grant] = []
    if known.now is not None and isinstance(pod.claim, PodClaim):
        grants = grants_of(known.now, pod.claim, known.policy)
        grants = grants or grants_of(known.once_ended, pod.claim, known.policy)
        known.now = with_grants(known.now, grants) if grants else None
        known.once_ended = with_grants(known.once_ended, grants)
        known.node_class = None
    known.placed.append(pod.uid)
    known.taken.append(grants)


def is_ending(pod: SchedulingPod | None) -> bool:
    """Say whether a pod's GPUs will become free: it is gone, over or being deleted."""
    return pod is None or pod.deleting or pod.over


def grants_of(node: Node, claim: PodClaim, policy: PlacementPolicy) -> list[Grant]:
    """Return the grants a pod would hold on *node* at its peak; none where it does not fit."""
    assignment = place_on(node, in_mode(claim.request, claim.mode), policy=policy)
    return [] if assignment is None else list(peak_grants(assignment.containers))
