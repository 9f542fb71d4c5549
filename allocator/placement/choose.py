"""The decision: a snapshot and a request become the grants of a pod, or the reasons against it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec

from allocator.config.settings import Prefer
from allocator.families.registry import modes_of
from allocator.mig.geometry import Geometries
from allocator.model.allocation import Assignment
from allocator.model.decision import Candidate, Finding, Reason
from allocator.model.demand import NOTHING_LEARNED, Demand
from allocator.model.gpu import Node, Snapshot
from allocator.model.request import BINPACK, FillPolicies, FillPolicy, Mode, PodRequest
from allocator.model.units import NO_MEMORY
from allocator.placement.advice import shortage_advice
from allocator.placement.candidates import candidates
from allocator.placement.fleet import snapshot_of
from allocator.placement.mig import MigOptions
from allocator.placement.refusals import unservable_findings
from allocator.placement.search import PlanSearch, best, best_options, option_cost, places
from allocator.request.wording import vocabulary_of


class FitVerdict(StrEnum):
    """Whether a request fits."""

    FITS = "fits"
    NOT_NOW = "not-now"  # the hardware would take it if it were empty, or may: not all is known
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPolicy:
    """How an operator wants GPUs to be used, and what a scheduler picked for this pod."""

    prefer: Prefer = Prefer.COST  # decides between modes that both fit
    geometries: Geometries | None = None  # how GPUs may be cut; None: in any way
    fill_policies: FillPolicies = BINPACK  # for pods that name none
    # The scheduler's picks: UUIDs of GPUs, with Volcano's positions on them.
    preferred_positions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was decided about a request."""

    assignment: Assignment | None  # None: it does not fit
    verdict: FitVerdict
    findings: tuple[Finding, ...]  # why it does not fit, and what would help
    candidates: tuple[Candidate, ...]  # the answer of every GPU to every container
    rule: str = ""  # why this mode, where both modes fitted


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """Where a choice looks, and by which rules."""

    nodes: tuple[Node, ...]
    modes: tuple[Mode, ...]
    mig_options: MigOptions
    prefer: Prefer
    packing: FillPolicy  # of nodes
    known: bool  # there are no other nodes, and the inventory of each is fresh

    def search(self, request: PodRequest) -> PlanSearch:
        return PlanSearch(
            places={mode: places(self.nodes, request, mode) for mode in self.modes},
            mig_options=self.mig_options,
            prefer=self.prefer,
            packing=self.packing,
        )


def choose(
    snapshot: Snapshot,
    request: PodRequest,
    *,
    mode: Mode | None = None,
    node: str | None = None,
    policy: PlacementPolicy = PlacementPolicy(),
) -> Choice:
    """Choose GPUs and places for *request* in *snapshot*, on one *node* or on the best of all.

    Without a *mode*, and with none named by the user, the one that withholds least of what is
    free wins, by the same rule as at CREATE. A question without side effects: nothing is
    reserved, and the same snapshot always gives the same answer. A pod's own earlier grants
    must not be in the snapshot.
    """
    wanted = in_mode(request, mode)
    scope = _scope(snapshot, wanted, node=node, policy=policy)
    answers = tuple(
        candidates(scope.nodes, wanted, modes=scope.modes, mig_options=scope.mig_options)
    )
    fitting = best(scope.search(wanted), wanted)
    if fitting is None:
        verdict, findings = _verdict_and_findings(scope, wanted, answers)
        return Choice(assignment=None, verdict=verdict, findings=findings, candidates=answers)
    plan, rule = fitting
    return Choice(
        assignment=plan.assignment,
        verdict=FitVerdict.FITS,
        findings=(),
        candidates=answers,
        rule=rule,
    )


def in_mode(request: PodRequest, mode: Mode | None) -> PodRequest:
    """Return *request* in *mode*, where admission left it with one."""
    return request if mode is None else msgspec.structs.replace(request, mode=mode)


def place_on(
    node: Node,
    request: PodRequest,
    *,
    policy: PlacementPolicy = PlacementPolicy(),
    demand: Demand = NOTHING_LEARNED,
) -> Assignment | None:
    """Choose on *node* alone as :func:`choose` does, without a word on why nothing fits."""
    alone = Snapshot(version="", nodes={node.name: node}, demand=demand)
    plan = best(_scope(alone, request, node=node.name, policy=policy).search(request), request)
    return None if plan is None else plan[0].assignment


def place_in(
    snapshot: Snapshot, request: PodRequest, *, policy: PlacementPolicy = PlacementPolicy()
) -> Assignment | None:
    """Choose among all nodes as :func:`choose` does, without what every GPU answers."""
    plan = best(_scope(snapshot, request, node=None, policy=policy).search(request), request)
    return None if plan is None else plan[0].assignment


