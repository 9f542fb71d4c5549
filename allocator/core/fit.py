"""Fit: what a kind of GPU takes when it is empty, and what a busy one lacks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from allocator.core.ladder import smallest_sufficient
from allocator.model.decision import Reason
from allocator.model.gpu import GpuKind
from allocator.model.headroom import Headroom
from allocator.model.request import ContainerRequest, Mode, PodRequest, Stage
from allocator.model.units import NO_CORES, NO_MEMORY, WHOLE_GPU, CorePercent, MiB

_NOTHING: Final = (0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """How far one GPU is from taking one container; false means that it takes it.

    ``shares`` counts containers over the most that may share the GPU. ``cores`` is at least 1
    where another container is in the way of an exclusive one, or an exclusive one in ours.
    """

    memory: MiB = NO_MEMORY
    cores: CorePercent = NO_CORES
    shares: int = 0

    def __bool__(self) -> bool:
        return bool(self.shares or self.memory or self.cores)

    @property
    def reason(self) -> Reason | None:
        """Return the first obstacle."""
        if self.shares:
            return Reason.SHARES_SHORT
        if self.memory:
            return Reason.MEMORY_SHORT
        return Reason.CORES_SHORT if self.cores else None

    @property
    def rank(self) -> tuple[int, ...]:
        """Lower is closer: fewer obstacles, then smaller ones."""
        sizes = (self.shares, self.memory, self.cores)
        return sum(map(bool, sizes)), *sizes


def shortfall(ask: ContainerRequest, room: Headroom) -> Shortfall:
    """Measure what *room*, on a GPU shared in software, lacks for *ask*.

    100 cores are the whole GPU, to be shared with nobody, even with one who asks for none:
    the rule of Volcano's deviceshare.
    """
    memory, cores, shares = _missing_amounts(ask, room)
    return Shortfall(memory=MiB(memory), cores=CorePercent(cores), shares=shares)


def takes(ask: ContainerRequest, room: Headroom) -> bool:
    """Say whether *room*, on a GPU shared in software, lacks nothing for *ask*."""
    return _missing_amounts(ask, room) == _NOTHING


def _missing_amounts(ask: ContainerRequest, room: Headroom) -> tuple[int, int, int]:
    cores = max(0, room.cores + ask.cores - WHOLE_GPU)
    if (ask.cores >= WHOLE_GPU and room.tenants) or room.cores >= WHOLE_GPU:
        cores = max(1, cores)
    memory = max(0, ask.memory_on(room.gpu.memory) - room.memory)
    return memory, cores, max(0, room.tenants + 1 - room.gpu.slots)


def hardware(mode: Mode) -> Mode:
    """Return the mode that a GPU must be in to serve *mode*."""
    match mode:
        case Mode.MIG:
            return Mode.MIG
        case Mode.HAMI_CORE | Mode.MEMORY_ONLY:
            return Mode.HAMI_CORE
        case _:
            assert_never(mode)


def serves(ask: ContainerRequest, offer: GpuKind, named: str | None = None) -> bool:
    """Say whether one empty GPU of a kind takes *ask*."""
    if offer.mode is Mode.MIG:
        return smallest_sufficient(ask, offer.board, named) is not None
    return ask.memory_on(offer.memory) <= offer.memory and ask.cores <= WHOLE_GPU


def holds(request: PodRequest, offer: GpuKind, count: int) -> bool:
    """Say whether *count* empty GPUs of a kind have enough for all containers of a pod at once.

    Sums only: necessary, and sufficient but for corner cases that placement finds out. Each
    container must be known to fit by itself.
    """
    asks = request.containers
    if sum([ask.count for ask in asks]) <= count:
        return True  # a whole GPU for each; nearly always
    if offer.mode is Mode.MIG:
        rungs = [smallest_sufficient(ask, offer.board, request.profile) for ask in asks]
        sizes = [rung.profile.size for rung in rungs if rung is not None]
        return offer.board is not None and _peak_amount(asks, sizes) <= count * offer.board.slots
    memory = _peak_amount(asks, [ask.memory_on(offer.memory) for ask in asks])
    cores = _peak_amount(asks, [ask.cores for ask in asks])
    return memory <= count * offer.memory and cores <= count * WHOLE_GPU


def _peak_amount(asks: Sequence[ContainerRequest], each: Sequence[int]) -> int:
    return peak(asks, [ask.count * amount for ask, amount in zip(asks, each, strict=True)])


def peak(asks: Sequence[ContainerRequest], amounts: Sequence[int]) -> int:
    """Return the most that containers hold at one time, given what each holds.

    Init containers run one by one, beside the sidecars that started before them.
    """
    held = most = 0
    for ask, amount in zip(asks, amounts, strict=True):
        if ask.stage is Stage.INIT:
            most = max(most, held + amount)
        else:
            held += amount
    return max(most, held)


def soft_cost(memory: MiB, cores: CorePercent, *, total: MiB) -> int:
    """Return the thousandths of a GPU of *total* memory that a share in software withholds."""
    return max(-(-1000 * memory // total), 10 * cores)
