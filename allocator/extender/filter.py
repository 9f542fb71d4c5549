"""Filter: which of many nodes take a pod, and why the others do not.

Nodes are judged by class, once for each, except the few whose answer is specific to the pod.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, filterfalse

import msgspec

from allocator.extender.equivalence import single_node_class
from allocator.extender.equivalence_filter import ClassFilter, ClassFilterCache
from allocator.extender.index import Index
from allocator.extender.pod import BINDING_PRIORITY, SchedulingPod
from allocator.extender.projection import Projection, grants_of, is_ending
from allocator.extender.reasons import (
    CLOSED,
    LASTING,
    NO_INVENTORY,
    RESERVED,
    TOO_FEW_ON_NUMA,
    UNREADABLE,
    FailureReason,
)
from allocator.families.registry import modes_of
from allocator.ledger.assign import PodClaim
from allocator.model.allocation import Grant
from allocator.model.decision import Findings, Reason
from allocator.model.gpu import Node
from allocator.model.request import ContainerRequest, Mode, PodRequest
from allocator.model.usage import with_grants
from allocator.placement.candidates import exclusion
from allocator.placement.choose import PlacementPolicy, in_mode
from allocator.placement.fit import headroom, peak, takes

GroupFailures = Callable[[Index, SchedulingPod, Sequence[str]], Mapping[str, FailureReason]]


def no_group_failures(
    _index: Index, _pod: SchedulingPod, _names: Sequence[str]
) -> Mapping[str, FailureReason]:
    """Return that no node is out of the question because of groups."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterContext:
    """What an answer depends on besides pod and nodes."""

    policy: PlacementPolicy
    own_nodes: Collection[str] = ()  # nodes where this pod may have an entry, which counts as free
    closed_world: bool = True  # a node without inventory has no GPUs
    projection: Projection = field(default_factory=Projection)  # kept from question to question
    filters: ClassFilterCache = field(default_factory=ClassFilterCache)  # likewise
    # Says of each of some nodes why it does not take the pod because of groups of pods, if so.
    group_failures: GroupFailures = no_group_failures


@dataclass(frozen=True, slots=True)
class FilterResult:
    """The answer, both parts in the order of the question."""

    fitting: list[str]
    failures: dict[str, FailureReason]  # by name of each node that does not take the pod


def filter_nodes(
    index: Index, pod: SchedulingPod, names: Sequence[str], *, context: FilterContext
) -> FilterResult:
    """Return which of *names* take *pod*; one that asks for no GPU fits everywhere."""
    claim = pod.claim
    if claim is None:
        return FilterResult(list(names), {})
    if isinstance(claim, Findings):
        return FilterResult([], dict.fromkeys(names, UNREADABLE))
    request = in_mode(claim.request, claim.mode)
    # Nodes of one class differ in their NUMA nodes: what one lacks says nothing of the others.
    anywhere = msgspec.structs.replace(request, one_numa=False) if request.one_numa else request
    failures = _failures_by_class(index, anywhere, names=names, context=context)
    class_filter = context.filters.filter_for(anywhere, context.policy, index.snapshot.demand)
    failure_of = _individual_judge(index, pod, class_filter, context=context)
    for name in _nodes_judged_individually(index, pod, class_filter, names=names, context=context):
        failure = failure_of(name)
        if failure is not None:
            failures[name] = failure
        else:
            failures.pop(name, None)
    if request.one_numa:
        taking = filterfalse(failures.__contains__, names)
        failures |= _failures_by_numa(index, request, taking, uid=pod.uid)
    for name, failure in context.group_failures(index, pod, names).items():
        failures.setdefault(name, failure)
    fitting = list(filterfalse(failures.__contains__, names))
    return FilterResult(fitting, failures)


def _failures_by_class(
    index: Index, request: PodRequest, *, names: Sequence[str], context: FilterContext
) -> dict[str, FailureReason]:
    """Return why nodes fail, by their classes, as if the pod named no GPU."""
    unknown = NO_INVENTORY if context.closed_world and index.all_nodes_known else None
    node_class = index.node_classes.get
    if request.filters.uuids:  # nodes that have one of these GPUs are judged individually
        without_named_gpu = LASTING[Reason.MODEL_UNAVAILABLE]
        failures = ((name, without_named_gpu if node_class(name) else unknown) for name in names)
        return {name: verdict for name, verdict in failures if verdict is not None}
    filters = replace(request.filters, not_uuids=())
    unnamed = request
    if filters != request.filters:
        unnamed = msgspec.structs.replace(request, filters=filters)
    demand = index.snapshot.demand
    class_filter = context.filters.filter_for(unnamed, context.policy, demand, unknown=unknown)
    emptiest = list(map(index.emptiest_groups.get, names))
    doubtful = {first for first in set(emptiest) if not class_filter.takes_at_first_glance(first)}
    if not doubtful:  # of thousands of nodes that take the pod, none is looked at by itself
        return {}
    asked = list(compress(names, map(doubtful.__contains__, emptiest)))
    verdicts = map(class_filter.failure_reason, map(node_class, asked))
    return {name: why for name, why in zip(asked, verdicts, strict=True) if why is not None}


def _failures_by_numa(
    index: Index, request: PodRequest, taking: Iterable[str], *, uid: str
) -> dict[str, FailureReason]:
    """Return which of the nodes *taking* pod *uid* have too few GPUs for it on one NUMA node.

    Equal nodes may differ in that, so each is looked at. Each container is looked at by itself, and
    instances of cut GPUs are left to the bind.
    """
    several = [container for container in request.containers if container.count > 1]
    return {
        name: TOO_FEW_ON_NUMA
        for name in (taking if several else ())
        if (node := index.node(name, without={uid})) is not None
        and not all(_has_numa_for(container, node, request) for container in several)
    }


