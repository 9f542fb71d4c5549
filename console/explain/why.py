"""Why a pod has what it has, or what it waits for: recomputed on the ledgers as they are now."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from allocator.config.settings import Prefer
from allocator.ledger.ledger import Ledger, node_for
from allocator.model.allocation import Entry
from allocator.model.decision import Finding, Findings, Reason
from allocator.model.gpu import Node, Snapshot
from allocator.model.request import PodRequest
from allocator.placement.choose import Choice, choose, place_on
from allocator.placement.mig import MigOptions
from allocator.placement.mode import ModeOutcome, choose_mode
from allocator.report.feasibility import (
    Feasibility,
    FeasibilityVerdict,
    FleetSearch,
    GrantedDevice,
    outlook,
)
from allocator.request.admitted import (
    AdmissionMarks,
    AdmittedRequest,
    admission_marks,
    admitted_request,
)
from console.cluster.assignment import DeviceRow, assigned_devices, is_accounted_elsewhere
from console.cluster.event import EventView
from console.cluster.pod import PodState, PodView, request_of, state_of
from console.cluster.snapshot import ClusterView, entries_in_use, largest_free

MOST_NODES: Final = 12  # told one by one
MOST_ENDINGS: Final = 5
MOST_ATTEMPTS: Final = 512  # promises that are imagined away
# What tells that a node has nothing to do with the pod, however empty it were.
_ELSEWHERE: Final = frozenset({Reason.MODE_UNAVAILABLE, Reason.MODEL_UNAVAILABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """What is known about a pod: ``labels`` of its namespace are ``None`` where unknown."""

    pod: PodView
    site: ClusterView
    events: tuple[EventView, ...] = ()
    labels: Mapping[str, str] | None = None
    prefer: Prefer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """What one node lacks: why it is ``out`` of service, or a finding; neither where it fits."""

    node: str
    out: str = ""
    finding: Finding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeingPod:
    """A pod on whose end the one in question would fit on *node*."""

    namespace: str
    pod: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldEntry:
    """What the pod has on *node*, or has reserved there."""

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
    now: ModeOutcome | None = None  # what admission would decide today
    held: tuple[HeldEntry, ...] = ()
    carried: tuple[DeviceRow, ...] = ()  # by the pod's annotations, where ledgers are unreadable
    # The rest is set for a pod without a node only.
    outlook: Feasibility | None = None
    answers: tuple[NodeAnswer, ...] = ()  # of the nodes that come closest
    nodes: int = 0  # how many have GPUs
    endings: tuple[FreeingPod, ...] = ()  # pods whose end would be enough


def why(facts: PodFacts) -> PodWhy:
    """Explain one pod."""
    pod, site = facts.pod, facts.site
    held = tuple(_held_entries(pod, site))
    bound = pod.spec.node_name
    known = site.configuration.vocabularies
    request = request_of(pod, known)
    promised = has_promise(pod, {one.node for one in held}, blind=site.blind)
    pod_why = PodWhy(
        facts=facts,
        state=state_of(pod, promised=promised or request is None),
        held=held,
        carried=assigned_devices(pod) if site.blind else (),
    )
    if request is None:
        return pod_why
    if isinstance(request, Findings):
        return replace(pod_why, findings=request.all)
    admitted = admitted_request(pod.annotations, request, known)
    marks = admission_marks(pod.annotations, admitted.vocabulary)
    first = admitted.request
    pod_why = replace(pod_why, request=first, marks=marks, admitted=admitted)
    if site.blind:
        return pod_why
    snapshot = _snapshot_without(pod, site)
    settings = site.configuration.settings
    now = choose_mode(first, snapshot, settings=settings, prefer=facts.prefer)
    pod_why = replace(pod_why, now=now)
    return pod_why if bound or pod.over else _with_search(pod_why, snapshot, first)


def has_promise(pod: PodView, nodes: Collection[str], *, blind: bool) -> bool:
    """Say whether *pod*, which has entries on *nodes*, is promised what it has, or may be."""
    bound = pod.spec.node_name
    return (bound in nodes if bound else bool(nodes)) or is_accounted_elsewhere(pod, blind=blind)


def _held_entries(pod: PodView, site: ClusterView) -> Iterator[HeldEntry]:
    for name, ledger in site.ledgers.items():
        gpus = {gpu.uuid: gpu for gpu in ledger.node.gpus}
        for entry in entries_in_use(ledger):
            if entry.uid == pod.metadata.uid:
                devices = tuple(
                    GrantedDevice(container=held.name, node=name, gpu=gpus[grant.gpu], grant=grant)
                    for held in entry.containers
                    for grant in held.grants
                    if grant.gpu in gpus
                )
                yield HeldEntry(node=name, entry=entry, devices=devices)


def _snapshot_without(pod: PodView, site: ClusterView) -> Snapshot:
    """Return the cluster as the pod finds it: what is promised to itself counts as free."""
    uid = pod.metadata.uid
    ledgers = {
        name: replace(ledger, node=node_for(ledger, uid)) if ledger.entry(uid) else ledger
        for name, ledger in site.ledgers.items()
    }
    return replace(site, ledgers=ledgers).snapshot()


def _with_search(pod_why: PodWhy, snapshot: Snapshot, request: PodRequest) -> PodWhy:
    """Add what a search for a place comes to now."""
    search = _search(pod_why, snapshot)
    feasibility = outlook(request, search)
    names = _closest_nodes(feasibility.choice, search)
    site = pod_why.facts.site
    wanted = request if search.mode is None else msgspec.structs.replace(request, mode=search.mode)
    waits = feasibility.verdict is FeasibilityVerdict.NOT_NOW
    return replace(
        pod_why,
        outlook=feasibility,
        answers=tuple(
            _node_answer(name, request, search, site=site) for name in names[:MOST_NODES]
        ),
        nodes=len(names),
        endings=tuple(_freeing_pods(pod_why.facts, names, wanted, search=search)) if waits else (),
    )


def _search(pod_why: PodWhy, snapshot: Snapshot) -> FleetSearch:
    """Return the rules of the Binding: a mode that was the best at CREATE may be revised."""
    facts = pod_why.facts
    return FleetSearch(
        snapshot=snapshot,
        mode=None if pod_why.admitted is None else pod_why.admitted.mode,
        terms=facts.site.configuration.policy_for(facts.prefer),
    )


def _closest_nodes(choice: Choice, search: FleetSearch) -> list[str]:
    """Return the nodes that have GPUs, those first that come closest to serving the pod."""
    snapshot = search.snapshot
    options = MigOptions(demand=snapshot.demand, geometries=search.terms.geometries, named=None)
    able = {one.node for one in choice.candidates if one.reason is None}
    related = {one.node for one in choice.candidates if one.reason not in _ELSEWHERE}

    def rank(node: Node) -> tuple[bool, bool, int, str]:
        left = max((largest_free(gpu, options) or 0 for gpu in node.gpus), default=0)
        return node.name not in able, node.name not in related, -left, node.name

    return [node.name for node in sorted(snapshot.nodes.values(), key=rank) if node.gpus]


def _node_answer(
    name: str, request: PodRequest, search: FleetSearch, *, site: ClusterView
) -> NodeAnswer:
    out = site.closed_reason(name)
    if out:
        return NodeAnswer(node=name, out=out)
    choice = choose(search.snapshot, request, mode=search.mode, node=name, terms=search.terms)
    return NodeAnswer(node=name, finding=choice.findings[0] if choice.findings else None)


def _freeing_pods(
    facts: PodFacts, names: Sequence[str], request: PodRequest, *, search: FleetSearch
) -> Iterator[FreeingPod]:
    """Yield other pods, on the closest nodes first, each of whose end alone would be enough."""
    attempts = freed = 0
    for name in names:
        ledger, out = facts.site.ledgers[name], facts.site.closed_reason(name)
        others = (e for e in entries_in_use(ledger) if e.uid != facts.pod.metadata.uid)
        for entry in () if out else others:
            attempts += 1
            if attempts > MOST_ATTEMPTS or freed == MOST_ENDINGS:
                return
            if _frees(ledger, entry, request, search=search):
                freed += 1
                yield FreeingPod(namespace=entry.namespace, pod=entry.pod, node=name)


def _frees(ledger: Ledger, entry: Entry, request: PodRequest, *, search: FleetSearch) -> bool:
    node = node_for(ledger, entry.uid)
    return place_on(node, request, terms=search.terms, demand=search.snapshot.demand) is not None
