"""Pods that no node took: why, in numbers, and which nodes take them after all."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Final

from allocator.extender.equivalence import NodeClass
from allocator.extender.filter import FilterContext, filter_nodes
from allocator.extender.index import Index
from allocator.extender.pod import SchedulingPod
from allocator.extender.prioritize import fullest_first
from allocator.extender.reasons import FailureReason
from allocator.ledger.assign import PodClaim
from allocator.model.decision import Finding, Findings
from allocator.placement.choose import PlacementPolicy, choose
from allocator.placement.fleet import snapshot_of

# kube-scheduler looks at all nodes until it has found so many; with fewer it has seen them all.
LEAST_SAMPLE: Final = 100
MOST_CLASSES: Final = 16  # that a sentence is drawn from: it names the closest of some
_NO_NOMINATIONS: Final[Mapping[str, tuple[SchedulingPod, ...]]] = MappingProxyType({})


def explain_unschedulable(
    index: Index,
    pod: SchedulingPod,
    *,
    failures: Mapping[str, FailureReason],
    policy: PlacementPolicy,
) -> Finding | None:
    """Return in numbers what *pod* lacks on the nodes that did not take it.

    ``None`` where none of them is known, or the pod asks for no GPU. Only some classes of nodes are
    examined, those first where only other pods are in the way.
    """
    claim = pod.claim
    if isinstance(claim, Findings):
        return claim.first
    if claim is None:
        return None
    nodes = [node_class.node for node_class in _sample_classes(index, failures)]
    if not nodes:
        return None
    rejecting = snapshot_of(
        nodes, version=index.snapshot.version, complete=True, demand=index.snapshot.demand
    )
    choice = choose(rejecting, claim.request, mode=claim.mode, policy=policy)
    return choice.findings[0] if choice.findings else None


def _sample_classes(index: Index, failures: Mapping[str, FailureReason]) -> Iterable[NodeClass]:
    ordered = sorted(failures, key=lambda name: failures[name].lasting)
    classes = (index.node_classes.get(name) for name in ordered)
    distinct = dict.fromkeys(node_class for node_class in classes if node_class is not None)
    return islice(distinct, MOST_CLASSES)


def fitting_nodes(
    index: Index, pod: SchedulingPod, names: Collection[str], *, context: FilterContext
) -> list[str]:
    """Return the nodes that take *pod* now, the fullest first; its scheduler asked about *names*.

    In a large cluster *names* are a sample, and a scheduler asks no further when none of it fits;
    then all nodes are examined.
    """
    if not isinstance(pod.claim, PodClaim):
        return []
    reachable = _reachable_nodes(index, names)
    return fullest_first(index, filter_nodes(index, pod, reachable, context=context).fitting)


def is_blocked_by_nominations(
    index: Index, pod: SchedulingPod, names: Collection[str], *, context: FilterContext
) -> bool:
    """Say whether *pod* would fit somewhere if no pods were nominated."""
    if not index.nominations:
        return False
    without_nominations = replace(index, nominations=_NO_NOMINATIONS)
    return bool(fitting_nodes(without_nominations, pod, names, context=context))


def _reachable_nodes(index: Index, names: Collection[str]) -> list[str]:
    """Return *names*, or all nodes where these are a sample of them."""
    return list(names if len(names) < LEAST_SAMPLE else index.node_classes)


@dataclass(frozen=True, slots=True)
class UnschedulablePod:
    """A pod that no node took."""

    pod: SchedulingPod
    names: Sequence[str]  # of the nodes that its scheduler asked about
    failures: Mapping[str, FailureReason]  # by node
