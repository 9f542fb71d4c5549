"""What is right on one GPU, and where a pod has room: tried out, by none of the code under test."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Final

from allocator.model.allocation import Grant
from allocator.model.board import Placement
from allocator.model.gpu import Gpu
from allocator.model.request import ContainerRequest, Mode, PodRequest
from allocator.model.units import CorePercent

WHOLE: Final = 100  # percent of the cores of a GPU


def wrong(gpu: Gpu) -> Iterator[str]:
    """Yield what must not be so of the grants on a GPU, whoever holds memory beside them."""
    # Shares that are only accounted for take part in a GPU that is shared in software.
    taken = (Mode.HAMI_CORE, Mode.MEMORY_ONLY) if gpu.mode is Mode.HAMI_CORE else (gpu.mode,)
    if any(grant.mode not in taken for grant in gpu.grants):
        yield f"S4 {gpu.uuid} in mode {gpu.mode}: {[str(grant.mode) for grant in gpu.grants]}"
    elif gpu.mode is Mode.MIG:
        yield from _wrongly_cut(gpu)
    else:
        yield from _wrongly_shared(gpu)


def _wrongly_cut(gpu: Gpu) -> Iterator[str]:
    mask = 0
    for grant in gpu.grants:
        placed = grant.placed
        if placed is None or placed.start not in placed.profile.starts or mask & placed.mask:
            yield f"S3 {gpu.uuid}: {[str(grant.placed) for grant in gpu.grants]}"
            return
        mask |= placed.mask
    profiles = Counter(grant.placed.profile for grant in gpu.grants if grant.placed is not None)
    slices = sum(profile.slices * count for profile, count in profiles.items())
    most = max((profile.slices for profile in gpu.board.profiles), default=0) if gpu.board else 0
    few = (p for p, count in profiles.items() if p.limit is not None and count > p.limit)
    if slices > most or any(few):
        yield f"S3 {gpu.uuid}: {slices} compute slices of {most}, {dict(profiles)}"


def _wrongly_shared(gpu: Gpu) -> Iterator[str]:
    memory, cores = (sum(amounts) for amounts in _amounts(gpu))
    if memory > gpu.memory or cores > WHOLE or len(gpu.grants) > gpu.slots:
        yield f"S1 {gpu.uuid} with {gpu.slots} slots: {[(g.memory, g.cores) for g in gpu.grants]}"
    if len({grant.share for grant in gpu.grants}) > 1:
        yield f"S1 {gpu.uuid} is divided by {[grant.share for grant in gpu.grants]}"
    if len(gpu.grants) > 1 and any(grant.cores >= WHOLE for grant in gpu.grants):
        yield f"S2 {gpu.uuid}: {[(g.memory, g.cores) for g in gpu.grants]}"


def _amounts(gpu: Gpu) -> tuple[list[int], list[int]]:
    return [grant.memory for grant in gpu.grants], [grant.cores for grant in gpu.grants]


def crowded(gpu: Gpu) -> bool:
    """Say whether a GPU has less memory than its grants and processes of others have."""
    soft = gpu.mode is not Mode.MIG
    return soft and sum(grant.memory for grant in gpu.grants) + gpu.foreign > gpu.memory


def serves(gpu: Gpu, grant: Grant, ask: ContainerRequest) -> bool:
    """Say whether a grant is what was asked for: as much, or an instance that is no smaller."""
    memory = ask.memory_on(gpu.memory)
    if grant.placed is None:
        return (grant.memory, grant.cores, grant.share) == (memory, ask.cores, ask.share)
    profile = grant.placed.profile
    sms = 0 if gpu.board is None else gpu.board.sms
    return profile.memory >= memory and WHOLE * profile.sms >= ask.cores * sms


def has_room(gpus: Sequence[Gpu], request: PodRequest) -> bool:
    """Say whether all containers of *request* have room at once, in one mode that it accepts."""
    modes = (Mode.MIG, Mode.HAMI_CORE) if request.mode is None else (request.mode,)
    return any(_all_have_room(gpus, request.containers, mode) for mode in modes)


def _all_have_room(gpus: Sequence[Gpu], asks: Sequence[ContainerRequest], mode: Mode) -> bool:
    if not asks:
        return True
    first, *rest = asks
    return any(
        _all_have_room([_beside(gpu, grants) for gpu in gpus], rest, mode)
        for grants in _ways(gpus, first, mode)
    )


def _beside(gpu: Gpu, grants: Iterable[Grant]) -> Gpu:
    own = tuple(grant for grant in grants if grant.gpu == gpu.uuid)
    return replace(gpu, grants=(*gpu.grants, *own))


def _ways(gpus: Sequence[Gpu], ask: ContainerRequest, mode: Mode) -> Iterator[tuple[Grant, ...]]:
    """Yield every way to give one container as many GPUs as it asks for."""
    for chosen in combinations([gpu for gpu in gpus if gpu.healthy], ask.count):
        yield from product(*(list(_shares(gpu, ask, mode)) for gpu in chosen))


def _shares(gpu: Gpu, ask: ContainerRequest, mode: Mode) -> Iterator[Grant]:
    """Yield what one container may get of one GPU, next to what is promised there."""
    if gpu.mode is not mode:
        return
    for grant in _instances(gpu) if mode is Mode.MIG else _share(gpu, ask, mode):
        there = _beside(gpu, [grant])
        if serves(gpu, grant, ask) and not any(wrong(there)) and not crowded(there):
            yield grant


def _instances(gpu: Gpu) -> Iterator[Grant]:
    for profile in () if gpu.board is None else gpu.board.plain:
        for start in profile.starts:
            placed, none = Placement(profile, start), CorePercent(0)
            yield Grant(
                gpu=gpu.uuid, mode=Mode.MIG, memory=profile.memory, cores=none, placed=placed
            )


def _share(gpu: Gpu, ask: ContainerRequest, mode: Mode) -> Iterator[Grant]:
    memory = ask.memory_on(gpu.memory)
    yield Grant(gpu=gpu.uuid, mode=mode, memory=memory, cores=ask.cores, share=ask.share)
