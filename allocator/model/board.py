"""Boards: how one GPU model may be cut into MIG instances, and where each may sit."""

from dataclasses import dataclass

from allocator.model.units import MiB
from allocator.model.value import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A MIG shape of one board, as NVML reports it.

    ``id`` is NVML's GPU-instance profile id, which means something on this board only.
    ``size`` and ``starts`` are memory slots. ``limit`` is the driver's cap on instances of
    this profile where placements alone do not imply it (the media profiles), else ``None``.
    """

    name: str
    id: int
    memory: MiB
    sms: int
    size: int
    starts: tuple[int, ...]
    limit: int | None = None

    @property
    def slices(self) -> int:
        """Return the compute slices, the ``g`` number of the name."""
        return int(self.name.partition("g.")[0].rpartition("c.")[2])

    @property
    def has_attribute(self) -> bool:
        """Say whether the name carries an attribute such as ``+me`` or ``-me``."""
        return "+" in self.name or "-" in self.name

    @property
    def graphics(self) -> bool:
        """Say whether its instances draw: only those reach the DRM files."""
        return self.name.endswith("+gfx")

    def mask(self, start: int) -> int:
        """Return the memory slots taken at *start* as a bit mask."""
        return ((1 << self.size) - 1) << start

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The MIG shape table of one GPU model; profiles are listed smallest first."""

    name: str
    slots: int
    profiles: tuple[Profile, ...]

    def __hash__(self) -> int:
        """Hash the name alone: boards are keys of tables on the hot path, names rarely collide."""
        return hash(self.name)

    @property
    def sms(self) -> int:
        """Return the multiprocessors of the largest profile: compute shares refer to it."""
        return max(profile.sms for profile in self.profiles)

    @property
    def plain(self) -> tuple[Profile, ...]:
        """Return the profiles given out unless the user names another one.

        Media, graphics and double-memory variants are scarce siblings of a plain profile:
        an attribute in the name, or more memory slots than the same compute needs.
        """
        least = {p.slices: p.size for p in sorted(self.profiles, key=lambda p: -p.size)}
        return tuple(p for p in self.profiles if not p.has_attribute and p.size == least[p.slices])

    def profile(self, name: str) -> Profile | None:
        """Return the profile called exactly *name*."""
        return next((p for p in self.profiles if p.name == name), None)


class Placement(Value, frozen=True):
    """A profile at a start slot: what the agent asks NVML for and must get back."""

    profile: Profile
    start: int

    @property
    def mask(self) -> int:
        """Return the memory slots it takes as a bit mask."""
        return self.profile.mask(self.start)
