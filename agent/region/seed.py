"""Seeds: the initial content of a container's region, with its limits.

The library keeps a region that has the magic number. So the agent writes the limits before the
first process starts, and the environment of a process cannot change them.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agent.region.decode import Region
from agent.region.layout import (
    MAGIC,
    MAGIC_AT,
    MOST_DEVICES,
    NODE_PID_AT,
    SEEDED,
    SEMAPHORE_SIZE,
    U64_SIZE,
    VERSIONS_AT,
)
from allocator.model.request import Priority

# A process-shared glibc semaphore of value 1, on 64-bit machines (glibc 2.21 and later).
SEMAPHORE: Final = struct.pack("<QI", 1, 0x80).ljust(SEMAPHORE_SIZE, b"\0")
NO_LIMIT: Final = 100  # percent: the library takes it for compute without a limit
LIMITS_ON: Final = 1
LAUNCHED: Final = 2  # recent kernel that the library stores at every launch that it limits
_U64_PER_DEVICE: Final = struct.Struct(f"<{MOST_DEVICES}Q")
_TAIL: Final = struct.Struct("<iiiiQ")
_U64: Final = struct.Struct("<Q")
_I32: Final = struct.Struct("<i")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """A region to be written; all other bytes are zero."""

    size: int  # of the file
    parts: tuple[tuple[int, bytes], ...]  # offsets and bytes, in the order of writing


@dataclass(frozen=True, slots=True)
class Limit:
    """The limits of one device of a container."""

    memory: int  # bytes
    cores: int  # percent of compute; 0: no limit


class UnlimitedError(ValueError):
    """A region with these limits would not limit its container."""


def seed_region(
    limits: Sequence[Limit], *, priority: Priority, now: int, semaphore: bytes = SEMAPHORE
) -> Seed:
    """Return the region of a container with *limits* by device, at *now* in Unix seconds.

    The library fills in the names of devices. Raises :class:`UnlimitedError` for a memory limit of
    0, which the library takes for none, and for more devices than it supports.
    """
    if not 0 < len(limits) <= MOST_DEVICES:
        raise UnlimitedError(f"{len(limits)} devices, expected 1 to {MOST_DEVICES}")
    if unlimited := [str(k) for k, limit in enumerate(limits) if limit.memory <= 0]:
        raise UnlimitedError(
            f"device {', '.join(unlimited)}: no memory limit, expected 1 byte or more"
        )
    memory, cores = limit_arrays(limits)
    layout = SEEDED
    major, minor = layout.version or (0, 0)
    tail = _TAIL.pack(0, LIMITS_ON, LAUNCHED, priority, now)
    return Seed(
        size=layout.size,
        parts=(
            (VERSIONS_AT, struct.pack("<II", major, minor)),
            *((at, semaphore) for at in layout.semaphores),
            (layout.memory_limits, _U64_PER_DEVICE.pack(*memory)),
            (layout.core_limits, _U64_PER_DEVICE.pack(*cores)),
            (layout.process_count, tail),
            (MAGIC_AT, _I32.pack(MAGIC)),
        ),
    )


def limit_arrays(limits: Sequence[Limit]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the arrays of memory and core limits in a region that has *limits*.

    Devices that were not promised have those of the first: so does the fallback in the environment,
    with which every process compares them, and a device that can be seen nevertheless is limited.
    """
    filled = (*limits, *[limits[0]] * (MOST_DEVICES - len(limits)))
    memory = tuple(limit.memory for limit in filled)
    return memory, tuple(limit.cores or NO_LIMIT for limit in filled)


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes to be written into a region that its container changes too."""

    at: int  # offset
    data: bytes
    after: bytes = b""  # written only if the region has these bytes right before the offset


def limit_corrections(region: Region, limits: Sequence[Limit]) -> tuple[Write, ...]:
    """Return the writes that make *region* limit its container as promised.

    Only promised devices count: an older library may have written any value for others.
    """
    return _limit_writes(region, limits, range(len(limits)))


def fallback_writes(region: Region, limits: Sequence[Limit]) -> tuple[Write, ...]:
    """Return the writes that limit the devices that were not promised, as a new region does.

    A difference is no misuse: regions that older agents seeded have no limits there.
    """
    if region.layout is not SEEDED:
        return ()
    return _limit_writes(region, limits, range(len(limits), MOST_DEVICES))


def _limit_writes(
    region: Region, limits: Sequence[Limit], devices: Iterable[int]
) -> tuple[Write, ...]:
    """Return the writes for some *devices*; compute without a limit may be stored as 0 too."""
    layout = region.layout
    memory, cores = limit_arrays(limits)
    writes = []
    for k in devices:
        if region.limits[k] != memory[k]:
            writes.append(Write(layout.memory_limits + U64_SIZE * k, _U64.pack(memory[k])))
        if (region.cores[k] or NO_LIMIT) != cores[k]:
            writes.append(Write(layout.core_limits + U64_SIZE * k, _U64.pack(cores[k])))
    return tuple(writes)


def node_pid_writes(region: Region, processes: Mapping[int, int]) -> tuple[Write, ...]:
    """Return the writes of each process's node pid into its slot.

    *processes* are pids on the node by pids in the container. The library limits no compute of a
    process whose node pid it does not know, and finds it out by itself only if no neighbour starts
    at the same moment. A slot is written only while it still belongs to the process.
    """
    layout = region.layout
    return tuple(
        Write(
            layout.slots + slot.index * layout.slot.size + NODE_PID_AT,
            _I32.pack(processes[slot.pid]),
            after=_I32.pack(slot.pid),
        )
        for slot in region.slots
        if processes.get(slot.pid, slot.node_pid) != slot.node_pid
    )


def flag_writes(region: Region, *, switch: int, recent: int) -> tuple[Write, ...]:
    """Return the writes that set the utilization switch and the recent kernel."""
    layout = region.layout
    wanted = (
        (layout.utilization_switch, region.utilization_switch, switch),
        (layout.recent_kernel, region.recent_kernel, recent),
    )
    return tuple(Write(at, _I32.pack(value)) for at, now, value in wanted if now != value)
