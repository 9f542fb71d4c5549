"""Sharing in software: which GPUs of a node take a container, the fullest first."""

from collections.abc import Iterator
from typing import Final

from allocator.core.fit import shortfall
from allocator.core.packing import Option, Rooms
from allocator.model.gpu import Grant
from allocator.model.request import ContainerRequest, Mode

WHOLE: Final = 1_000_000  # of a memory, in ranks


def options(ask: ContainerRequest, rooms: Rooms, *, mode: Mode) -> list[Option]:
    """Return one option per GPU that takes *ask*, the one left with the smallest share first."""
    return sorted(_options(ask, rooms, mode), key=lambda option: option.rank)


def emptiness(rooms: Rooms) -> int:
    """Return the free share of a node's GPU memory in millionths: binpack wants the least."""
    total = sum(room.gpu.memory for room in rooms)
    return sum(room.memory for room in rooms) * WHOLE // total


def _options(ask: ContainerRequest, rooms: Rooms, mode: Mode) -> Iterator[Option]:
    for position, room in enumerate(rooms):
        if not shortfall(ask, room):
            gpu = room.gpu
            memory = ask.memory_on(gpu.memory)
            left = (room.memory - memory) * WHOLE // gpu.memory
            grant = Grant(gpu=gpu.uuid, mode=mode, memory=memory, cores=ask.cores)
            yield Option(position=position, grant=grant, rank=(left,))
