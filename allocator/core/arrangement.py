"""Arrangements: how a pod's init containers, sidecars and apps share the GPUs of one node."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain

from allocator.core.packing import Chosen, Headrooms, Options, gpu_count, occupy, packings
from allocator.model.option import Option
from allocator.model.request import ContainerRequest, PodRequest, Stage


def arrangement(
    request: PodRequest, rooms: Headrooms, *, options: Options, every: Options, effort: int
) -> tuple[Chosen, ...] | None:
    """Return what each container of *request* gets, in its order, or ``None``.

    *every* names all places where *options* may name the best ones; *effort* is how many
    attempts the search may cost.

    Apps run beside all sidecars. An init container runs beside the sidecars that started before
    it and is over when the apps start, so it may have what they will get: their demand and
    its do not add up.
    """
    asks, budget = request.containers, iter(range(effort))
    sidecars = _hardest_first(_in(Stage.SIDECAR, asks), rooms, options)
    apps = _hardest_first(_in(Stage.APP, asks), rooms, options)
    for beside in packings(sidecars, rooms, options=options, budget=budget):
        held = dict(zip(sidecars, beside, strict=True))
        left = occupy(rooms, chain(*beside))
        main = next(packings(apps, left, options=options, budget=budget), None)
        if main is None:
            continue
        own = partial(_prefer_own, options=every, own=tuple(chain(*main)))
        for ask in _in(Stage.INIT, asks):
            started = (held[s] for s in sidecars if s.index < ask.index)
            before = occupy(rooms, chain.from_iterable(started))
            found = next(packings((ask,), before, options=own, budget=budget), None)
            if found is None:
                break
            held[ask] = found[0]
        else:
            held |= zip(apps, main, strict=True)
            return tuple(held[ask] for ask in asks)
    return None


def _in(stage: Stage, asks: Iterable[ContainerRequest]) -> list[ContainerRequest]:
    return [ask for ask in asks if ask.stage is stage]


def _hardest_first(
    asks: Sequence[ContainerRequest], rooms: Headrooms, options: Options
) -> Sequence[ContainerRequest]:
    """Order by GPUs to spare, then by size: the one with least choice must not come last.

    Those without cores come before all: a GPU whose cores are all promised takes nobody more.
    """
    if len(asks) <= 1:
        return asks
    found = {ask: options(ask, rooms) for ask in asks}
    return sorted(
        asks,
        key=lambda ask: (
            ask.cores > 0,
            gpu_count(found[ask]) - ask.count,
            -max((option.grant.memory for option in found[ask]), default=0),
        ),
    )


def _prefer_own(
    ask: ContainerRequest, rooms: Headrooms, *, options: Options, own: Sequence[Option]
) -> list[Option]:
    """Put what the pod's apps will have, and then other room on their GPUs, before the rest."""
    held = {(o.position, o.grant.placed): o.grant.memory for o in sorted(own, key=_memory)}
    near = {option.position for option in own}

    def distance(option: Option) -> tuple[bool, bool]:
        enough = held.get((option.position, option.grant.placed), -1) >= option.grant.memory
        return not enough, option.position not in near

    return sorted(options(ask, rooms), key=distance)


def _memory(option: Option) -> int:
    return option.grant.memory
