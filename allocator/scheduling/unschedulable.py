"""Waiting: what a pod that no node takes is told, and where else it might go."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Final

from allocator.extender.equivalence import NodeClass
from allocator.extender.filter import FilterContext, filter_nodes
from allocator.extender.index import Index
from allocator.extender.pod import SchedulingPod
from allocator.extender.prioritize import best_first
from allocator.extender.reasons import FailureReason
from allocator.ledger.assign import PodClaim
from allocator.model.decision import Finding
from allocator.placement.choose import PlacementPolicy, choose
from allocator.placement.fleet import snapshot_of

# kube-scheduler looks at all nodes until it has found so many; with fewer it has seen them all.
LEAST_SAMPLE: Final = 100
MOST_STANDINGS: Final = 16  # that a sentence is drawn from: it names the closest of some
_NOBODY: Final[Mapping[str, tuple[SchedulingPod, ...]]] = MappingProxyType({})


def why(
    index: Index,
    pod: SchedulingPod,
    *,
    obstacles: Mapping[str, FailureReason],
    terms: PlacementPolicy,
) -> Finding | None:
    """Say in numbers what *pod* lacks on the nodes that did not take it.

    ``None`` where nothing is known of any of them, or the pod asks for nothing. Only some of
    them are looked at, those first that other pods are in the way on.
    """
    wanted = pod.wanted
    if isinstance(wanted, tuple):
        return wanted[0]
    if wanted is None:
        return None
    nodes = [node_class.node for node_class in _sample(index, obstacles)]
    if not nodes:
        return None
    there = snapshot_of(
        nodes, version=index.snapshot.version, complete=True, demand=index.snapshot.demand
    )
    choice = choose(there, wanted.request, mode=wanted.mode, terms=terms)
    return choice.findings[0] if choice.findings else None


def _sample(index: Index, obstacles: Mapping[str, FailureReason]) -> Iterable[NodeClass]:
    ordered = sorted(obstacles, key=lambda name: obstacles[name].lasting)
    standings = (index.standings.get(name) for name in ordered)
    distinct = dict.fromkeys(node_class for node_class in standings if node_class is not None)
    return islice(distinct, MOST_STANDINGS)


def takers(
    index: Index, pod: SchedulingPod, names: Collection[str], *, circumstances: FilterContext
) -> list[str]:
    """Return the nodes that take *pod* by now, the best first; its scheduler asked about *names*.

    A scheduler of a large cluster asks about a sample, and asks no further when none of it fits:
    there all nodes are looked at.
    """
    if not isinstance(pod.wanted, PodClaim):
        return []
    seen = _reachable_nodes(index, names)
    return best_first(index, filter_nodes(index, pod, seen, circumstances=circumstances).fitting)


def is_crowded_out(
    index: Index, pod: SchedulingPod, names: Collection[str], *, circumstances: FilterContext
) -> bool:
    """Say whether *pod* would find a node, were nobody on the way there."""
    if not index.nominations:
        return False
    alone = replace(index, nominations=_NOBODY)
    return bool(takers(alone, pod, names, circumstances=circumstances))


def _reachable_nodes(index: Index, names: Collection[str]) -> list[str]:
    """Return *names*, or all nodes where these are a sample of them."""
    return list(names if len(names) < LEAST_SAMPLE else index.standings)


@dataclass(frozen=True, slots=True)
class UnschedulablePod:
    """A pod that no node took of those *names* that its scheduler asked about, and why."""

    pod: SchedulingPod
    names: Sequence[str]
    obstacles: Mapping[str, FailureReason]
