"""Steering: which of many nodes take a pod, and what stands in its way on the others.

A question is answered once for each standing among the nodes asked about, never node by node.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, filterfalse

import msgspec

from allocator.extender.equivalence import single_node_class
from allocator.extender.equivalence_filter import ClassFilter, ClassFilterCache
from allocator.extender.index import Index
from allocator.extender.pod import FIRST, SchedulingPod
from allocator.extender.projection import Projection, ends, grants_of
from allocator.extender.reasons import (
    CLOSED,
    EVER,
    NO_INVENTORY,
    RESERVED,
    UNREADABLE,
    FailureReason,
)
from allocator.ledger.assign import PodClaim
from allocator.model.allocation import Grant
from allocator.model.decision import Reason
from allocator.model.gpu import Node
from allocator.model.request import PodRequest
from allocator.model.usage import with_grants
from allocator.placement.choose import PlacementPolicy, in_mode
from allocator.placement.fit import peak


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterContext:
    """What an answer rests on besides pod and nodes.

    ``terms`` are the operator's. ``own`` are nodes that may have a promise to this very pod, which
    counts as free there. ``closed_world`` says that a node without inventory has nothing to give.
    ``forecast`` remembers, from question to question, what those take who are being bound, and
    ``judges`` what was said of standings.
    """

    terms: PlacementPolicy
    own: Collection[str] = ()
    closed_world: bool = True
    forecast: Projection = field(default_factory=Projection)
    judges: ClassFilterCache = field(default_factory=ClassFilterCache)


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Nodes that take the pod, and of the others why not; both in the order asked."""

    fitting: list[str]
    obstacles: dict[str, FailureReason]


def filter_nodes(
    index: Index, pod: SchedulingPod, names: Sequence[str], *, circumstances: FilterContext
) -> FilterResult:
    """Say of each of *names* whether it takes *pod*; one that asks for nothing fits anywhere."""
    wanted = pod.wanted
    if wanted is None:
        return FilterResult(list(names), {})
    if isinstance(wanted, tuple):
        return FilterResult([], dict.fromkeys(names, UNREADABLE))
    request = in_mode(wanted.request, wanted.mode)
    obstacles = _obstacles(index, request, names=names, circumstances=circumstances)
    judge = circumstances.judges.judge(request, circumstances.terms, index.snapshot.demand)
    judged = _judge_alone(index, pod, judge, circumstances=circumstances)
    for name in _special(index, pod, judge, names=names, circumstances=circumstances):
        obstacle = judged(name)
        if obstacle is not None:
            obstacles[name] = obstacle
        else:
            obstacles.pop(name, None)
    fitting = list(filterfalse(obstacles.__contains__, names))
    return FilterResult(fitting, obstacles)


def _obstacles(
    index: Index, request: PodRequest, *, names: Sequence[str], circumstances: FilterContext
) -> dict[str, FailureReason]:
    """Judge nodes by their standings, as if no GPU had a name."""
    unknown = NO_INVENTORY if circumstances.closed_world and index.whole else None
    standing = index.standings.get
    if request.filters.uuids:  # those that have one of these GPUs stand apart
        elsewhere = EVER[Reason.MODEL_UNAVAILABLE]
        verdicts = ((name, elsewhere if standing(name) else unknown) for name in names)
        return {name: verdict for name, verdict in verdicts if verdict is not None}
    filters = replace(request.filters, not_uuids=())
    plain = request
    if filters != request.filters:
        plain = msgspec.structs.replace(request, filters=filters)
    demand = index.snapshot.demand
    judge = circumstances.judges.judge(plain, circumstances.terms, demand, unknown=unknown)
    firsts = list(map(index.firsts.get, names))
    doubtful = {first for first in set(firsts) if not judge.plainly(first)}
    if not doubtful:  # of thousands of nodes that take the pod, none is looked at by itself
        return {}
    asked = compress(names, map(doubtful.__contains__, firsts))
    verdicts = ((name, judge.obstacle(standing(name))) for name in asked)
    return {name: verdict for name, verdict in verdicts if verdict is not None}


