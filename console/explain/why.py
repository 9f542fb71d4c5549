"""Explains what a pod got, or what it waits for, from the ledgers as they are now."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from allocator.catalog.vocabularies import VOLCANO, Vocabulary
from allocator.config.namespace_policy import ANY_MODE, NamespacePolicy, isolation_finding
from allocator.ledger.ledger import Ledger, node_for
from allocator.model.allocation import Entry
from allocator.model.decision import Finding, Findings, Reason
from allocator.model.gpu import Node, Snapshot
from allocator.model.request import PodRequest
from allocator.placement.choose import Choice, choose, in_mode, place_on
from allocator.placement.mig import MigOptions
from allocator.placement.mode import ModeOutcome, choose_mode
from allocator.report.feasibility import (
    Feasibility,
    FeasibilityVerdict,
    FleetSearch,
    GrantedDevice,
    outlook,
)
from allocator.report.mode_rows import ModeRow, mode_rows
from allocator.request.admitted import (
    AdmissionMarks,
    AdmittedRequest,
    admission_marks,
    admitted_request,
)
from allocator.request.wording import vocabulary_of
from allocator.scheduling.capacity import largest_free
from console.cluster.assignment import DeviceRow, assigned_devices, is_accounted_elsewhere
from console.cluster.event import EventView
from console.cluster.pod import PodState, PodView, request_of, state_of
from console.cluster.snapshot import ClusterView, entries_in_use
from console.explain.volcano_view import seen_by_scheduler, unseen_finding

MOST_NODES: Final = 12  # nodes that are explained
MOST_FREEING_PODS: Final = 5
MOST_ATTEMPTS: Final = 512  # entries whose removal is tried
# With these reasons a node could not take the pod even if it were empty.
_ELSEWHERE: Final = frozenset({Reason.MODE_UNAVAILABLE, Reason.MODEL_UNAVAILABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """What was read about a pod and its cluster."""

    pod: PodView
    site: ClusterView
    events: tuple[EventView, ...] = ()
    labels: Mapping[str, str] | None = None  # of its namespace; None where unknown
    namespace: NamespacePolicy = ANY_MODE


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """What one node lacks; the pod fits where there is neither reason nor finding."""

    node: str
    closed_reason: str = ""  # why it takes no new pods
    finding: Finding | None = None
    strangers: tuple[Entry, ...] = ()  # use of pods without an entry, where the pod does not fit


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeingPod:
    """A pod whose end would let the explained pod fit on *node*."""

    namespace: str
    pod: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldEntry:
    """The entry of the pod on *node*."""

    node: str
    entry: Entry
    devices: tuple[GrantedDevice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodWhy:
    """What became of a pod's request."""

    facts: PodFacts
    state: PodState
    request: PodRequest | None = None
    findings: tuple[Finding, ...] = ()
    marks: AdmissionMarks = field(default_factory=AdmissionMarks)  # annotations of the pod
    admitted: AdmittedRequest | None = None  # the request as the bind hook reads it
    mode_now: ModeOutcome | None = None  # what admission would decide today
    held: tuple[HeldEntry, ...] = ()
    annotated_devices: tuple[DeviceRow, ...] = ()  # where ledgers may not be read
    # The rest is set only for a pod without a node.
    outlook: Feasibility | None = None
    answers: tuple[NodeAnswer, ...] = ()  # of the nodes that come closest
    node_count: int = 0  # nodes with GPUs
    modes: tuple[ModeRow, ...] = ()  # also those that are never chosen for it
    freeing_pods: tuple[FreeingPod, ...] = ()  # pods whose end would be enough


def why(facts: PodFacts) -> PodWhy:
    """Explain one pod."""
    pod, site = facts.pod, facts.site
    bound = pod.spec.node_name
    vocabularies = site.configuration.vocabularies
    request = request_of(pod, vocabularies)
    names = vocabulary_of(request) if isinstance(request, PodRequest) else VOLCANO
    held = tuple(_held_entries(pod, site, names))
    promised = has_promise(pod, {entry.node for entry in held}, blind=site.blind)
    pod_why = PodWhy(
        facts=facts,
        state=state_of(pod, promised=promised, asking=request is not None),
        held=held,
        annotated_devices=assigned_devices(pod) if site.blind else (),
    )
    if request is None:
        return pod_why
    if isinstance(request, Findings):
        return replace(pod_why, findings=request.all)
    admitted = admitted_request(pod.annotations, request, vocabularies)
    marks = admission_marks(pod.annotations, admitted.vocabulary)
    bind_request = admitted.request
    pod_why = replace(pod_why, request=bind_request, marks=marks, admitted=admitted)
    if site.blind:
        return pod_why
    snapshot = snapshot_without(pod.metadata.uid, site)
    settings = site.configuration.settings
    weak = isolation_finding(facts.namespace, bind_request, admitted.mode)
    mode_now = (
        ModeOutcome(bind_request, Findings(weak))
        if weak is not None
        else choose_mode(bind_request, snapshot, settings=settings, namespace=facts.namespace)
    )
    pod_why = replace(pod_why, mode_now=mode_now)
    if bound or pod.over:
        return pod_why
    return _with_search(pod_why, snapshot, bind_request, refused=weak is not None)


def has_promise(pod: PodView, nodes: Collection[str], *, blind: bool) -> bool:
    """Say whether *pod*, which has entries on *nodes*, has a promise of its GPUs."""
    bound = pod.spec.node_name
    return (bound in nodes if bound else bool(nodes)) or is_accounted_elsewhere(pod, blind=blind)


