"""Locks in a region: their words, as the library's processes left them.

A process that is killed leaves what it held. Two of the locks are semaphores of the C library, a
third guards each process's counters: its number is odd while they are being changed.
"""

import struct
from dataclasses import dataclass
from typing import Final

from agent.region.layout import OWN_PID_AT, Layout

# The words of a semaphore of glibc 2.21 or later on 64-bit machines: value and waiting threads.
_SEMAPHORE: Final = struct.Struct("<II")
_U64: Final = struct.Struct("<Q")
_I32: Final = struct.Struct("<i")


@dataclass(frozen=True, slots=True)
class SemaphoreWords:
    """One semaphore; a lock that is free has the value 1."""

    value: int
    waiting: int  # threads; those that were killed while they waited are still counted


@dataclass(frozen=True, slots=True, order=True)
class OddLock:
    """The lock of one process's counters, found in the middle of a change."""

    index: int  # of the slot
    pid: int  # of the process in the container; 0: it exited
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionLocks:
    """All locks of a region, and who holds them as far as the region says."""

    slots: SemaphoreWords  # guards the list of processes
    owner: int  # pid in the container of who holds ``slots``; 0: nobody says so
    startup: SemaphoreWords | None  # held while a process finds its node pid; None: there is none
    odd: tuple[OddLock, ...] = ()


def locks_of(layout: Layout, *, header: bytes, slots: bytes, tail: bytes) -> RegionLocks:
    """Decode the locks; *slots* are the records of all processes that the region counts."""

    def semaphore(at: int) -> SemaphoreWords:
        if at < layout.slots:
            return SemaphoreWords(*_SEMAPHORE.unpack_from(header, at))
        return SemaphoreWords(*_SEMAPHORE.unpack_from(tail, at - layout.process_count))

    slots_lock, *startup_lock = map(semaphore, layout.semaphores)
    return RegionLocks(
        slots=slots_lock,
        owner=_U64.unpack_from(header, layout.owner)[0],
        startup=startup_lock[0] if startup_lock else None,
        odd=_odd_locks(layout, slots),
    )


def _odd_locks(layout: Layout, slots: bytes) -> tuple[OddLock, ...]:
    if layout.slot.lock is None:
        return ()
    odd = []
    for index in range(len(slots) // layout.slot.size):
        at = index * layout.slot.size
        number = _U64.unpack_from(slots, at + layout.slot.lock)[0]
        if number % 2:
            pid = _I32.unpack_from(slots, at + OWN_PID_AT)[0]
            odd.append(OddLock(index=index, pid=pid, number=number))
    return tuple(odd)
