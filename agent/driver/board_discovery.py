"""Discovery: the board of a GPU, with profile names, from the MIG profiles that the driver lists.

Profile ids are valid on one board only, GPUs of one model may differ, and a board may have 8, 4 or
12 memory slots. All of that comes from the driver, never from the name of the model.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from allocator.catalog.boards import model_named
from allocator.mig.profiles import shape_of
from allocator.model.board import Board, Profile
from allocator.model.units import MiB

MIB: Final = 1 << 20
GIB: Final = 1 << 30
# Compute slices and name attribute of NVML's GPU instance profiles, by the value of
# NVML_GPU_INSTANCE_PROFILE_* (nvml.h). REV2 of one slice has double memory, no attribute.
_NVML_PROFILES: Final = MappingProxyType(
    {
        0x00: (1, ""),
        0x01: (2, ""),
        0x02: (3, ""),
        0x03: (4, ""),
        0x04: (7, ""),
        0x05: (8, ""),
        0x06: (6, ""),
        0x07: (1, "+me"),
        0x08: (2, "+me"),
        0x09: (1, ""),
        0x0A: (1, "+gfx"),
        0x0B: (2, "+gfx"),
        0x0C: (4, "+gfx"),
        0x0D: (1, "-me"),
        0x0E: (2, "-me"),
        0x0F: (1, "+me.all"),
        0x10: (2, "+me.all"),
        0x11: (3, "+gfx"),
    }
)


@dataclass(frozen=True, slots=True)
class SlotSpan:
    """A legal placement: its first memory slot, and how many it takes."""

    start: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFacts:
    """What the driver reports of one GPU instance profile."""

    enum: int  # the NVML_GPU_INSTANCE_PROFILE_* that was queried
    id: int  # the number that all other calls take
    slices: int  # compute slices
    most: int  # highest number of instances
    sms: int
    memory: MiB
    name: str | None  # the driver's own name; None where it has none
    spans: tuple[SlotSpan, ...]  # all placements, taken or not


def board_of(model: str, facts: Iterable[ProfileFacts], *, total: int | None) -> Board | None:
    """Return the board of a GPU called *model*, ``None`` if the driver lists no placement.

    *total* is the memory of the GPU in bytes, ``None`` where the driver withholds it from a
    container that sees only MIG instances. Profiles are then named by the memory in the catalogue,
    or of the largest profile. Such a name may differ by a GB, which the catalogue treats as equal.
    """
    placeable = [fact for fact in facts if fact.spans]
    if not placeable:
        return None
    catalogue_model = model_named(model)
    largest = catalogue_model.memory if catalogue_model else max(fact.memory for fact in placeable)
    total_bytes = total or max(largest, 1) * MIB
    profiles: dict[str, Profile] = {}
    for fact in sorted(placeable, key=lambda f: f.enum):
        profile = _profile(fact, total_bytes)
        if profile is not None:
            profiles.setdefault(profile.name, profile)
    if not profiles:
        return None
    slots = max(span.start + span.size for fact in placeable for span in fact.spans)
    ordered = sorted(profiles.values(), key=lambda p: (p.slices, p.size, p.has_attribute, p.id))
    return Board(name=model, slots=slots, profiles=tuple(ordered))


def profile_name(slices: int, memory: MiB, total: int, *, attribute: str = "") -> str:
    """Return the name that NVIDIA's tools print for a profile of a GPU with *total* bytes.

    Memory counts in eighths of the board, rounded up, of its GiB, rounded up; the product is
    rounded to the nearest, half up (``getMigMemorySizeGB`` of go-nvlib).
    """
    eighths = -(-8 * memory * MIB // total)
    total_gib = -(-total // GIB)
    return f"{slices}g.{(2 * eighths * total_gib + 8) // 16}gb{attribute}"


def pci_address(bus_id: str) -> str:
    """Return ``0000:3b:00.0``, the kernel's spelling, for NVML's ``00000000:3B:00.0``."""
    domain, _, rest = bus_id.partition(":")
    return f"{int(domain, 16):04x}:{rest.lower()}"


def _profile(fact: ProfileFacts, total: int) -> Profile | None:
    name = _name(fact, total)
    if name is None:
        return None
    size = min(span.size for span in fact.spans)
    starts = tuple(sorted({span.start for span in fact.spans if span.size == size}))
    return Profile(
        name=name,
        id=fact.id,
        memory=fact.memory,
        sms=fact.sms,
        size=size,
        starts=starts,
        limit=fact.most if 0 < fact.most < _fit_count(starts, size) else None,
    )


def _name(fact: ProfileFacts, total: int) -> str | None:
    """Return the driver's own name if it is one, else the formula's.

    ``None`` for a kind of profile that is newer than this table and comes without a name.
    """
    own_name = (fact.name or "").removeprefix("MIG ").strip()
    if shape_of(own_name) is not None:
        return own_name
    meaning = _NVML_PROFILES.get(fact.enum)
    if meaning is None:
        return None
    slices, attribute = meaning
    return profile_name(slices, fact.memory, total, attribute=attribute)


def _fit_count(starts: tuple[int, ...], size: int) -> int:
    """Return how many of *size* slots fit side by side, each at one of the sorted *starts*."""
    count = free = 0
    for start in starts:
        if start >= free:
            count, free = count + 1, start + size
    return count
