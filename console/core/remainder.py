"""Remainders: the largest request that a GPU still takes, which is not the sum of what is free."""

from allocator.core.fit import shortfall
from allocator.core.headroom import headroom
from allocator.core.ladder import profiles_of
from allocator.core.mig import MigOptions
from allocator.model.gpu import Gpu
from allocator.model.request import ContainerRequest, Mode, Stage
from allocator.model.units import MiB


def remainder(gpu: Gpu, cutter: MigOptions) -> MiB | None:
    """Return the most MiB that one more container can have, ``None`` where it takes nobody."""
    if not gpu.healthy:
        return None
    room = headroom(gpu)
    if gpu.mode is Mode.MIG:
        rungs = sorted(profiles_of(gpu.board), key=lambda rung: -rung.memory)
        asks = (_memory_request(rung.memory) for rung in rungs)
        return next((ask.memory for ask in asks if cutter.options(ask, (room,))), None)
    return None if shortfall(_memory_request(MiB(1)), room) else room.memory


def _memory_request(memory: MiB) -> ContainerRequest:
    return ContainerRequest(name="", index=0, stage=Stage.APP, count=1, memory=memory)
