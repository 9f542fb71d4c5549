"""Advice: what stands in a pod's way on the GPUs as they are, and the least change that helps."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from allocator.core.fit import shortfall
from allocator.core.headroom import Headroom
from allocator.core.mig import Cutter
from allocator.core.packing import Rooms
from allocator.core.refusals import field_of, place_of, short, vocabulary_of
from allocator.core.wording import quoted
from allocator.model.decision import Finding, Reason
from allocator.model.request import ContainerRequest, Mode, PodRequest
from allocator.model.units import WHOLE_GPU, CorePercent, MiB

Fits = Callable[[PodRequest], bool]
Obstacle = tuple[Reason, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relief:
    """A smaller number in one container with which the whole pod fits, all else unchanged."""

    ask: ContainerRequest
    resource: str | None
    advice: str


def advised(
    request: PodRequest, nodes: Sequence[Rooms], *, cutter: Cutter, fits: Fits, later: bool
) -> Finding:
    """Say what is short on the GPUs of *nodes*, and the largest smaller number that would fit.

    *later* says that waiting helps too. What is advised was tried: *fits* answered for it.
    """
    met = ((ask, _obstacle(ask, nodes, cutter)) for ask in request.containers)
    blocked = {ask: obstacle for ask, obstacle in met if obstacle is not None}
    relief = next(_reliefs(request, tuple(blocked) or request.containers, fits), None)
    wait = "wait until other pods end" if later else "ask for less in several containers"
    if not blocked:
        where = "" if relief is None else f" in {place_of(relief.ask)}"
        return Finding(
            reason=Reason.MEMORY_SHORT,
            place="pod",
            field="spec",
            what="its containers fit one by one, but not together on one node",
            remedy=wait if relief is None else f"{relief.advice}{where}",
        )
    ask = next(iter(blocked)) if relief is None else relief.ask
    reason, what = blocked[ask]
    remedy = wait if relief is None else relief.advice + (" now, or wait" if later else "")
    return Finding(
        reason=reason,
        place=place_of(ask),
        field=field_of(ask, None if relief is None else relief.resource),
        what=what,
        remedy=remedy,
    )


def _obstacle(ask: ContainerRequest, nodes: Sequence[Rooms], cutter: Cutter) -> Obstacle | None:
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
    return _soft(ask, soft) if soft else _hard(ask, rooms, cutter)


def _takes(ask: ContainerRequest, room: Headroom, cutter: Cutter) -> bool:
    if room.gpu.mode is Mode.MIG:
        return bool(cutter.options(ask, (room,)))
    return not shortfall(ask, room)


def _soft(ask: ContainerRequest, rooms: Sequence[Headroom]) -> Obstacle:
    """Describe the miss of the GPU that comes closest."""
    closest = min(rooms, key=lambda room: shortfall(ask, room).rank)
    of = f"the closest of {len(rooms)} GPUs"
    match shortfall(ask, closest).reason:
        case Reason.SHARES_SHORT:
            what = f"{of} has {closest.tenants} containers already, as many as may share it"
            return Reason.SHARES_SHORT, what
        case Reason.MEMORY_SHORT:
            needed = ask.memory_on(closest.gpu.memory)
            what = f"{needed} MiB on one GPU, but {of} has {max(0, closest.memory)} free"
            return Reason.MEMORY_SHORT, what
        case _:
            free = WHOLE_GPU - closest.cores
            asked = "a GPU to itself" if ask.cores == WHOLE_GPU else f"{ask.cores} cores of one GPU"
            return Reason.CORES_SHORT, f"{asked}, but {of} has {free} of 100 cores free"


def _hard(ask: ContainerRequest, rooms: Sequence[Headroom], cutter: Cutter) -> Obstacle:
    profiles = {cutter.smallest(ask, room) for room in rooms} - {None}
    names = " or ".join(sorted(map(str, profiles)))
    what = f"no place for {names}" if names else "no profile that is large enough"
    return Reason.NO_GEOMETRY, f"{what} on any of {len(rooms)} GPUs"


def _reliefs(
    request: PodRequest, asks: Sequence[ContainerRequest], fits: Fits
) -> Iterator[Relief]:
    """Yield, number by number, the largest value below what is asked with which the pod fits."""
    names = vocabulary_of(request)

    def most(ask: ContainerRequest, with_: Callable[[int], ContainerRequest], below: int) -> int:
        return _largest(lambda value: fits(_replaced(request, ask, with_(value))), below)

    for ask in asks:
        if ask.memory is not None:
            value = most(ask, lambda n, a=ask: replace(a, memory=MiB(n)), ask.memory)
            if value:
                yield Relief(ask=ask, resource=names.memory, advice=f"ask for at most {value} MiB")
