"""Advice: what stands in a pod's way on the GPUs as they are, and the least change that helps."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import msgspec

from allocator.catalog.vocabularies import Vocabulary
from allocator.mig.profiles import smallest_sufficient
from allocator.model.decision import Finding, Reason
from allocator.model.request import ContainerRequest, Mode, PodRequest
from allocator.model.units import WHOLE_GPU, CorePercent, MiB
from allocator.placement.fit import Headroom, shortfall
from allocator.placement.mig import MigOptions
from allocator.placement.packing import Headrooms
from allocator.placement.refusals import field_of, place_of, vocabulary_of

Fits = Callable[[PodRequest], bool]
Obstacle = tuple[Reason, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallerRequest:
    """A smaller number in one container with which the whole pod fits, all else unchanged."""

    ask: ContainerRequest
    resource: str | None
    advice: str


def shortage_advice(
    request: PodRequest, nodes: Sequence[Headrooms], *, cutter: MigOptions, fits: Fits, later: bool
) -> Finding:
    """Say what is short on the GPUs of *nodes*, and the largest smaller number that would fit.

    *later* says that waiting helps too. What is advised was tried: *fits* answered for it.
    """
    met = ((ask, _obstacle(ask, nodes, cutter)) for ask in request.containers)
    blocked = {ask: obstacle for ask, obstacle in met if obstacle is not None}
    relief = next(_reliefs(request, tuple(blocked) or request.containers, fits), None)
    if relief is None:
        remedy = "wait until other pods end" if later else "ask for less in several containers"
    else:
        where = "" if blocked else f" in {place_of(relief.ask)}"
        remedy = relief.advice + where + (" now, or wait" if later else "")
    if not blocked:
        return _crowded_finding(nodes, remedy)
    ask = next(iter(blocked)) if relief is None else relief.ask
    reason, what = blocked[ask]
    return Finding(
        reason=reason,
        place=place_of(ask),
        field=field_of(ask, None if relief is None else relief.resource),
        what=what,
        remedy=remedy,
    )


def _crowded_finding(nodes: Sequence[Headrooms], remedy: str) -> Finding:
    hard = all(room.gpu.mode is Mode.MIG for rooms in nodes for room in rooms)
    return Finding(
        reason=Reason.NO_GEOMETRY if hard else Reason.MEMORY_SHORT,
        place="pod",
        field="spec",
        what="its containers fit one by one, but not together on one node",
        remedy=remedy,
    )


def _obstacle(
    ask: ContainerRequest, nodes: Sequence[Headrooms], cutter: MigOptions
) -> Obstacle | None:
    """Return why no node takes *ask* by itself."""
    takers = [sum(_takes(ask, room, cutter) for room in rooms) for rooms in nodes]
    most = max(takers, default=0)
    if most >= ask.count:
        return None
    rooms = tuple(chain.from_iterable(nodes))
    if most:
        what = f"{ask.count} GPUs on one node, but only {most} there have room"
        return Reason.TOO_MANY, what
    soft = [room for room in rooms if room.gpu.mode is not Mode.MIG]
    return _soft(ask, soft) if soft else _mig_obstacle(ask, rooms, cutter)


def _takes(ask: ContainerRequest, room: Headroom, cutter: MigOptions) -> bool:
    if room.gpu.mode is Mode.MIG:
        return bool(cutter.options(ask, (room,)))
    return not shortfall(ask, room)


def _soft(ask: ContainerRequest, rooms: Sequence[Headroom]) -> Obstacle:
    """Describe the miss of the GPU that comes closest."""
    closest = min(rooms, key=lambda room: shortfall(ask, room).rank)
    of = "the closest GPU"
    match shortfall(ask, closest).reason:
        case Reason.SHARES_SHORT:
            what = f"{of} has its {closest.gpu.slots} shares taken already"
            return Reason.SHARES_SHORT, what
        case Reason.MEMORY_SHORT:
            needed = ask.memory_on(closest.gpu.memory)
            what = f"{needed} MiB on one GPU, but {of} has {max(0, closest.memory)} free"
            return Reason.MEMORY_SHORT, what
        case _ if ask.cores >= WHOLE_GPU:
            return Reason.CORES_SHORT, "a GPU to itself, but every GPU is in use"
        case _:
            free = max(0, WHOLE_GPU - closest.cores)
            what = f"{ask.cores} cores of one GPU, but {of} has {free} free"
            return Reason.CORES_SHORT, what


def _mig_obstacle(ask: ContainerRequest, rooms: Sequence[Headroom], cutter: MigOptions) -> Obstacle:
    rungs = {smallest_sufficient(ask, room.gpu.board, cutter.named) for room in rooms}
    names = " or ".join(sorted(rung.profile.name for rung in rungs if rung is not None))
    what = f"no place for {names}" if names else "no profile that is large enough"
    return Reason.NO_GEOMETRY, f"{what} on any GPU here"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Knob:
    """One number of a container that could be smaller: *least* up to below *asked*."""

    resource: str | None
    unit: str
    least: int
    asked: int
    turned: Callable[[int], ContainerRequest]


def _reliefs(
    request: PodRequest, asks: Sequence[ContainerRequest], fits: Fits
) -> Iterator[SmallerRequest]:
    """Yield, for one number after the other, the largest smaller value with which the pod fits."""
    for ask in asks:
        for knob in _knobs(ask, vocabulary_of(request)):

            def fits_with(value: int, ask: ContainerRequest = ask, knob: _Knob = knob) -> bool:
                turned = knob.turned(value)
                return fits(_replace_container(request, ask, turned))

            value = _largest(fits_with, least=knob.least, below=knob.asked)
            if value is not None:
                unit = knob.unit.removesuffix("s") if value == 1 else knob.unit
                advice = f"ask for at most {value}{unit}"
                yield SmallerRequest(ask=ask, resource=knob.resource, advice=advice)


def _knobs(ask: ContainerRequest, names: Vocabulary) -> Iterator[_Knob]:
    if ask.memory is not None:
        yield _Knob(
            resource=names.memory,
            unit=" MiB",
            least=1,
            asked=ask.memory,
            turned=lambda n: msgspec.structs.replace(ask, memory=MiB(n)),
        )
    else:
        yield _Knob(
            resource=names.percent,
            unit="% of its memory",
            least=1,
            asked=100 if ask.percent is None else ask.percent,
            turned=lambda n: msgspec.structs.replace(ask, percent=n),
        )
    yield _Knob(
        resource=names.cores,
        unit=" cores",
        least=0,
        asked=ask.cores,
        turned=lambda n: msgspec.structs.replace(ask, cores=CorePercent(n)),
    )
    yield _Knob(
        resource=names.count,
        unit=" GPUs",
        least=1,
        asked=ask.count,
        turned=lambda n: msgspec.structs.replace(ask, count=n),
    )


def _replace_container(
    request: PodRequest, ask: ContainerRequest, turned: ContainerRequest
) -> PodRequest:
    return msgspec.structs.replace(
        request, containers=tuple(turned if one is ask else one for one in request.containers)
    )


def _largest(fits: Callable[[int], bool], *, least: int, below: int) -> int | None:
    """Return the largest value that fits, where every smaller one fits too; by halving."""
    if least >= below or not fits(least):
        return None
    while below - least > 1:
        middle = (least + below) // 2
        least, below = (middle, below) if fits(middle) else (least, middle)
    return least
