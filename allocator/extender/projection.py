"""Forecast: nodes as they will be once the pods being bound there have their GPUs.

A burst asks about the same few nodes again and again, each time with one more pod being bound. So
the last result of each node is kept and extended while the node is unchanged.
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
    """One node once *placed* have what they want: as it is, or once all that end have gone.

    ``now`` is ``None`` where one of them has no place; ``taken`` is what each of them has. ``gone``
    are uids of those that end. ``before`` is how the node stood when it was last asked for, and
    ``standing`` how it stands, ``None`` until somebody asks.
    """

    site: NodeInfo
    terms: PlacementPolicy
    now: Node | None
    then: Node
    gone: frozenset[str]
    before: NodeClass
    placed: list[str] = field(default_factory=list)  # uids, one after another
    taken: list[list[Grant]] = field(default_factory=list)
    standing: NodeClass | None = None


class Projection:
    """Remembers the last answer about each node."""

    def __init__(self) -> None:
        """Know of no node yet."""
        self._known: dict[str, _ProjectedNode] = {}

    def node_class(
        self, index: Index, name: str, others: Sequence[SchedulingPod], *, terms: PlacementPolicy
    ) -> NodeClass | None:
        """Return how node *name*, which is known, stands once *others* have what they want.

        They come before whoever asks, one after another; ``None`` where one of them has no place.
        """
        known = self._known.pop(name, None)
        if (
            known is None
            or known.terms != terms
            or not _is_unchanged(known, index, name)
            or not _continue(others, known.placed)
        ):
            known = _first_state(index, name, terms)
        self._known[name] = known
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        for other in others[len(known.placed) :]:
            _place(known, other)
        if known.now is not None and known.standing is None:
            known.before = known.standing = single_node_class(known.now, like=known.before)
        return known.standing


def _continue(others: Sequence[SchedulingPod], placed: Sequence[str]) -> bool:
    """Say whether *others* are those *placed*, and perhaps more."""
    return [other.uid for other in others[: len(placed)]] == placed


def _is_unchanged(known: _ProjectedNode, index: Index, name: str) -> bool:
    """Say whether the node is as it was, but that those placed first were promised just that."""
    site = index.sites[name]
    if site is known.site:
        return True
    came = len(list(takewhile(site.entries.__contains__, known.placed)))
    expected = with_grants(known.site.node, list(chain.from_iterable(known.taken[:came])))
    if known.now is None or expected != site.node or _ending_pods(index, site) != known.gone:
        return False
    known.site = site
    del known.placed[:came], known.taken[:came]
    return True


def _first_state(index: Index, name: str, terms: PlacementPolicy) -> _ProjectedNode:
    site = index.sites[name]
    gone = _ending_pods(index, site)
    then = without_entries(site.node, [site.entries[uid] for uid in gone])
    return _ProjectedNode(
        site=site, terms=terms, now=site.node, then=then, gone=gone, before=site.node_class
    )


def _ending_pods(index: Index, site: NodeInfo) -> frozenset[str]:
    return frozenset(uid for uid in site.entries if ends(index.pods.get(uid)))


def _place(known: _ProjectedNode, pod: SchedulingPod) -> None:
    grants: list[Grant] = []
    if known.now is not None and isinstance(pod.wanted, PodClaim):
        grants = grants_of(known.now, pod.wanted, known.terms)
        grants = grants or grants_of(known.then, pod.wanted, known.terms)
        known.now = with_grants(known.now, grants) if grants else None
        known.then = with_grants(known.then, grants)
        known.standing = None
    known.placed.append(pod.uid)
    known.taken.append(grants)


def ends(pod: SchedulingPod | None) -> bool:
    """Say whether what a pod was promised will be free: it is gone, over, or on its way."""
    return pod is None or pod.deleting or pod.over


def grants_of(node: Node, wanted: PodClaim, terms: PlacementPolicy) -> list[Grant]:
    """Return what a pod would hold on *node* at most; nothing where it does not fit."""
    assignment = place_on(node, in_mode(wanted.request, wanted.mode), terms=terms)
    return [] if assignment is None else list(peak_grants(assignment.containers))