def _special(
    index: Index,
    pod: SchedulingPod,
    judge: ClassFilter,
    *,
    names: Sequence[str],
    circumstances: FilterContext,
) -> Iterable[str]:
    """Return those of *names* that this pod finds otherwise than another like it."""
    found = {*circumstances.own, *_nodes_named(index, judge.request)}
    if not found and not index.nominations:
        return ()
    asked = set(names) & index.sites.keys()
    nominated = asked.intersection(index.nominations)
    crowded = [name for name in nominated if _is_crowded(index, name, pod=pod, judge=judge)]
    return (asked & found).union(crowded)


def _nodes_named(index: Index, request: PodRequest) -> list[str]:
    """Return the nodes that have a GPU which *request* names."""
    named = {*request.filters.uuids, *request.filters.not_uuids}
    if not named:
        return []
    sites = index.sites.items()
    return [name for name, site in sites if any(gpu.uuid in named for gpu in site.node.gpus)]


def _is_crowded(index: Index, name: str, *, pod: SchedulingPod, judge: ClassFilter) -> bool:
    """Say whether those nominated to node *name* may be in the way of *pod* there.

    Those who are being bound are not where each of them could have one of the emptiest GPUs for
    itself and enough of these were left. Others wait for victims, and may keep the whole node.
    """
    others = index.nominated_pods(name, pod)
    if not others or any(other.priority < FIRST for other in others):
        return bool(others)
    first = index.firsts.get(name)
    if first is None or not judge.plainly(first):
        return True
    return first.count < judge.at_once + sum(map(_peak_gpus, others))


def _peak_gpus(pod: SchedulingPod) -> int:
    """Return how many GPUs *pod* holds at one time at most."""
    if not isinstance(pod.wanted, PodClaim):
        return 0
    asks = pod.wanted.request.containers
    return (
        asks[0].count
        if len(asks) == 1
        else peak(asks, [container_request.count for container_request in asks])
    )


def _judge_alone(
    index: Index, pod: SchedulingPod, judge: ClassFilter, *, circumstances: FilterContext
) -> Callable[[str], FailureReason | None]:
    """Return what judges a node for this pod only: without its own promises, beside nominees."""
    terms, forecast = circumstances.terms, circumstances.forecast

    def judge_node(name: str) -> FailureReason | None:
        if index.standings[name].closed:
            return CLOSED
        others = index.nominated_pods(name, pod)
        if pod.uid not in index.entries(name) and all(o.priority >= FIRST for o in others):
            node_class = forecast.node_class(index, name, others, terms=terms)
        else:
            node = node_with_nominees(index, name, pod, terms=terms)
            like = index.standings[name]
            node_class = None if node is None else single_node_class(node, like=like)
        return RESERVED if node_class is None else judge.obstacle(node_class)

    return judge_node


def node_with_nominees(
    index: Index, name: str, pod: SchedulingPod, *, terms: PlacementPolicy
) -> Node | None:
    """Return node *name* as *pod* finds it: its own promises free, that of nominees taken.

    ``None`` where a nominee has no place yet even once all that are ending have gone: then nobody
    of a lower rank may take what it waits for. Who comes before *pod* takes what is free by now if
    that is enough; who comes after it, among equals, waits for what is coming. So the first of
    them needs to wait for its own victims only.
    """
    node = index.node(name, without={pod.uid})
    if node is None:
        return None
    ending = {uid for uid in index.entries(name) if ends(index.pods.get(uid))}
    taken: list[Grant] = []
    for nominee in index.nominated_pods(name, pod):
        if not isinstance(nominee.wanted, PodClaim):
            continue
        now = index.node(name, without={pod.uid, nominee.uid}) or node
        then = index.node(name, without={pod.uid, nominee.uid, *ending}) or node
        first = now if nominee.queue_key < pod.queue_key else _freed_gpus(then, since=now)
        grants = grants_of(with_grants(first, taken), nominee.wanted, terms)
        grants = grants or grants_of(with_grants(then, taken), nominee.wanted, terms)
        if not grants:
            return None
        taken += grants
    return with_grants(node, taken) if taken else node


def _freed_gpus(node: Node, *, since: Node) -> Node:
    """Return *node* with only those GPUs of which less is promised than *since*."""
    pairs = zip(node.gpus, since.gpus, strict=True)
    return replace(node, gpus=tuple(gpu for gpu, before in pairs if gpu is not before))