def _has_numa_for(container: ContainerRequest, node: Node, request: PodRequest) -> bool:
    modes = modes_of(request)
    numas = Counter(
        gpu.numa
        for gpu in node.gpus
        if exclusion(gpu, request, modes) is None
        and (gpu.mode is Mode.MIG or takes(container, headroom(gpu)))
    )
    return max(numas.values(), default=0) >= container.count


def _nodes_judged_individually(
    index: Index,
    pod: SchedulingPod,
    class_filter: ClassFilter,
    *,
    names: Sequence[str],
    context: FilterContext,
) -> Iterable[str]:
    """Return the nodes of *names* whose answer is specific to this pod.

    It has an entry there, it names one of their GPUs, or pods nominated there may be in its way.
    """
    specific = {*context.own_nodes, *_nodes_with_named_gpus(index, class_filter.request)}
    if not specific and not index.nominations:
        return ()
    asked = set(names) & index.node_infos.keys()
    nominated = asked.intersection(index.nominations)
    crowded = [
        name
        for name in nominated
        if _nominations_may_conflict(index, name, pod=pod, class_filter=class_filter)
    ]
    return (asked & specific).union(crowded)


def _nodes_with_named_gpus(index: Index, request: PodRequest) -> list[str]:
    """Return the nodes that have a GPU which *request* asks for or rejects by UUID."""
    named = {*request.filters.uuids, *request.filters.not_uuids}
    if not named:
        return []
    infos = index.node_infos.items()
    return [name for name, site in infos if any(gpu.uuid in named for gpu in site.node.gpus)]


def _nominations_may_conflict(
    index: Index, name: str, *, pod: SchedulingPod, class_filter: ClassFilter
) -> bool:
    """Say whether pods nominated to node *name* may be in the way of *pod* there.

    Pods that are being bound are not, where each could get emptiest GPUs of its own and enough of
    them would be left. Any other nominated pod waits for victims, and may reserve the whole node.
    """
    others = index.nominated_pods(name, pod)
    if not others or any(other.priority < BINDING_PRIORITY for other in others):
        return bool(others)
    emptiest = index.emptiest_groups.get(name)
    if emptiest is None or not class_filter.takes_at_first_glance(emptiest):
        return True
    return emptiest.count < class_filter.peak_count + sum(map(_peak_gpus, others))


def _peak_gpus(pod: SchedulingPod) -> int:
    """Return how many GPUs *pod* holds at one time at most."""
    if not isinstance(pod.claim, PodClaim):
        return 0
    container_requests = pod.claim.request.containers
    return (
        container_requests[0].count
        if len(container_requests) == 1
        else peak(
            container_requests,
            [container_request.count for container_request in container_requests],
        )
    )


def _individual_judge(
    index: Index, pod: SchedulingPod, class_filter: ClassFilter, *, context: FilterContext
) -> Callable[[str], FailureReason | None]:
    """Return a function that judges one node for this pod.

    Its own entry there counts as free, and room for nominated pods as taken.
    """
    policy, projection = context.policy, context.projection

    def judge_node(name: str) -> FailureReason | None:
        if index.node_classes[name].closed:
            return CLOSED
        others = index.nominated_pods(name, pod)
        if pod.uid not in index.entries(name) and all(
            o.priority >= BINDING_PRIORITY for o in others
        ):
            node_class = projection.node_class(index, name, others, policy=policy)
        else:
            node = node_with_nominations(index, name, pod, policy=policy)
            like = index.node_classes[name]
            node_class = None if node is None else single_node_class(node, like=like)
        return RESERVED if node_class is None else class_filter.failure_reason(node_class)

    return judge_node


def node_with_nominations(
    index: Index, name: str, pod: SchedulingPod, *, policy: PlacementPolicy
) -> Node | None:
    """Return node *name* as *pod* finds it: its own entry free, room for nominated pods taken.

    ``None`` where a nominated pod finds no room even once all ending pods are gone: then no pod of
    lower rank may take anything there. A nominated pod before *pod* in the queue takes what is free
    now if that is enough. One of equal priority behind it gets what ending pods will free, so that
    the first of them waits for its own victims only.
    """
    node = index.node(name, without={pod.uid})
    if node is None:
        return None
    ending = {uid for uid in index.entries(name) if is_ending(index.pods.get(uid))}
    taken: list[Grant] = []
    for nominee in index.nominated_pods(name, pod):
        if not isinstance(nominee.claim, PodClaim):
            continue
        now = index.node(name, without={pod.uid, nominee.uid}) or node
        once_ended = index.node(name, without={pod.uid, nominee.uid, *ending}) or node
        first = now if nominee.queue_key < pod.queue_key else _freed_gpus(once_ended, since=now)
        grants = grants_of(with_grants(first, taken), nominee.claim, policy)
        grants = grants or grants_of(with_grants(once_ended, taken), nominee.claim, policy)
        if not grants:
            return None
        taken += grants
    return with_grants(node, taken) if taken else node


def _freed_gpus(node: Node, *, since: Node) -> Node:
    """Return *node* with only the GPUs whose grants differ from those of *since*."""
    pairs = zip(node.gpus, since.gpus, strict=True)
    return replace(node, gpus=tuple(gpu for gpu, before in pairs if gpu is not before))
