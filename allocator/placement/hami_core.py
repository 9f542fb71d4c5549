"""Sharing in software: which GPUs of a node take a container, the fullest or emptiest first."""

from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Final

from allocator.model.allocation import Grant, Option
from allocator.model.request import ContainerRequest, FillPolicy, Mode
from allocator.model.sharing import crowding
from allocator.placement.fit import takes
from allocator.placement.packing import Headrooms
from allocator.placement.topology import prefer_close

WHOLE: Final = 1_000_000  # of a memory, in ranks
# By which a free share counts in a rank, of which the lower is better.
SIGNS: Final = MappingProxyType({FillPolicy.BINPACK: 1, FillPolicy.SPREAD: -1})


def options(
    container_request: ContainerRequest,
    headrooms: Headrooms,
    *,
    mode: Mode,
    packing: FillPolicy = FillPolicy.BINPACK,
) -> list[Option]:
    """Return one option per GPU that takes *container_request*.

    By binpack the GPU left with the smallest share comes first, by spread the one with the
    largest. Before that, GPUs come first on which the container crowds nobody of another class.
    Those that are closest together come before all where several are asked for.
    """
    ranked = sorted(_options(container_request, headrooms, mode, sign=SIGNS[packing]), key=_rank)
    return prefer_close(ranked, headrooms, count=container_request.count)


def emptiness(headrooms: Headrooms, taken: Iterable[Grant]) -> int:
    """Return what is free of a node's GPU memory once *taken* is, in millionths of it."""
    total = sum(headroom.gpu.memory for headroom in headrooms)
    free = sum(headroom.memory for headroom in headrooms) - sum(grant.memory for grant in taken)
    return free * WHOLE // total


def _options(
    container_request: ContainerRequest, headrooms: Headrooms, mode: Mode, *, sign: int
) -> Iterator[Option]:
    for position, headroom in enumerate(headrooms):
        if takes(container_request, headroom):
            gpu = headroom.gpu
            memory = container_request.memory_on(gpu.memory)
            left = (headroom.memory - memory) * WHOLE // gpu.memory
            grant = Grant(
                gpu=gpu.uuid,
                mode=mode,
                memory=memory,
                cores=container_request.cores,
                share=container_request.share,
            )
            rank: tuple[int, ...] = (sign * left,)
            if container_request.share:
                crowd = crowding(container_request.share, [g.share for g in gpu.grants])
                rank = (crowd, *rank)
            yield Option(position=position, grant=grant, rank=rank)


def _rank(option: Option) -> tuple[int, ...]:
    return option.rank
