"""Regions: decoding the memory that a container shares with its interception library.

A tenant can write those bytes. Reading any bytes returns a value and never raises: implausible
values are left out and counted, and a region of unknown layout is ``Unreadable``.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from agent.region.layout import (
    LAYOUTS,
    MAGIC,
    MOST_DEVICES,
    MOST_PROCESSES,
    NODE_PID_AT,
    OWN_PID_AT,
    RUNNING,
    SM_UTIL_AT,
    UUID_SIZE,
    Layout,
    Tail,
)
from agent.region.locks import RegionLocks, SemaphoreWords, locks_of

IDENTIFYING_BYTES: Final = 12  # bytes from which, with the size, the layout is known
# Slots that are read: more contexts than fit on a GPU, and few enough that a tenant who fills
# them all costs the agent little.
MOST_SLOTS_READ: Final = 256
_HEX: Final = frozenset("0123456789abcdefABCDEF-")
_U64_PER_DEVICE: Final = struct.Struct(f"<{MOST_DEVICES}Q")
_TAIL_FORMAT: Final = struct.Struct("<iiii")
_U64: Final = struct.Struct("<Q")
_I32: Final = struct.Struct("<i")
# context, module, data, offset and total, in bytes (device_memory_t of hami-core)
_USED: Final = struct.Struct("<5Q")
_FREE: Final = RegionLocks(slots=SemaphoreWords(1, 0), owner=0, startup=SemaphoreWords(1, 0))


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A region that cannot be read."""

    why: str
    missing: bool = False  # there is no file


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """What one process says it uses of one device, in bytes."""

    total: int
    context: int = 0
    module: int = 0
    data: int = 0
    utilization: int | None = None  # percent of compute


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionSlot:
    """The record of one process."""

    index: int  # of the record in the region
    pid: int  # in the container
    node_pid: int  # on the node; 0: unknown
    running: bool
    uses: tuple[DeviceUse, ...]  # by device of the region


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """What a region says."""

    layout: Layout
    # By the library's number of the device; None: no valid name. Empty until a process has asked.
    uuids: tuple[str | None, ...]
    limits: tuple[int, ...]  # bytes by device, 16 elements; 0: no limit
    cores: tuple[int, ...]  # percent by device, 16 elements
    slots: tuple[RegionSlot, ...]
    utilization_switch: int
    recent_kernel: int
    priority: int
    last_kernel: int | None  # Unix seconds; None: unknown
    locks: RegionLocks = _FREE


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionReading:
    """One file of a container's directory, and its content."""

    name: str
    region: Region | Unreadable
    excess: int = 0  # bytes that were cut off the file


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionBytes:
    """The parts of a file that are read."""

    header: bytes  # all before the slots
    slots: bytes  # those that are taken
    tail: bytes  # all after the slots


def layout_of(size: int, head: bytes) -> Layout | Unreadable:
    """Return the layout of a file of *size* bytes that begins with *head* (12 bytes)."""
    if len(head) < IDENTIFYING_BYTES:
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
    """Return how many slots to read, from the count in the *tail* of a region."""
    if len(tail) < layout.region_size - layout.process_count:
        return Unreadable(f"truncated at {layout.process_count + len(tail)} bytes")
    taken = Tail._make(_TAIL_FORMAT.unpack_from(tail)).process_count
    if 0 <= taken <= MOST_PROCESSES:
        return min(taken, MOST_SLOTS_READ)
    return Unreadable(f"{taken} process slots, expected 0 to {MOST_PROCESSES}")


def region_of(layout: Layout, windows: RegionBytes) -> Region | Unreadable:
    """Decode the parts of a file of *layout*."""
    taken = slots_taken(layout, windows.tail)
    if isinstance(taken, Unreadable):
        return taken
    if len(windows.header) < layout.slots or len(windows.slots) < taken * layout.slot.size:
        return Unreadable("truncated while being read")
    devices = _U64.unpack_from(windows.header, layout.device_count)[0]
    if devices > MOST_DEVICES:
        return Unreadable(f"{devices} devices, expected at most {MOST_DEVICES}")
    tail = Tail._make(_TAIL_FORMAT.unpack_from(windows.tail))
    return Region(
        layout=layout,
        uuids=tuple(_uuid(windows.header, layout.uuids + i * UUID_SIZE) for i in range(devices)),
        limits=_U64_PER_DEVICE.unpack_from(windows.header, layout.memory_limits),
        cores=_U64_PER_DEVICE.unpack_from(windows.header, layout.core_limits),
        slots=_slots(layout, windows.slots, taken=taken, devices=devices),
        utilization_switch=tail.utilization_switch,
        recent_kernel=tail.recent_kernel,
        priority=tail.priority,
        last_kernel=_last_kernel(layout, windows.tail),
        locks=locks_of(
            layout,
            header=windows.header,
            slots=windows.slots[: taken * layout.slot.size],
            tail=windows.tail,
        ),
    )


