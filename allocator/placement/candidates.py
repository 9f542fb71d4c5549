"""Candidates: what each GPU answers to each container, taken by itself, in words."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from allocator.catalog.boards import bare_name
from allocator.catalog.vocabularies import Vocabulary
from allocator.mig.profiles import profiles_of, smallest_sufficient
from allocator.model.decision import Candidate, Reason
from allocator.model.gpu import Gpu, Node
from allocator.model.request import ContainerRequest, Mode, PodRequest
from allocator.model.units import WHOLE_GPU
from allocator.placement.fit import Headroom, hardware, headroom, shortfall
from allocator.placement.mig import MigOptions
from allocator.request.wording import memory_figure, memory_text, vocabulary_of

Answer = tuple[Reason | None, str]


def candidates(
    nodes: Iterable[Node], request: PodRequest, *, modes: Sequence[Mode], mig_options: MigOptions
) -> Iterator[Candidate]:
    """Yield the verdict of every GPU on every container, in the order of nodes and GPUs."""
    names = vocabulary_of(request)
    for node in nodes:
        for gpu in node.gpus:
            mode = mode_on(gpu, modes)
            gpu_headroom = headroom(gpu)
            for container_request in request.containers:
                reason, detail = exclusion(gpu, request, modes) or _answer(
                    container_request, gpu_headroom, mig_options, names=names
                )
                yield Candidate(
                    node=node.name,
                    gpu=gpu.uuid,
                    model=gpu.model,
                    mode=mode,
                    reason=reason,
                    detail=detail,
                    container=container_request.name,
                )


def group_candidates(every: Iterable[Candidate]) -> tuple[tuple[Candidate, int], ...]:
    """Fold candidates that differ only in node and GPU: the first of each, and how many."""
    first: dict[tuple[object, ...], Candidate] = {}
    counts: Counter[tuple[object, ...]] = Counter()
    for candidate in every:
        key = (
            candidate.container,
            candidate.model,
            candidate.mode,
            candidate.reason,
            candidate.detail,
        )
        first.setdefault(key, candidate)
        counts[key] += 1
    return tuple((candidate, counts[key]) for key, candidate in first.items())


def mode_on(gpu: Gpu, modes: Sequence[Mode]) -> Mode:
    """Return which of *modes* this GPU would serve in, or else the mode it is in."""
    return next((mode for mode in modes if hardware(mode) is gpu.mode), gpu.mode)


def exclusion(gpu: Gpu, request: PodRequest, modes: Sequence[Mode]) -> Answer | None:
    """Say why *gpu* is out of the question, whatever is free on it."""
    if all(hardware(mode) is not gpu.mode for mode in modes):
        return Reason.MODE_UNAVAILABLE, f"in mode {gpu.mode}"
    if gpu.family != request.family:
        return Reason.MODEL_UNAVAILABLE, f"a GPU of {gpu.family}, not of {request.family}"
    if not request.filters.model_fits(gpu.model):
        return Reason.MODEL_UNAVAILABLE, f"{bare_name(gpu.model)} is not an accepted model"
    if not request.filters.uuid_fits(gpu.uuid):
        return Reason.MODEL_UNAVAILABLE, "its UUID is not an accepted one"
    return None if gpu.healthy else (Reason.UNHEALTHY, "unhealthy")


def _answer(
    container_request: ContainerRequest,
    headroom: Headroom,
    mig_options: MigOptions,
    *,
    names: Vocabulary,
) -> Answer:
    return (
        _mig_answer(container_request, headroom, mig_options, names=names)
        if headroom.gpu.mode is Mode.MIG
        else _hami_core_answer(container_request, headroom, names=names)
    )


def _hami_core_answer(
    container_request: ContainerRequest, headroom: Headroom, *, names: Vocabulary
) -> Answer:
    reason = shortfall(container_request, headroom).reason
    match reason:
        case Reason.SHARE_CLASS:
            return reason, f"shared by pods of class {', '.join(headroom.shares)}"
        case Reason.SHARES_SHORT:
            return reason, f"all {headroom.gpu.slots} shares taken"
        case Reason.CORES_SHORT if container_request.cores == WHOLE_GPU:
            return reason, "in use, but a whole GPU is asked for"
        case Reason.CORES_SHORT:
            return reason, f"{WHOLE_GPU - headroom.cores} of 100 cores free"
        case _:
            return reason, _free_memory(container_request, headroom, names=names)


def _free_memory(
    container_request: ContainerRequest, headroom: Headroom, *, names: Vocabulary
) -> str:
    """Return what is free of a GPU's memory, in the unit of the request."""
    total = headroom.gpu.memory
    if container_request.percent is not None:
        free = memory_figure(names, container_request, headroom.memory, total=total)
        return f"{free} of its memory free"
    return f"{names.units(headroom.memory)} of {memory_text(names, names.units(total))} free"


def _mig_answer(
    container_request: ContainerRequest,
    headroom: Headroom,
    mig_options: MigOptions,
    *,
    names: Vocabulary,
) -> Answer:
    best = mig_options.options(container_request, (headroom,))
    if best and best[0].grant.placed is not None:
        placed = best[0].grant.placed
        return None, f"{placed.profile} at {placed.start}"
    profile = smallest_sufficient(container_request, headroom.gpu.board, mig_options.named)
    if profile is not None:
        return Reason.NO_GEOMETRY, f"no free slots for {profile.profile}"
    profiles = profiles_of(headroom.gpu.board, mig_options.named)
    if not profiles:
        return Reason.NO_GEOMETRY, "no such MIG profile"
    largest = profiles[-1]
    usable = memory_text(names, names.units(largest.memory))
    return Reason.NO_GEOMETRY, f"its largest profile {largest.profile} has {usable}"
