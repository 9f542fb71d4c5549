"""Best plan over nodes and modes; init containers and sidecars sharing GPUs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from allocator.config.settings import Prefer
from allocator.model.allocation import Assignment, ContainerGrants, Option
from allocator.model.gpu import Node
from allocator.model.request import ContainerRequest, FillPolicy, Mode, PodRequest, Stage
from allocator.model.usage import peak_grants
from allocator.placement import hami_core
from allocator.placement.candidates import exclusion
from allocator.placement.fit import hardware, headroom, peak, soft_cost
from allocator.placement.mig import MigOptions
from allocator.placement.mode import weigh
from allocator.placement.packing import Chosen, Headrooms, Options, gpu_count, occupy, packings


def arrangement(
    request: PodRequest, headrooms: Headrooms, *, options: Options, every: Options, effort: int
) -> tuple[Chosen, ...] | None:
    """Return what each container of *request* gets, in its order, or ``None``.

    *every* names all places where *options* may name the best ones; *effort* is how many
    attempts the search may cost.

    Apps run beside all sidecars. An init container runs beside the sidecars that started before
    it and is over when the apps start, so it may have what they will get: their demand and
    its do not add up.
    """
    container_requests = request.containers
    pack = partial(packings, budget=iter(range(effort)), one_numa=request.one_numa)
    sidecars = _hardest_first(_in(Stage.SIDECAR, container_requests), headrooms, options)
    apps = _hardest_first(_in(Stage.APP, container_requests), headrooms, options)
    for with_sidecars in pack(sidecars, headrooms, options=options):
        held = dict(zip(sidecars, with_sidecars, strict=True))
        left = occupy(headrooms, chain(*with_sidecars))
        main = next(pack(apps, left, options=options), None)
        if main is None:
            continue
        own = partial(_prefer_own, options=every, own=tuple(chain(*main)))
        for container_request in _in(Stage.INIT, container_requests):
            started = (held[s] for s in sidecars if s.index < container_request.index)
            before = occupy(headrooms, chain.from_iterable(started))
            init_options = next(pack((container_request,), before, options=own), None)
            if init_options is None:
                break
            held[container_request] = init_options[0]
        else:
            held |= zip(apps, main, strict=True)
            return tuple(held[container_request] for container_request in container_requests)
    return None


def _in(stage: Stage, container_requests: Iterable[ContainerRequest]) -> list[ContainerRequest]:
    return [
        container_request
        for container_request in container_requests
        if container_request.stage is stage
    ]


def _hardest_first(
    container_requests: Sequence[ContainerRequest], headrooms: Headrooms, options: Options
) -> Sequence[ContainerRequest]:
    """Order by GPUs to spare, then by size: the one with least choice must not come last.

    Those without cores come before all: a GPU whose cores are all promised takes nobody more.
    """
    if len(container_requests) <= 1:
        return container_requests
    options_by_request = {
        container_request: options(container_request, headrooms)
        for container_request in container_requests
    }
    return sorted(
        container_requests,
        key=lambda container_request: (
            container_request.cores > 0,
            gpu_count(options_by_request[container_request]) - container_request.count,
            -max(
                (option.grant.memory for option in options_by_request[container_request]), default=0
            ),
        ),
    )


def _prefer_own(
    container_request: ContainerRequest,
    headrooms: Headrooms,
    *,
    options: Options,
    own: Sequence[Option],
) -> list[Option]:
    """Put what the pod's apps will have, and then other room on their GPUs, before the rest."""
    held = {(o.position, o.grant.placed): o.grant.memory for o in sorted(own, key=_memory)}
    own_gpus = {option.position for option in own}

    def distance(option: Option) -> tuple[bool, bool]:
        enough = held.get((option.position, option.grant.placed), -1) >= option.grant.memory
        return not enough, option.position not in own_gpus

    return sorted(options(container_request, headrooms), key=distance)


def _memory(option: Option) -> int:
    return option.grant.memory


ATTEMPTS: Final = 512  # of one search, over all nodes: some hundredths of a second at worst


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentPlan:
    """One way to serve a pod."""

    assignment: Assignment
    cost: int  # thousandths of a GPU
    rank: tuple[int, ...]  # lower is better


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHeadrooms:
    """A node, and its GPUs that a request accepts in one mode."""

    node: str
    headrooms: Headrooms


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSearch:
    """Where a request may go, and by which rules."""

    places: Mapping[Mode, tuple[NodeHeadrooms, ...]]
    mig_options: MigOptions
    prefer: Prefer
    packing: FillPolicy = FillPolicy.BINPACK  # of nodes; that of GPUs is in mig_options


