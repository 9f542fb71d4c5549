"""Modes: which mode a pod leaves admission with, by the share of a GPU each would withhold."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, assert_never

import msgspec

from allocator.catalog.boards import bare_name
from allocator.config.settings import FleetScope, NodeAgent, Prefer, Settings, expected_kinds
from allocator.mig.profiles import smallest_sufficient
from allocator.model.decision import Finding, ModeChoice, ModeCost, ModeSource
from allocator.model.gpu import GpuKind, Snapshot
from allocator.model.request import ContainerRequest, Mode, PodRequest
from allocator.model.units import WHOLE_GPU
from allocator.model.value import Value
from allocator.placement.fit import hardware, holds, peak, soft_cost
from allocator.placement.refusals import ambiguous_percent, impossible_findings, unservable_findings

Decided = tuple[Mode, ModeSource, str]  # a mode, how it came about, and the rule in words
_MIG: Final = Mode.MIG  # an enum's attribute is not found as fast as a name
_MEMORY_ONLY: Final = Mode.MEMORY_ONLY
CLOSE: Final = 100  # thousandths of a GPU within which the stronger isolation wins


class ModeDecision(Value, frozen=True):
    """A mode, and what a person should hear about it."""

    choice: ModeChoice
    warnings: tuple[Finding, ...] = ()


class ModeOutcome(Value, frozen=True):
    """What admission makes of *request*: a mode, or ``None`` and the findings that refuse it."""

    request: PodRequest
    chosen: ModeDecision | None = None
    findings: tuple[Finding, ...] = ()


def choose_mode(
    request: PodRequest,
    snapshot: Snapshot,
    *,
    settings: Settings,
    prefer: Prefer | None = None,
    earlier: ModeChoice | None = None,
) -> ModeOutcome:
    """Choose the mode with which *request* leaves admission on the fleet of *snapshot*.

    *prefer* is the preference of its namespace. What an *earlier* pass chose stays. The upstream
    plugin knows no percentages, so where it serves the nodes they become MiB.
    """
    offers = expected_kinds(snapshot.offers, settings.node_templates)
    if settings.node_agent is NodeAgent.UPSTREAM:
        translated = translated_percent(request, offers)
        if isinstance(translated, Finding):
            return ModeOutcome(request=request, findings=(translated,))
        request = translated
    if earlier is not None:
        return ModeOutcome(request=request, chosen=ModeDecision(choice=earlier))
    if prefer is not None:
        settings = msgspec.structs.replace(settings, prefer=prefer)
    found = mode_for(
        request, offers, settings=settings, complete=snapshot.complete, mixed=snapshot.mixed
    )
    if isinstance(found, tuple):
        return ModeOutcome(request=request, findings=found)
    return ModeOutcome(request=request, chosen=found)


def explain_mode(choice: ModeChoice) -> str:
    """Return all that decided a mode, as a sentence."""
    if not choice.bids:
        return f"{choice.mode}: {choice.why}"
    withheld = ", ".join(map(_bid_text, choice.bids))
    return f"{choice.mode}: {choice.why}; cost in thousandths of a GPU: {withheld}"


def _bid_text(bid: ModeCost) -> str:
    shape = f"{' + '.join(bid.profiles)} on " if bid.profiles else ""
    return f"{bid.mode} {bid.cost} ({shape}{bare_name(bid.model)})"


def mode_for(
    request: PodRequest,
    offers: Mapping[GpuKind, int],
    *,
    settings: Settings,
    complete: bool,
    mixed: bool = False,
) -> ModeDecision | tuple[Finding, ...]:
    """Choose the mode of *request* on GPUs as if they were empty, or say why none can serve.

    Depends on what kinds of GPU exist and never on what is free, so that replicas agree and a
    second pass changes nothing. Refuses only where the fleet is closed and its inventory
    *complete*, or where no GPU that we ever heard of would do; *mixed* says that some node
    carries several kinds in one mode.
    """
    named = _named_mode(request)
    bids = _bids(request, offers)
    if bids and (named is None or named[0] in bids):
        return _decision(bids, named or _best_mode(bids, settings.prefer))
    if impossible := impossible_findings(request, offers):
        return impossible
    if not offers or not complete:
        rule = "not every node's inventory is known yet" if offers else "no GPU inventory yet"
        return ModeDecision(choice=_default(named, settings, rule))
    findings = unservable_findings(request, offers, mixed=mixed)
    if findings and settings.fleet is FleetScope.CLOSED:
        return findings
    return ModeDecision(
        choice=_default(named, settings, "no single kind of GPU can serve it"), warnings=findings
    )


def translated_percent(request: PodRequest, offers: Mapping[GpuKind, int]) -> PodRequest | Finding:
    """Return *request* with MiB for percentages, or ask for MiB where GPUs differ in memory.

    For nodes that only the upstream plugin serves. With no GPU known the request stays as it is.
    """
    able = [kind for kind in offers if _may_serve(kind, request)]
    totals = sorted({kind.memory for kind in able})
    first = next(
        (
            container_request
            for container_request in request.containers
            if container_request.percent is not None
        ),
        None,
    )
    if first is None or not totals:
        return request
    if len(totals) > 1:
        return ambiguous_percent(request, first, able)
    containers = tuple(
        _in_mib(container_request, able, request.profile)
        for container_request in request.containers
    )
    return msgspec.structs.replace(request, containers=containers)


def weigh(costs: Mapping[Mode, int], prefer: Prefer) -> tuple[Mode, str]:
    """Return the better of two modes that both serve, by their *costs*, and the rule in words."""
    mig, soft = costs[Mode.MIG], costs[Mode.HAMI_CORE]
    match prefer:
        case Prefer.ISOLATION:
            return Mode.MIG, "isolation is preferred, and mig isolates in hardware"
        case Prefer.DENSITY:
            least = Mode.MIG if mig <= soft else Mode.HAMI_CORE
            return least, "density is preferred, and it costs least"
        case Prefer.COST:
            if mig <= soft:
                return Mode.MIG, "it costs no more and isolates in hardware"
            if mig - soft <= CLOSE:
                return Mode.MIG, f"it costs at most {CLOSE} more and isolates in hardware"
            return Mode.HAMI_CORE, f"it costs over {CLOSE} less"
        case _:
            assert_never(prefer)


def _may_serve(kind: GpuKind, request: PodRequest) -> bool:
    wanted = request.named_mode
    in_mode = wanted is None or hardware(wanted) is kind.mode
    return in_mode and request.filters.model_fits(kind.model)


def _in_mib(
    container_request: ContainerRequest, kinds: Sequence[GpuKind], named: str | None
) -> ContainerRequest:
    """Translate so that the MIG profile meant by the percentage remains sufficient."""
    if container_request.percent is None:
        return container_request
    rungs = (smallest_sufficient(container_request, kind.board, named) for kind in kinds)
    limits = [profile.memory for profile in rungs if profile is not None]
    memory = min([container_request.memory_on(kinds[0].memory), *limits])
    return msgspec.structs.replace(container_request, memory=memory, percent=None)


def _named_mode(request: PodRequest) -> Decided | None:
    """Return the mode that the pod or its vocabulary leaves no choice about."""
    named = request.named_mode
    if named is None:
        return None
    if named is _MEMORY_ONLY:
        return named, ModeSource.ONLY, "the request's resource names allow no other mode"
    return named, ModeSource.NAMED, "the pod names it"


def _best_mode(bids: Mapping[Mode, ModeCost], prefer: Prefer) -> Decided:
    if len(bids) == 1:
        return next(iter(bids)), ModeSource.ONLY, "no other mode can serve it here"
    mode, why = weigh({mode: bid.cost for mode, bid in bids.items()}, prefer)
    return mode, ModeSource.BEST, why


def _decision(bids: Mapping[Mode, ModeCost], decided: Decided) -> ModeDecision:
    mode, source, why = decided
    ranked = (bids[mode], *[bid for other, bid in bids.items() if other is not mode])
    return ModeDecision(choice=ModeChoice(mode=mode, source=source, why=why, bids=ranked))


def _default(named: Decided | None, settings: Settings, why: str) -> ModeChoice:
    """Return the mode where nothing known serves: a better inventory may still revise it."""
    mode, source, _ = named or (settings.default_mode, ModeSource.BEST, "")
    return ModeChoice(mode=mode, source=source, why=why)


def _bids(request: PodRequest, offers: Mapping[GpuKind, int]) -> dict[Mode, ModeCost]:
    """Return the least bid of each mode that could serve, whichever mode the pod names."""
    filters = request.filters
    picky = bool(filters.models or filters.not_models)
    soft = Mode.MEMORY_ONLY if request.mode is Mode.MEMORY_ONLY else Mode.HAMI_CORE
    best: dict[Mode, tuple[int, str, GpuKind]] = {}
    for offer, count in offers.items():
        if picky and not filters.model_fits(offer.model):
            continue
        hard = offer.mode is _MIG
        cost = _cost(request, offer, count, each=_hard_cost if hard else _soft_cost)
        if cost is None:
            continue
        mode = _MIG if hard else soft
        held = best.get(mode)
        # The name breaks ties, so that the order in which offers come decides nothing.
        if held is None or cost < held[0] or (cost == held[0] and offer.model < held[1]):
            best[mode] = cost, offer.model, offer
    return {m: _bid(request, m, offer=offer, cost=cost) for m, (cost, _, offer) in best.items()}


_Each = Callable[[PodRequest, ContainerRequest, GpuKind], int | None]


def _cost(request: PodRequest, offer: GpuKind, count: int, *, each: _Each) -> int | None:
    """Return the thousandths of a GPU that *count* of a kind would withhold, if they serve."""
    asks = request.containers
    if len(asks) == 1:  # nearly every pod
        number = asks[0].count
        cost = each(request, asks[0], offer) if number <= count else None
        return None if cost is None else number * cost
    costs: list[int] = []
    for container_request in asks:
        cost = each(request, container_request, offer) if container_request.count <= count else None
        if cost is None:
            return None
        costs.append(container_request.count * cost)
    return peak(asks, costs) if holds(request, offer, count) else None


def _hard_cost(
    request: PodRequest, container_request: ContainerRequest, offer: GpuKind
) -> int | None:
    if request.mode is _MEMORY_ONLY:
        return None
    profile = smallest_sufficient(container_request, offer.board, request.profile)
    return None if profile is None else profile.cost


def _soft_cost(
    request: PodRequest, container_request: ContainerRequest, offer: GpuKind
) -> int | None:
    total = offer.memory
    memory = container_request.memory_on(total)
    if memory > total or container_request.cores > WHOLE_GPU or request.profile is not None:
        return None
    return soft_cost(memory, container_request.cores, total=total)


def _bid(request: PodRequest, mode: Mode, *, offer: GpuKind, cost: int) -> ModeCost:
    if mode is not _MIG:
        return ModeCost(mode=mode, cost=cost, model=offer.model)
    rungs = [
        smallest_sufficient(container_request, offer.board, request.profile)
        for container_request in request.containers
    ]
    profiles = tuple([profile.profile.name for profile in rungs if profile is not None])
    return ModeCost(mode=mode, cost=cost, model=offer.model, profiles=profiles)