def _last_kernel(layout: Layout, tail: bytes) -> int | None:
    if layout.last_kernel is None:
        return None
    return _U64.unpack_from(tail, layout.last_kernel - layout.process_count)[0] or None


def _uuid(header: bytes, at: int) -> str | None:
    """Return the name of a GPU or MIG instance at an offset, ``None`` for any other text."""
    text = header[at : at + UUID_SIZE].partition(b"\0")[0].decode("ascii", errors="replace")
    kind, _, rest = text.partition("-")
    return text if kind in {"GPU", "MIG"} and rest and _HEX.issuperset(rest) else None


def _slots(layout: Layout, data: bytes, *, taken: int, devices: int) -> tuple[RegionSlot, ...]:
    """Decode the slots in use; the pid is 0 in a slot whose process has ended."""
    slots = []
    for index in range(taken):
        at = index * layout.slot.size
        pid = _I32.unpack_from(data, at + OWN_PID_AT)[0]
        node_pid = _I32.unpack_from(data, at + NODE_PID_AT)[0]
        if pid > 0:
            status = _I32.unpack_from(data, at + layout.slot.status)[0]
            uses = tuple(_use(layout, data, (at, device)) for device in range(devices))
            slot = RegionSlot(
                index=index,
                pid=pid,
                node_pid=max(0, node_pid),
                running=status == RUNNING,
                uses=uses,
            )
            slots.append(slot)
    return tuple(slots)


def _use(layout: Layout, data: bytes, slot_and_device: tuple[int, int]) -> DeviceUse:
    slot_layout = layout.slot
    slot_at, device = slot_and_device
    context, module, content, _, total = _USED.unpack_from(
        data, slot_at + slot_layout.used + device * slot_layout.stride
    )
    utilization = None
    if slot_layout.utilization is not None:
        at = (
            slot_at + slot_layout.utilization + device * slot_layout.utilization_stride + SM_UTIL_AT
        )
        utilization = _U64.unpack_from(data, at)[0]
    return DeviceUse(
        total=total, context=context, module=module, data=content, utilization=utilization
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTotals:
    """What a container's live processes use of one GPU, in bytes."""

    total: int = 0
    context: int = 0
    module: int = 0
    data: int = 0
    utilization: int | None = None  # percent of compute
    corrupt: int = 0  # totals larger than the GPU, which count as 0


def totals(
    region: Region,
    sizes: Mapping[str, int],
    is_alive: Callable[[RegionSlot], bool],
    *,
    moved: Mapping[int, str] = MappingProxyType({}),
) -> dict[str, GpuTotals]:
    """Return by GPU the sum of what live processes use; *sizes* are the GPUs' bytes.

    A library that frees memory twice underflows to nearly 2**64, so a value larger than the GPU
    counts as 0. A name that is not in *sizes*, or occurs again, is not believed. What a slot in
    *moved* uses of any GPU counts for the one that is named there.
    """
    slots = [slot for slot in region.slots if is_alive(slot)]
    uses: dict[str, list[DeviceUse]] = {}
    for device, uuid in enumerate(region.uuids):
        if uuid is not None and uuid in sizes and uuid not in uses:
            uses[uuid] = [slot.uses[device] for slot in slots if slot.index not in moved]
    for slot in slots:
        if (gpu := moved.get(slot.index)) in uses:
            uses[gpu].extend(use for use in slot.uses if use.total)
    return {uuid: _total(of_gpu, sizes[uuid]) for uuid, of_gpu in uses.items()}


def _total(uses: Sequence[DeviceUse], size: int) -> GpuTotals:
    corrupt = sum(use.total > size for use in uses)
    measured = [use.utilization for use in uses if use.utilization is not None]
    return GpuTotals(
        total=_plausible_sum((use.total for use in uses), size),
        context=_plausible_sum((use.context for use in uses), size),
        module=_plausible_sum((use.module for use in uses), size),
        data=_plausible_sum((use.data for use in uses), size),
        utilization=min(100, _plausible_sum(measured, 100)) if measured else None,
        corrupt=corrupt,
    )


def _plausible_sum(figures: Iterable[int], most: int) -> int:
    return sum(figure for figure in figures if figure <= most)
