"""Headroom: what is left on one GPU, as a value that a tentative grant replaces."""

from allocator.model.board import Profile
from allocator.model.gpu import Gpu
from allocator.model.units import CorePercent, MiB
from allocator.model.value import Value


class Headroom(Value, frozen=True):
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