def places(nodes: Iterable[Node], request: PodRequest, mode: Mode) -> tuple[NodeHeadrooms, ...]:
    """Return where *request* may go in *mode*; of nodes in equal state only the first.

    Numbers in a request do not matter here, so that smaller ones can be tried in the same places.
    """
    node_headrooms: list[NodeHeadrooms] = []
    there = hardware(mode)
    for node in nodes:
        gpus = [gpu for gpu in node.gpus if gpu.mode is there]
        headrooms = tuple(headroom(gpu) for gpu in gpus if exclusion(gpu, request, (mode,)) is None)
        if headrooms:
            node_headrooms.append(NodeHeadrooms(node=node.name, headrooms=headrooms))
    if len(node_headrooms) <= 1 or request.one_numa:  # equal nodes differ in their NUMA nodes
        return tuple(node_headrooms)
    return _unique_places(node_headrooms)


def _unique_places(node_headrooms: Iterable[NodeHeadrooms]) -> tuple[NodeHeadrooms, ...]:
    first: dict[object, NodeHeadrooms] = {}
    for place in node_headrooms:
        first.setdefault(tuple(headroom.likeness for headroom in place.headrooms), place)
    return tuple(first.values())


def best(search: PlanSearch, request: PodRequest) -> tuple[AssignmentPlan, str] | None:
    """Return the best plan of all nodes and modes, and in words why its mode."""
    plans = {mode: list(_plans(search, request, mode)) for mode in search.places}
    fitting = {
        mode: min(assignment_plans, key=_rank)
        for mode, assignment_plans in plans.items()
        if assignment_plans
    }
    if len(fitting) > 1:
        costs = {mode: plan.cost for mode, plan in fitting.items()}
        mode, why = weigh(costs, search.prefer, peers=request.has_peers)
        return fitting[mode], f"{mode}: {why}"
    return next(((plan, "") for plan in fitting.values()), None)


def _rank(plan: AssignmentPlan) -> tuple[int, ...]:
    return plan.rank


def _plans(search: PlanSearch, request: PodRequest, mode: Mode) -> Iterator[AssignmentPlan]:
    """Yield the best plan of each place that has one; more places, less effort for each."""
    node_headrooms = search.places[mode]
    effort = max(4 * len(request.containers), ATTEMPTS // max(1, len(node_headrooms)))
    for place in node_headrooms:
        chosen = _arrange(
            search.mig_options, request, mode, headrooms=place.headrooms, effort=effort
        )
        if chosen is not None:
            yield _plan(place, request, mode, chosen=chosen, packing=search.packing)


def best_options(mig_options: MigOptions, mode: Mode) -> Options:
    """Return what names the best place on each GPU that takes a container, the best GPU first."""
    if mode is Mode.MIG:
        return mig_options.options
    return partial(hami_core.options, mode=mode, packing=mig_options.packing)


def _arrange(
    mig_options: MigOptions, request: PodRequest, mode: Mode, *, headrooms: Headrooms, effort: int
) -> tuple[Chosen, ...] | None:
    """Look for an arrangement with the best place on each GPU, then with every place.

    Only where several containers compete can a place that is not the best one help.
    """
    options = best_options(mig_options, mode)
    if mode is not Mode.MIG:
        return arrangement(request, headrooms, options=options, every=options, effort=effort)
    every = partial(mig_options.options, thorough=True)
    quick = arrangement(request, headrooms, options=options, every=every, effort=effort)
    if quick is not None or len(request.containers) == 1:
        return quick
    return arrangement(request, headrooms, options=every, every=every, effort=effort)


def _plan(
    place: NodeHeadrooms,
    request: PodRequest,
    mode: Mode,
    *,
    chosen: Sequence[Chosen],
    packing: FillPolicy,
) -> AssignmentPlan:
    container_requests, headrooms = request.containers, place.headrooms
    options = tuple(chain.from_iterable(chosen))
    lost = tuple(map(sum, zip(*(option.rank for option in options), strict=True)))
    containers = tuple(
        ContainerGrants(
            name=container_request.name,
            grants=tuple(option.grant for option in found),
            stage=container_request.stage,
        )
        for container_request, found in zip(container_requests, chosen, strict=True)
    )
    # By binpack instances go where they lose least, whichever node that is.
    apart = mode is Mode.MIG and packing is FillPolicy.BINPACK
    free = () if apart else (hami_core.emptiness(headrooms, peak_grants(containers)),)
    packed = tuple(hami_core.SIGNS[packing] * share for share in free)
    return AssignmentPlan(
        assignment=Assignment(node=place.node, mode=mode, containers=containers),
        cost=peak(
            container_requests,
            [sum(option_cost(option, headrooms) for option in found) for found in chosen],
        ),
        rank=(*packed, *lost),
    )


def option_cost(option: Option, headrooms: Headrooms) -> int:
    """Return the thousandths of a GPU that *option* withholds from others."""
    gpu, grant = headrooms[option.position].gpu, option.grant
    if grant.placed is None or gpu.board is None:
        return soft_cost(grant.memory, grant.cores, total=gpu.memory)
    return -(-1000 * grant.placed.profile.size // gpu.board.slots)
