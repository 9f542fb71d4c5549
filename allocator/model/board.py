"""Boards: how one GPU model may be cut into MIG instances, and where each may sit."""

from dataclasses import dataclass, field

from allocator.model.units import MiB
from allocator.model.value import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A MIG profile of one board, as NVML reports it."""

    name: str  # such as 1g.10gb+me
    id: int  # NVML's GPU-instance profile id; differs between boards
    memory: MiB
    sms: int  # multiprocessors
    size: int  # memory slots that an instance takes
    starts: tuple[int, ...]  # memory slots at which an instance may start
    # The driver's limit on instances of this profile, where the placements alone do not imply it
    # (media profiles).
    limit: int | None = None

    @property
    def slices(self) -> int:
        """Return the number of compute slices: the number before ``g`` in the name."""
        return int(self.name.partition("g.")[0].rpartition("c.")[2])

    @property
    def has_attribute(self) -> bool:
        """Say whether the name carries an attribute such as ``+me`` or ``-me``."""
        return "+" in self.name or "-" in self.name

    @property
    def graphics(self) -> bool:
        """Say whether its instances can render; only those get the DRM device files."""
        return self.name.endswith("+gfx")

    def mask(self, start: int) -> int:
        """Return the memory slots taken at *start* as a bit mask."""
        return ((1 << self.size) - 1) << start

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The MIG profiles of one GPU model."""

    name: str
    slots: int  # memory slots
    profiles: tuple[Profile, ...]  # smallest first
    # Computed once: boards are keys of tables on the hot path. Of all its content, because a node
    # may report any number of boards under the name of an honest one.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the hash."""
        object.__setattr__(self, "_hash", hash((self.name, self.slots, self.profiles)))

    def __hash__(self) -> int:
        """Return the hash of its content."""
        return self._hash

    @property
    def sms(self) -> int:
        """Return the multiprocessors of the largest profile, on which compute shares are based."""
        return max(profile.sms for profile in self.profiles)

    @property
    def plain(self) -> tuple[Profile, ...]:
        """Return the profiles that are used unless the user names another one.

        Left out are the scarce media, graphics and double-memory variants: those with an
        attribute in the name, or with more memory slots than the same compute needs.
        """
        least = {p.slices: p.size for p in sorted(self.profiles, key=lambda p: -p.size)}
        return tuple(p for p in self.profiles if not p.has_attribute and p.size == least[p.slices])

    def profile(self, name: str) -> Profile | None:
        """Return the profile called exactly *name*."""
        return next((p for p in self.profiles if p.name == name), None)


class Placement(Value, frozen=True):
    """A profile at a start slot, as the agent requests it from NVML."""

    profile: Profile
    start: int  # memory slot

    @property
    def mask(self) -> int:
        """Return the memory slots it takes as a bit mask."""
        return self.profile.mask(self.start)
