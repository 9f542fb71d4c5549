"""Regions: decoding the memory that a container shares with its interception library.

A tenant can write those bytes. Reading any bytes returns a value and never raises: implausible
values are left out and counted, and a region of unknown layout is ``Unreadable``.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agent.region.layout import LAYOUTS, MAGIC, MOST_DEVICES, MOST_PROCESSES, UUID_SIZE, Layout

HEAD: Final = 12  # bytes from which, with the size, the layout is known
# Slots that are read: more contexts than fit on a GPU, and few enough that a tenant who fills
# them all costs the agent little.
MOST_READ: Final = 256
_HEX: Final = frozenset("0123456789abcdefABCDEF-")
_LIMITS: Final = struct.Struct(f"<{MOST_DEVICES}Q")
_TAIL: Final = struct.Struct("<iiii")
_WORD: Final = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A region that cannot be read, and why; it is not even a file where it is ``missing``."""

    why: str
    missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What one process says it uses of one device: bytes, and percent of compute."""

    total: int
    context: int = 0
    module: int = 0
    data: int = 0
    utilization: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A process's record: number *index* in the region, the process by its own and the node's id.

    ``node_pid`` is 0 while unknown. ``uses`` has as many elements as the region has devices.
    """

    index: int
    pid: int
    node_pid: int
    running: bool
    uses: tuple[Use, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """What a region says.

    ``uuids`` are its devices in the order in which the library numbers them, ``None`` where the
    name is none; empty until a process has asked for its devices. ``limits`` (bytes, 0 is none)
    and ``cores`` (percent) have 16 elements. ``last_kernel`` is in Unix seconds, ``None`` where
    unknown.
    """

    layout: Layout
    uuids: tuple[str | None, ...]
    limits: tuple[int, ...]
    cores: tuple[int, ...]
    slots: tuple[Slot, ...]
    switch: int
    recent: int
    priority: int
    last_kernel: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionBytes:
    """The parts of a file that are read: all before the slots, the slots taken, all after them."""

    header: bytes
    slots: bytes
    tail: bytes


def layout_of(size: int, head: bytes) -> Layout | Unreadable:
    """Return the layout of a file of *size* bytes that begins with *head* (12 bytes)."""
    if len(head) < HEAD:
        return Unreadable(f"{size} bytes are too few for a region")
    magic, major, minor = struct.unpack_from("<iII", head)
    if magic == 0:
        return Unreadable("not initialized yet: no magic number")
    if magic != MAGIC:
        return Unreadable(f"magic number is {magic}, expected {MAGIC}")
    for layout in LAYOUTS:
        if layout.size == size and layout.version in {None, (major, minor)}:
            return layout
    return Unreadable(f"unknown layout: {size} bytes, version {major}.{minor}")


def slots_taken(layout: Layout, tail: bytes) -> int | Unreadable:
    """Return how many slots to read, by what the *tail* of a region says are taken."""
    if len(tail) < layout.size - 1 - layout.process_count:
        return Unreadable(f"truncated at {layout.process_count + len(tail)} bytes")
    taken = int(_TAIL.unpack_from(tail)[0])
    if 0 <= taken <= MOST_PROCESSES:
        return min(taken, MOST_READ)
    return Unreadable(f"{taken} process slots, expected 0 to {MOST_PROCESSES}")


def region_of(layout: Layout, windows: RegionBytes) -> Region | Unreadable:
    """Return what *windows* of a file of *layout* say."""
    taken = slots_taken(layout, windows.tail)
    if isinstance(taken, Unreadable):
        return taken
    if len(windows.header) < layout.slots or len(windows.slots) < taken * layout.slot.size:
        return Unreadable("truncated while being read")
    devices = _WORD.unpack_from(windows.header, layout.device_count)[0]
    if devices > MOST_DEVICES:
        return Unreadable(f"{devices} devices, expected at most {MOST_DEVICES}")
    _, switch, recent, priority = _TAIL.unpack_from(windows.tail)
    return Region(
        layout=layout,
        uuids=tuple(_uuid(windows.header, layout.uuids + i * UUID_SIZE) for i in range(devices)),
        limits=_LIMITS.unpack_from(windows.header, layout.memory_limits),
        cores=_LIMITS.unpack_from(windows.header, layout.core_limits),
        slots=_slots(layout, windows.slots, taken=taken, devices=devices),
        switch=switch,
        recent=recent,
        priority=priority,
        last_kernel=_last_kernel(layout, windows.tail),
    )


def _last_kernel(layout: Layout, tail: bytes) -> int | None:
    if layout.last_kernel is None:
        return None
    return _WORD.unpack_from(tail, layout.last_kernel - layout.process_count)[0] or None


def _uuid(header: bytes, at: int) -> str | None:
    """Return the name of a GPU or MIG instance at an offset, ``None`` for any other text."""
    text = header[at : at + UUID_SIZE].partition(b"\0")[0].decode("ascii", errors="replace")
    kind, _, rest = text.partition("-")
    return text if kind in {"GPU", "MIG"} and rest and _HEX.issuperset(rest) else None


def _slots(layout: Layout, data: bytes, *, taken: int, devices: int) -> tuple[Slot, ...]:
    """Decode the slots that a process stands in; one whose process left has number 0."""
    found = []
    for index in range(taken):
        at = index * layout.slot.size
        pid, node_pid = struct.unpack_from("<ii", data, at)
        if pid > 0:
            status = struct.unpack_from("<i", data, at + layout.slot.status)[0]
            uses = tuple(_use(layout, data, (at, device)) for device in range(devices))
            slot = Slot(
                index=index, pid=pid, node_pid=max(0, node_pid), running=status == 1, uses=uses
            )
            found.append(slot)
    return tuple(found)


def _use(layout: Layout, data: bytes, place: tuple[int, int]) -> Use:
    shape = layout.slot
    slot, device = place
    context, module, content, _, total = struct.unpack_from(
        "<5Q", data, slot + shape.used + device * shape.stride
    )
    utilization = None
    if shape.utilization is not None:
        at = slot + shape.utilization + device * shape.utilization_stride + 16
        utilization = _WORD.unpack_from(data, at)[0]
    return Use(total=total, context=context, module=module, data=content, utilization=utilization)


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What a container's live processes use of one GPU, in bytes and percent.

    ``corrupt`` counts figures that no GPU of this size could have reached.
    """

    total: int = 0
    context: int = 0
    module: int = 0
    data: int = 0
    utilization: int | None = None
    corrupt: int = 0


def totals(
    region: Region, sizes: Mapping[str, int], alive: Callable[[Slot], bool]
) -> dict[str, Total]:
    """Add up by GPU what live processes use of those in *sizes* (bytes).

    A library that frees what it counted twice underflows to nearly 2**64; a figure beyond the
    GPU's size counts as 0. A name that is not in *sizes*, or the second of its kind, is the
    tenant's invention.
    """
    slots = [slot for slot in region.slots if alive(slot)]
    found: dict[str, Total] = {}
    for device, uuid in enumerate(region.uuids):
        if uuid is not None and uuid in sizes and uuid not in found:
            found[uuid] = _total([slot.uses[device] for slot in slots], sizes[uuid])
    return found


def _total(uses: Sequence[Use], size: int) -> Total:
    corrupt = sum(use.total > size for use in uses)
    measured = [use.utilization for use in uses if use.utilization is not None]
    return Total(
        total=_sum((use.total for use in uses), size),
        context=_sum((use.context for use in uses), size),
        module=_sum((use.module for use in uses), size),
        data=_sum((use.data for use in uses), size),
        utilization=min(100, _sum(measured, 100)) if measured else None,
        corrupt=corrupt,
    )


def _sum(figures: Iterable[int], most: int) -> int:
    return sum(figure for figure in figures if figure <= most)
