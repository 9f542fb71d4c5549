"""Headroom: what is left on one GPU, as a value that a tentative grant replaces."""

from dataclasses import dataclass, replace

from allocator.model.board import Profile
from allocator.model.gpu import Gpu, Grant
from allocator.model.units import CorePercent, MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """One GPU as far as one decision has got.

    ``memory`` is free, ``cores`` are promised, ``tenants`` are containers with a grant,
    ``taken`` is the bit mask of MIG memory slots and ``profiles`` are the instances on them,
    ``positions`` what Volcano calls those that it knows.
    An instance without a grant is idle and takes nothing: it may be recut.
    """

    gpu: Gpu
    memory: MiB
    cores: CorePercent
    tenants: int
    taken: int
    profiles: tuple[Profile, ...]
    positions: tuple[str, ...]

    @property
    def likeness(self) -> tuple[object, ...]:
        """Return what, if equal, makes two GPUs interchangeable for whoever asks."""
        gpu = self.gpu
        kind = (gpu.model, gpu.board, gpu.mode, gpu.memory, gpu.slots, gpu.instances)
        names = tuple(sorted(profile.name for profile in self.profiles))
        known = gpu.deviceshare, tuple(sorted(self.positions))
        return (*kind, self.memory, self.cores, self.tenants, self.taken, names, known)


def headroom(gpu: Gpu) -> Headroom:
    """Return what the grants on *gpu*, and processes outside our ledger, leave."""
    return Headroom(
        gpu=gpu,
        memory=MiB(gpu.memory - gpu.memory_promised - gpu.foreign),
        cores=gpu.cores_promised,
        tenants=len(gpu.grants),
        taken=gpu.taken,
        profiles=tuple(g.placed.profile for g in gpu.grants if g.placed is not None),
        positions=tuple(g.position for g in gpu.grants if g.position is not None),
    )


def after(room: Headroom, grant: Grant) -> Headroom:
    """Return *room* once *grant* is promised too."""
    placed, position = grant.placed, grant.position
    return replace(
        room,
        memory=MiB(room.memory - grant.memory),
        cores=CorePercent(room.cores + grant.cores),
        tenants=room.tenants + 1,
        taken=room.taken if placed is None else room.taken | placed.mask,
        profiles=room.profiles if placed is None else (*room.profiles, placed.profile),
        positions=room.positions if position is None else (*room.positions, position),
    )