def node_candidates(
    node: Node,
    request: PodRequest,
    *,
    policy: PlacementPolicy = PlacementPolicy(),
    demand: Demand = NOTHING_LEARNED,
) -> tuple[Candidate, ...]:
    """Return what every GPU of *node* answers to every container, as :func:`choose` does."""
    alone = Snapshot(version="", nodes={node.name: node}, demand=demand)
    scope = _scope(alone, request, node=node.name, policy=policy)
    return tuple(candidates(scope.nodes, request, modes=scope.modes, mig_options=scope.mig_options))


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRank:
    """How a GPU that takes a container compares with the others of its node."""

    position: int  # of the container in the request
    gpu: str  # UUID
    mode: Mode
    rank: int  # 1 is the first choice
    cost: int  # thousandths of a GPU


def gpu_ranks(
    node: Node,
    request: PodRequest,
    *,
    policy: PlacementPolicy = PlacementPolicy(),
    demand: Demand = NOTHING_LEARNED,
) -> Iterator[GpuRank]:
    """Yield the order in which :func:`place_on` tries the GPUs of *node* for each container.

    Each container is ranked as if it came alone, and each mode by itself.
    """
    alone = Snapshot(version="", nodes={node.name: node}, demand=demand)
    search = _scope(alone, request, node=node.name, policy=policy).search(request)
    for mode, there in search.places.items():
        options = best_options(search.mig_options, mode)
        for place in there:
            for position, container_request in enumerate(request.containers):
                found = options(container_request, place.headrooms)
                for rank, option in enumerate(found, start=1):
                    yield GpuRank(
                        position=position,
                        gpu=option.grant.gpu,
                        mode=mode,
                        rank=rank,
                        cost=option_cost(option, place.headrooms),
                    )


def _scope(
    snapshot: Snapshot, request: PodRequest, *, node: str | None, policy: PlacementPolicy
) -> _Scope:
    names = sorted(snapshot.nodes) if node is None else [node]
    nodes = tuple(snapshot.nodes[name] for name in names if name in snapshot.nodes)
    there = node is not None and bool(nodes)
    packings = request.fill_policies.with_defaults(policy.fill_policies)
    return _Scope(
        nodes=nodes,
        modes=modes_of(request),
        mig_options=MigOptions(
            demand=snapshot.demand,
            geometries=policy.geometries,
            named=request.profile,
            packing=packings.gpu or FillPolicy.BINPACK,
            preferred_positions=policy.preferred_positions,
        ),
        prefer=policy.prefer,
        packing=packings.node or FillPolicy.BINPACK,
        known=(snapshot.complete or there) and all(one.fresh for one in nodes),
    )


def _verdict_and_findings(
    scope: _Scope, request: PodRequest, answers: Sequence[Candidate]
) -> tuple[FitVerdict, tuple[Finding, ...]]:
    """Say whether *request* would fit if nothing else ran, and what to do either way."""
    empty = replace(scope, nodes=tuple(map(empty_node, scope.nodes)))
    if best(empty.search(request), request) is not None:
        return FitVerdict.NOT_NOW, (_advice(scope, request, answers, later=True),)
    verdict = FitVerdict.NEVER if scope.known else FitVerdict.NOT_NOW
    if not any(node.gpus for node in scope.nodes):
        return verdict, (_no_gpu(),)
    fleet = snapshot_of(scope.nodes, version="", complete=scope.known)
    stable = unservable_findings(request, fleet.offers, mixed=fleet.mixed)
    return verdict, stable or (_advice(empty, request, answers, later=False),)


def empty_node(node: Node) -> Node:
    """Return *node* as it would be with nothing running and nothing broken."""
    empty = tuple(
        replace(gpu, healthy=True, foreign=NO_MEMORY, grants=(), instances=()) for gpu in node.gpus
    )
    return replace(node, gpus=empty)


def _advice(
    scope: _Scope, request: PodRequest, answers: Sequence[Candidate], *, later: bool
) -> Finding:
    search = scope.search(request)
    headrooms = [place.headrooms for there in search.places.values() for place in there]
    if not headrooms:
        return _excluded_finding(request, answers)
    return shortage_advice(
        request,
        headrooms,
        mig_options=scope.mig_options,
        fits=lambda smaller: best(search, smaller) is not None,
        later=later,
    )


def _excluded_finding(request: PodRequest, answers: Sequence[Candidate]) -> Finding:
    """Say why every GPU is out of the question: broken, or excluded by its UUID."""
    if any(candidate.reason is Reason.UNHEALTHY for candidate in answers):
        return Finding(
            reason=Reason.UNHEALTHY,
            place="pod",
            field="metadata.annotations",
            what="every GPU that qualifies is unhealthy",
            remedy="wait until one recovers",
        )
    names, filters = vocabulary_of(request), request.filters
    key = names.use_uuids if filters.uuids else names.not_uuids
    what = f"{key} names no GPU here" if filters.uuids else f"{key} excludes every GPU here"
    return Finding(
        reason=Reason.MODEL_UNAVAILABLE,
        place="pod",
        field=f'metadata.annotations["{key}"]',
        what=what,
        remedy=f"name the UUID of a GPU that exists, or remove {key}"
        if filters.uuids
        else f"name fewer GPUs, or remove {key}",
    )


def _no_gpu() -> Finding:
    return Finding(
        reason=Reason.TOO_MANY,
        place="pod",
        field="spec",
        what="no GPU is known here",
        remedy="wait until a node reports its GPUs, or choose another node",
    )
