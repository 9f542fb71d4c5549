"""Headroom of a GPU and the shortfall of a request on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from allocator.mig.profiles import smallest_sufficient
from allocator.model.allocation import Grant
from allocator.model.board import Profile
from allocator.model.decision import Reason
from allocator.model.gpu import Gpu, GpuKind
from allocator.model.request import ContainerRequest, Mode, PodRequest, Stage
from allocator.model.sharing import books_cores, may_join
from allocator.model.units import NO_CORES, NO_MEMORY, WHOLE_GPU, CorePercent, MiB
from allocator.model.value import Value


class Headroom(Value, frozen=True):
    """One GPU with the grants that a decision has made so far.

    An instance without a grant is idle and takes nothing, because it may be destroyed.
    """

    gpu: Gpu
    memory: MiB  # free
    cores: CorePercent  # promised
    tenants: int  # containers with a grant
    taken: int  # bit mask of the MIG memory slots with a grant
    profiles: tuple[Profile, ...]  # of the instances with a grant
    positions: tuple[str, ...]  # Volcano's names of those placements, where it has one
    shares: tuple[str, ...]  # the sharing classes of its tenants, each once, in order

    @property
    def likeness(self) -> tuple[object, ...]:
        """Return a key that is equal for two GPUs which any request may use alike."""
        gpu = self.gpu
        kind = (gpu.model, gpu.board, gpu.mode, gpu.memory, gpu.slots, gpu.instances, gpu.chunks)
        names = tuple(sorted(profile.name for profile in self.profiles))
        known = gpu.deviceshare, tuple(sorted(self.positions))
        free = self.memory, self.cores, self.tenants, self.taken
        return (*kind, *free, names, known, self.shares)


_NOTHING: Final = (0, 0, 0)
_NO_SHARES: Final[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """How far one GPU is from taking one container; false means that it takes it."""

    memory: MiB = NO_MEMORY
    # At least 1 where the container or a tenant of the GPU asks for a whole GPU.
    cores: CorePercent = NO_CORES
    shares: int = 0  # containers over the most that may share the GPU
    share_class: bool = False  # its tenants are of a sharing class that the container may not join

    def __bool__(self) -> bool:
        return bool(self.shares or self.memory or self.cores or self.share_class)

    @property
    def reason(self) -> Reason | None:
        """Return the first obstacle."""
        if self.share_class:
            return Reason.SHARE_CLASS
        if self.shares:
            return Reason.SHARES_SHORT
        if self.memory:
            return Reason.MEMORY_SHORT
        return Reason.CORES_SHORT if self.cores else None

    @property
    def rank(self) -> tuple[int, ...]:
        """Lower is closer: fewer obstacles, then smaller ones."""
        sizes = (self.shares, self.memory, self.cores)
        return self.share_class + sum(map(bool, sizes)), int(self.share_class), *sizes


def shortfall(container_request: ContainerRequest, headroom: Headroom) -> Shortfall:
    """Measure what *headroom*, on a GPU shared in software, lacks for a container.

    100 cores are the whole GPU, to be shared with nobody, even with one who asks for none:
    the rule of Volcano's deviceshare.
    """
    memory, cores, shares = _missing_amounts(container_request, headroom)
    return Shortfall(
        memory=MiB(memory),
        cores=CorePercent(cores),
        shares=shares,
        share_class=not _joins(container_request.share, headroom),
    )


def takes(container_request: ContainerRequest, headroom: Headroom) -> bool:
    """Say whether *headroom*, on a GPU shared in software, lacks nothing for a container."""
    return _missing_amounts(container_request, headroom) == _NOTHING and (
        not headroom.shares or _joins(container_request.share, headroom)
    )


def _joins(share: str, headroom: Headroom) -> bool:
    for theirs in headroom.shares:  # noqa: SIM110 -- compiled, a loop costs less than a generator
        if not may_join(share, theirs):
            return False
    return True


def _missing_amounts(
    container_request: ContainerRequest, headroom: Headroom
) -> tuple[int, int, int]:
    cores = max(0, headroom.cores + container_request.cores - WHOLE_GPU)
    if container_request.share and not books_cores(container_request.share):
        cores = 0
    elif (container_request.cores >= WHOLE_GPU and headroom.tenants) or headroom.cores >= WHOLE_GPU:
        cores = max(1, cores)
    memory = max(0, container_request.memory_on(headroom.gpu.memory) - headroom.memory)
    return memory, cores, max(0, headroom.tenants + 1 - headroom.gpu.slots)


def hardware(mode: Mode) -> Mode:
    """Return the mode that a GPU must be in to serve *mode*."""
    match mode:
        case Mode.HAMI_CORE | Mode.MEMORY_ONLY:
            return Mode.HAMI_CORE
        case Mode.MIG | Mode.MPS | Mode.SGPU | Mode.NATIVE:
            return mode
        case _:
            assert_never(mode)


def serves(container_request: ContainerRequest, offer: GpuKind, named: str | None = None) -> bool:
    """Say whether one empty GPU of a kind takes *container_request*."""
    if offer.mode is Mode.MIG:
        return smallest_sufficient(container_request, offer.board, named) is not None
    return (
        container_request.memory_on(offer.memory) <= offer.memory
        and container_request.cores <= WHOLE_GPU
    )


def holds(request: PodRequest, offer: GpuKind, count: int) -> bool:
    """Say whether *count* empty GPUs of a kind have enough for all containers of a pod at once.

    Sums only: necessary, and sufficient but for corner cases that placement finds out. Each
    container must be known to fit by itself.
    """
    container_requests = request.containers
    if sum([container_request.count for container_request in container_requests]) <= count:
        return True  # a whole GPU for each; nearly always
    if offer.mode is Mode.MIG:
        profiles = [
            smallest_sufficient(container_request, offer.board, request.profile)
            for container_request in container_requests
        ]
        sizes = [profile.profile.size for profile in profiles if profile is not None]
        return (
            offer.board is not None
            and _peak_amount(container_requests, sizes) <= count * offer.board.slots
        )
    memory = _peak_amount(
        container_requests,
        [container_request.memory_on(offer.memory) for container_request in container_requests],
    )
    cores = _peak_amount(
        container_requests, [container_request.cores for container_request in container_requests]
    )
    return memory <= count * offer.memory and cores <= count * WHOLE_GPU


def _peak_amount(container_requests: Sequence[ContainerRequest], each: Sequence[int]) -> int:
    return peak(
        container_requests,
        [
            container_request.count * amount
            for container_request, amount in zip(container_requests, each, strict=True)
        ],
    )


def peak(container_requests: Sequence[ContainerRequest], amounts: Sequence[int]) -> int:
    """Return the most that containers hold at one time, given what each holds.

    Init containers run one by one, beside the sidecars that started before them.
    """
    held = most = 0
    for container_request, amount in zip(container_requests, amounts, strict=True):
        if container_request.stage is Stage.INIT:
            most = max(most, held + amount)
        else:
            held += amount
    return max(most, held)


def soft_cost(memory: MiB, cores: CorePercent, *, total: MiB) -> int:
    """Return the thousandths of a GPU of *total* memory that a share in software withholds."""
    return max(-(-1000 * memory // total), 10 * cores)


MOST_KNOWN: Final = 8192  # GPUs, some 300 bytes each
_known: Final[dict[int, Headroom]] = {}  # by the id of its GPU, which is held as long as it is here


def headroom(gpu: Gpu) -> Headroom:
    """Return what the grants on *gpu*, and processes outside our ledger, leave.

    Kept for the next decision: a promise changes one GPU of many.
    """
    known = _known.get(id(gpu))
    if known is None:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        known = _known[id(gpu)] = _headroom(gpu)
    return known


def _headroom(gpu: Gpu) -> Headroom:
    return Headroom(
        gpu=gpu,
        memory=MiB(gpu.memory - gpu.memory_promised - gpu.foreign),
        cores=gpu.cores_promised,
        tenants=len(gpu.grants),
        taken=gpu.taken_slots,
        profiles=tuple(g.placed.profile for g in gpu.grants if g.placed is not None),
        positions=tuple(g.position for g in gpu.grants if g.position is not None),
        shares=tuple(sorted({g.share for g in gpu.grants if g.share})) or _NO_SHARES,
    )


def with_grant(headroom: Headroom, grant: Grant) -> Headroom:
    """Return *headroom* once *grant* is promised too."""
    placed, position = grant.placed, grant.position
    return Headroom(
        gpu=headroom.gpu,
        memory=MiB(headroom.memory - grant.memory),
        cores=headroom.gpu.cores_with(headroom.cores, grant.cores),
        tenants=headroom.tenants + 1,
        taken=headroom.taken if placed is None else headroom.taken | placed.mask,
        profiles=headroom.profiles if placed is None else (*headroom.profiles, placed.profile),
        positions=headroom.positions if position is None else (*headroom.positions, position),
        shares=_with_share(headroom.shares, grant.share),
    )


def _with_share(shares: tuple[str, ...], share: str) -> tuple[str, ...]:
    return tuple(sorted((*shares, share))) if share and share not in shares else shares