def _held_entries(pod: PodView, site: ClusterView, names: Vocabulary) -> Iterator[HeldEntry]:
    for name, ledger in site.ledgers.items():
        gpus = {gpu.uuid: gpu for gpu in ledger.node.gpus}
        for entry in entries_in_use(ledger):
            if entry.uid == pod.metadata.uid:
                devices = tuple(
                    GrantedDevice(
                        container=container.name,
                        node=name,
                        gpu=gpus[grant.gpu],
                        grant=grant,
                        names=names,
                    )
                    for container in entry.containers
                    for grant in container.grants
                    if grant.gpu in gpus
                )
                yield HeldEntry(node=name, entry=entry, devices=devices)


def snapshot_without(uid: str, site: ClusterView) -> Snapshot:
    """Return the cluster with what the pod *uid* itself holds counted as free."""
    ledgers = {
        name: replace(ledger, node=node_for(ledger, uid)) if ledger.entry(uid) else ledger
        for name, ledger in site.ledgers.items()
    }
    return replace(site, ledgers=ledgers).snapshot()


def _with_search(
    pod_why: PodWhy, snapshot: Snapshot, request: PodRequest, *, refused: bool
) -> PodWhy:
    """Add the result of a search for a node now; *refused* says that every bind is refused."""
    search = _search(pod_why, snapshot)
    feasibility = outlook(request, search, refused=refused)
    names = _closest_nodes(feasibility.choice, search)
    wanted = request if search.mode is None else msgspec.structs.replace(request, mode=search.mode)
    waits = feasibility.verdict is FeasibilityVerdict.NOT_NOW
    freeing_pods = _freeing_pods(pod_why.facts, names if waits else (), wanted, search=search)
    return replace(
        pod_why,
        outlook=feasibility,
        answers=tuple(
            _node_answer(name, request, search, facts=pod_why.facts, snapshot=snapshot)
            for name in names[:MOST_NODES]
        ),
        node_count=len(names),
        modes=mode_rows(
            request,
            search,
            pod_why.facts.site.configuration.vocabularies,
            namespace=pod_why.facts.namespace,
        ),
        freeing_pods=tuple(freeing_pods),
    )


def _search(pod_why: PodWhy, snapshot: Snapshot) -> FleetSearch:
    """Return the search of the bind hook, which may revise a mode chosen as the best."""
    facts, admitted = pod_why.facts, pod_why.admitted
    mode = None if admitted is None else admitted.mode
    if mode is None and admitted is not None and admitted.request.named_mode is None:
        mode = facts.namespace.only_mode
    return FleetSearch(
        snapshot=seen_by_scheduler(snapshot, facts.pod, facts.site),
        mode=mode,
        policy=facts.site.configuration.policy_for(facts.namespace),
    )


def _closest_nodes(choice: Choice, search: FleetSearch) -> list[str]:
    """Return the nodes with GPUs, those that come closest to serving the pod first."""
    snapshot = search.snapshot
    options = MigOptions(demand=snapshot.demand, geometries=search.policy.geometries, named=None)
    able = {candidate.node for candidate in choice.candidates if candidate.reason is None}
    related = {
        candidate.node for candidate in choice.candidates if candidate.reason not in _ELSEWHERE
    }

    def rank(node: Node) -> tuple[bool, bool, int, str]:
        free = max((largest_free(gpu, options) or 0 for gpu in node.gpus), default=0)
        return node.name not in able, node.name not in related, -free, node.name

    return [node.name for node in sorted(snapshot.nodes.values(), key=rank) if node.gpus]


def _node_answer(
    name: str, request: PodRequest, search: FleetSearch, *, facts: PodFacts, snapshot: Snapshot
) -> NodeAnswer:
    """Return what a node lacks; *snapshot* also has the GPUs that the scheduler does not see."""
    closed_reason = facts.site.closed_reason(name)
    strangers = facts.site.ledgers[name].strangers
    if closed_reason:
        return NodeAnswer(node=name, closed_reason=closed_reason, strangers=strangers)
    choice = choose(search.snapshot, request, mode=search.mode, node=name, policy=search.policy)
    node = snapshot.nodes[name]
    unseen = bool(choice.findings) and len(search.snapshot.nodes[name].gpus) < len(node.gpus)
    if unseen and place_on(node, in_mode(request, search.mode), policy=search.policy):
        return NodeAnswer(node=name, finding=unseen_finding(node, facts.pod), strangers=strangers)
    if not choice.findings:
        return NodeAnswer(node=name)
    return NodeAnswer(node=name, finding=choice.findings[0], strangers=strangers)


def _freeing_pods(
    facts: PodFacts, names: Sequence[str], request: PodRequest, *, search: FleetSearch
) -> Iterator[FreeingPod]:
    """Yield pods whose end alone would be enough, those on the closest nodes first."""
    attempts = freed = 0
    for name in names:
        if facts.site.closed_reason(name):
            continue
        ledger = facts.site.ledgers[name]
        others = (e for e in entries_in_use(ledger) if e.uid != facts.pod.metadata.uid)
        for entry in others:
            attempts += 1
            if attempts > MOST_ATTEMPTS or freed == MOST_FREEING_PODS:
                return
            if _frees(ledger, entry, request, search=search):
                freed += 1
                yield FreeingPod(namespace=entry.namespace, pod=entry.pod, node=name)


def _frees(ledger: Ledger, entry: Entry, request: PodRequest, *, search: FleetSearch) -> bool:
    node = node_for(ledger, entry.uid)
    return place_on(node, request, policy=search.policy, demand=search.snapshot.demand) is not None
