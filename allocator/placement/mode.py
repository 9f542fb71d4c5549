"""Modes: which mode a pod leaves admission with, by the share of a GPU each would withhold."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, assert_never

import msgspec

from allocator.catalog.boards import bare_name
from allocator.catalog.keys import MIN_ISOLATION_KEY
from allocator.config.namespace_policy import ANY_MODE, NamespacePolicy, isolation_finding
from allocator.config.node_templates import expected_kinds
from allocator.config.settings import FleetScope, Prefer, Settings
from allocator.families.registry import family_of, modes_of, usual_mode
from allocator.mig.nominal_sizes import missed_profile
from allocator.mig.profiles import smallest_sufficient
from allocator.model.decision import (
    Finding,
    Findings,
    ModeChoice,
    ModeCost,
    ModeSource,
    findings_of,
)
from allocator.model.gpu import GpuKind, Snapshot
from allocator.model.request import VOCABULARY_MODES, ContainerRequest, Mode, PodRequest
from allocator.model.units import WHOLE_GPU, MiB
from allocator.model.value import Value
from allocator.placement.fit import hardware, holds, peak, soft_cost
from allocator.placement.refusals import ambiguous_percent, impossible_findings, unservable_findings
from allocator.request.wording import asked_memory, memory_text, place_of, vocabulary_of

_Reasoned = tuple[Mode, ModeSource, str]  # a mode, how it came about, and the rule in words
PEERS: Final = "a container asks for several GPUs, and MIG instances cannot exchange data directly"
CLOSE: Final = 100  # thousandths of a GPU within which the stronger isolation wins


class ModeOutcome(Value, frozen=True):
    """What admission makes of a request."""

    request: PodRequest  # with MiB for percentages where the upstream plugin serves the nodes
    decision: ModeChoice | Findings  # findings: it is refused


def choose_mode(
    request: PodRequest,
    snapshot: Snapshot,
    *,
    settings: Settings,
    namespace: NamespacePolicy = ANY_MODE,
    earlier: ModeChoice | None = None,
) -> ModeOutcome:
    """Choose the mode with which *request* leaves admission on the fleet of *snapshot*.

    What an *earlier* pass chose stays, unless it is weaker than the *namespace* demands. The
    upstream plugin knows no percentages, so where it serves the nodes they become MiB.
    """
    weak = isolation_finding(namespace, request, None if earlier is None else earlier.mode)
    if weak is not None:
        return ModeOutcome(request, Findings(weak))
    if earlier is None and namespace.only_mode and request.named_mode is None:
        return _demanded_mode(request, snapshot, settings=settings, mode=namespace.only_mode)
    if namespace.prefer is not None:
        settings = msgspec.structs.replace(settings, prefer=namespace.prefer)
    return _chosen_mode(request, snapshot, settings=settings, earlier=earlier)


def _demanded_mode(
    request: PodRequest, snapshot: Snapshot, *, settings: Settings, mode: Mode
) -> ModeOutcome:
    """Return what becomes of a request that names no mode where only *mode* isolates enough."""
    named = msgspec.structs.replace(request, mode=mode, mode_key=MIN_ISOLATION_KEY)
    outcome = _chosen_mode(named, snapshot, settings=settings, earlier=None)
    decision = outcome.decision
    if isinstance(decision, ModeChoice):
        why = f"the namespace demands it with {MIN_ISOLATION_KEY}"
        decision = msgspec.structs.replace(decision, source=ModeSource.ONLY, why=why)
    request = msgspec.structs.replace(outcome.request, mode=None, mode_key=request.mode_key)
    return ModeOutcome(request, decision)


def _chosen_mode(
    request: PodRequest, snapshot: Snapshot, *, settings: Settings, earlier: ModeChoice | None
) -> ModeOutcome:
    offers = expected_kinds(snapshot.offers, settings.node_templates)
    if settings.node_agent.is_other:
        translated = translated_percent(request, offers)
        if isinstance(translated, Finding):
            return ModeOutcome(request, Findings(translated))
        request = translated
    if earlier is not None:
        return ModeOutcome(request, earlier)
    decision = mode_for(
        request, offers, settings=settings, complete=snapshot.complete, mixed=snapshot.mixed
    )
    return ModeOutcome(request, decision)


def nominal_size_warnings(
    request: PodRequest, choice: ModeChoice, offers: Mapping[GpuKind, int]
) -> Iterator[str]:
    """Yield a warning for each container that just misses a smaller MIG profile.

    Its amount is the one in the name of the profile. The profiles are those of the kind of GPU that
    would serve it at the least cost. Nothing is said of a pod that cannot become MIG.
    """
    if choice.mode is not Mode.MIG and choice.source is not ModeSource.BEST:
        return
    names = vocabulary_of(request)
    kinds = [k for k in offers if k.mode is Mode.MIG and request.accepts_kind(k)]
    for container_request in request.containers:
        if container_request.memory is None:
            continue
        costs = [
            (cost, kind.model, kind)
            for kind in kinds
            if (cost := _hard_cost(request, container_request, kind)) is not None
        ]
        if not costs:
            continue
        kind = min(costs, key=lambda each: each[:2])[2]
        found = missed_profile(container_request, kind.board, request.profile)
        units = names.units(found.missed.memory) if found is not None else 0
        if found is None or not units:
            continue
        missed, needed = found.missed.profile.name, found.needed.profile.name
        yield (
            f"{place_of(container_request)}: {asked_memory(names, container_request)} need "
            f"{needed} of {bare_name(kind.model)} in mode mig, because {missed} has "
            f"{memory_text(names, units)}; ask for at most {units} to get {missed}"
        )


def explain_mode(choice: ModeChoice) -> str:
    """Return all that decided a mode, as a sentence."""
    if not choice.mode_costs:
        return f"{choice.mode}: {choice.why}"
    withheld = ", ".join(map(_cost_text, choice.mode_costs))
    return f"{choice.mode}: {choice.why}; it takes from a GPU: {withheld}"


def _cost_text(mode_cost: ModeCost) -> str:
    profiles = f"{' + '.join(mode_cost.profiles)} on " if mode_cost.profiles else ""
    share = f"{mode_cost.cost / 10:g} %"
    return f"{mode_cost.mode} {share} ({profiles}{bare_name(mode_cost.model)})"


def mode_for(
    request: PodRequest,
    offers: Mapping[GpuKind, int],
    *,
    settings: Settings,
    complete: bool,
    mixed: bool = False,
) -> ModeChoice | Findings:
    """Choose the mode of *request* on GPUs as if they were empty, or say why none can serve.

    Depends on what kinds of GPU exist and never on what is free, so that replicas agree and a
    second pass changes nothing. Refuses only where the fleet is closed and its inventory
    *complete*, or where no GPU that we ever heard of would do; *mixed* says that some node
    carries several kinds in one mode.
    """
    named = _named_mode(request)
    mode_costs = _mode_costs(request, offers)
    if mode_costs and (named is None or named[0] in mode_costs):
        best = named or _best_mode(mode_costs, settings.prefer, peers=request.has_peers)
        return _choice(mode_costs, best)
    known = bool(offers) and complete
    unservable = findings_of(unservable_findings(request, offers, mixed=mixed)) if known else None
    if unservable is not None and settings.fleet is FleetScope.CLOSED:
        return unservable
    if impossible := findings_of(impossible_findings(request, offers)):
        return impossible
    usual = usual_mode(request, settings.default_mode)
    if not known:
        rule = "not every node's inventory is known yet" if offers else "no GPU inventory yet"
        return _default(named, usual, rule)
    warnings = () if unservable is None else unservable.all
    return _default(named, usual, "no single kind of GPU can serve it", warnings=warnings)


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
        _in_mib(container_request, able, request) for container_request in request.containers
    )
    return msgspec.structs.replace(request, containers=containers)


def weigh(costs: Mapping[Mode, int], prefer: Prefer, *, peers: bool = False) -> tuple[Mode, str]:
    """Return the better of two modes that both serve, by their *costs*, and the rule in words.

    With *peers* a container has several GPUs. MIG instances have no peer-to-peer, and a process
    sees one of them before driver R570.
    """
    if peers:
        return Mode.HAMI_CORE, PEERS
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
    return in_mode and request.accepts_kind(kind)


def _in_mib(
    container_request: ContainerRequest, kinds: Sequence[GpuKind], request: PodRequest
) -> ContainerRequest:
    """Translate so that the MIG profile meant by the percentage remains sufficient.

    The result is whole units of the memory resource, and at least one: nothing else can be
    written into the pod, and a second pass must find the same amount there.
    """
    if container_request.percent is None:
        return container_request
    sufficient = (
        smallest_sufficient(container_request, kind.board, request.profile) for kind in kinds
    )
    limits = [profile.memory for profile in sufficient if profile is not None]
    names = vocabulary_of(request)
    units = names.units(min([container_request.memory_on(kinds[0].memory), *limits]))
    memory = MiB(max(1, units) * names.memory_factor)
    return msgspec.structs.replace(container_request, memory=memory, percent=None)


def _named_mode(request: PodRequest) -> _Reasoned | None:
    """Return the mode that the pod or its vocabulary leaves no choice about."""
    named = request.named_mode
    if named is None:
        return None
    if named in VOCABULARY_MODES:
        return named, ModeSource.ONLY, "the request's resource names allow no other mode"
    return named, ModeSource.NAMED, "the pod names it"


def _best_mode(mode_costs: Mapping[Mode, ModeCost], prefer: Prefer, *, peers: bool) -> _Reasoned:
    if len(mode_costs) == 1:
        return next(iter(mode_costs)), ModeSource.ONLY, "no other mode can serve it here"
    costs = {mode: mode_cost.cost for mode, mode_cost in mode_costs.items()}
    mode, why = weigh(costs, prefer, peers=peers)
    return mode, ModeSource.ONLY if peers else ModeSource.BEST, why


def _choice(mode_costs: Mapping[Mode, ModeCost], reasoned: _Reasoned) -> ModeChoice:
    mode, source, why = reasoned
    others = [mode_cost for other, mode_cost in mode_costs.items() if other is not mode]
    return ModeChoice(mode=mode, source=source, why=why, mode_costs=(mode_costs[mode], *others))


def _default(
    named: _Reasoned | None, usual: Mode, why: str, *, warnings: tuple[Finding, ...] = ()
) -> ModeChoice:
    """Return the mode where nothing known serves: a better inventory may still revise it."""
    mode, source, _ = named or (usual, ModeSource.BEST, "")
    return ModeChoice(mode=mode, source=source, why=why, warnings=warnings)


def weighed_modes(request: PodRequest) -> tuple[Mode, ...]:
    """Return the modes that are compared for *request*, the one it names first."""
    named = request.named_mode
    return modes_of(request) if named is None else (named, *family_of(request).default_modes)


def _mode_costs(request: PodRequest, offers: Mapping[GpuKind, int]) -> dict[Mode, ModeCost]:
    """Return the least cost of each mode that could serve, whichever mode the pod names."""
    served = weighed_modes(request)
    modes = {hardware(mode): mode for mode in reversed(served)}
    best: dict[Mode, tuple[int, str, GpuKind]] = {}
    for offer, count in offers.items():
        mode = modes.get(offer.mode)
        if mode is None or not request.accepts_kind(offer):
            continue
        cost = cost_on(request, offer, count, mode=mode)
        if cost is None:
            continue
        earlier = best.get(mode)
        # The name breaks ties, so that the order in which offers come decides nothing.
        if earlier is None or (cost, offer.model) < earlier[:2]:
            best[mode] = cost, offer.model, offer
    return {
        mode: _mode_cost(request, mode, offer=offer, cost=cost)
        for mode, (cost, _, offer) in best.items()
    }


def cost_on(request: PodRequest, offer: GpuKind, count: int, *, mode: Mode) -> int | None:
    """Return the thousandths of a GPU that *request* would withhold in *mode* on one kind.

    ``None`` where *count* empty GPUs of it do not serve all containers at once.
    """
    each = _hard_cost if mode is Mode.MIG else _soft_cost
    return _cost(request, offer, count, each=each)


_Each = Callable[[PodRequest, ContainerRequest, GpuKind], int | None]


def _cost(request: PodRequest, offer: GpuKind, count: int, *, each: _Each) -> int | None:
    """Return the thousandths of a GPU that *count* of a kind would withhold, if they serve."""
    container_requests = request.containers
    if len(container_requests) == 1:  # nearly every pod
        number = container_requests[0].count
        cost = each(request, container_requests[0], offer) if number <= count else None
        return None if cost is None else number * cost
    costs: list[int] = []
    for container_request in container_requests:
        cost = each(request, container_request, offer) if container_request.count <= count else None
        if cost is None:
            return None
        costs.append(container_request.count * cost)
    return peak(container_requests, costs) if holds(request, offer, count) else None


def _hard_cost(
    request: PodRequest, container_request: ContainerRequest, offer: GpuKind
) -> int | None:
    if request.mode in VOCABULARY_MODES:
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


def _mode_cost(request: PodRequest, mode: Mode, *, offer: GpuKind, cost: int) -> ModeCost:
    if mode is not Mode.MIG:
        return ModeCost(mode=mode, cost=cost, model=offer.model)
    sufficient = [
        smallest_sufficient(container_request, offer.board, request.profile)
        for container_request in request.containers
    ]
    profiles = tuple([profile.profile.name for profile in sufficient if profile is not None])
    return ModeCost(mode=mode, cost=cost, model=offer.model, profiles=profiles)
