"""Repairs: what to write into a region whose processes were killed at a bad moment.

The library does not free what a killed process held: the next process waits 330 seconds for the
lock of starting processes and then crashes, or spins for ever in its first allocation. Each repair
needs two looks in a row that saw the same, and for what a process holds, that it is dead. It is one
write of one aligned word, and does no harm to a region in which the library has gone on meanwhile.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from agent.region.decode import Region
from agent.region.layout import OWN_PID_AT, TOTAL_AT
from agent.region.locks import OddLock

MOST_REPAIRS: Final = 64  # of one region at one look
_WRAPS_AT: Final = 2**64  # the library adds up in as many bits
_U64: Final = struct.Struct("<Q")
_I32: Final = struct.Struct("<i")


class RepairKind(StrEnum):
    """What was repaired. Public API: a metric's label."""

    STARTUP_LOCK = "startup-lock"  # a process was killed while it looked for its node pid
    SLOT_LOCK = "slot-lock"  # a process was killed while it changed the list of processes
    COUNTER_LOCK = "counter-lock"  # a process was killed while it counted an allocation
    COUNTER = "counter"  # a process freed more than it had counted
    FILE = "file"  # the region was deleted or replaced


class BitChange(StrEnum):
    """An atomic change of the lowest bit of a word; doing it twice is doing it once."""

    SET = "set"
    CLEAR = "clear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One write, done only if the region still has the *expected* bytes at their offsets."""

    kind: RepairKind
    at: int  # offset of an aligned word
    change: BitChange | bytes
    expected: tuple[tuple[int, bytes], ...]
    # whether the region is as it should be afterwards: one repair may need two writes
    final: bool = True


@dataclass(frozen=True, slots=True, order=True)
class WrongCounter:
    """A process's memory on one device that is larger than the device."""

    index: int  # of the slot
    pid: int  # in the container
    device: int  # number in the region


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptoms:
    """What one look saw amiss in a region."""

    startup_taken: bool = False
    slots_taken_by: int | None = None  # the owner; 0: taken, and no owner is noted; None: free
    odd: frozenset[OddLock] = frozenset()
    counters: frozenset[WrongCounter] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionProcesses:
    """What is known of the processes of a region."""

    starting: int  # living ones that may be at their start, of which some may wait
    is_dead: Callable[[int], bool]  # by the pid in the container; false where it is not sure
    # bytes that the driver sees a process hold of a device of the region; None: it does not say
    held: Callable[[WrongCounter], int | None] = field(default=lambda _: None)


def symptoms_of(region: Region, sizes: tuple[int | None, ...]) -> Symptoms:
    """Return what is amiss in *region*; *sizes* are the bytes of its devices, ``None``: unknown.

    One process's counter may be below zero, because the library may move what another one counts.
    It is wrong only if the sum, which the library compares with the limit, cannot be.
    """
    locks = region.locks
    wrong_devices = {
        device: size
        for device, size in enumerate(sizes)
        if size is not None
        and sum(slot.uses[device].total for slot in region.slots) % _WRAPS_AT > size
    }
    return Symptoms(
        startup_taken=locks.startup is not None and locks.startup.value == 0,
        slots_taken_by=locks.owner if locks.slots.value == 0 else None,
        odd=frozenset(locks.odd),
        counters=frozenset(
            WrongCounter(slot.index, slot.pid, device)
            for slot in region.slots
            for device, size in wrong_devices.items()
            if slot.uses[device].total > size
        ),
    )


def pids_in_doubt(before: Symptoms, now: Symptoms) -> frozenset[int]:
    """Return the pids in the container of whom a repair needs to know whether they are dead."""
    holders = {odd.pid for odd in before.odd & now.odd}
    if before.slots_taken_by == now.slots_taken_by and now.slots_taken_by is not None:
        holders.add(now.slots_taken_by)
    return frozenset(holders - {0})


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionCase:
    """A region with the symptoms of two looks in a row."""

    region: Region
    before: Symptoms
    now: Symptoms
    processes: RegionProcesses


def repairs(case: RegionCase) -> tuple[Repair, ...]:
    """Return what to write into a region."""
    found = [
        *_startup_lock(case),
        *_slot_lock(case),
        *_counter_locks(case),
        *_counters(case),
    ]
    return tuple(found[:MOST_REPAIRS])


def _startup_lock(case: RegionCase) -> Iterator[Repair]:
    """Free the lock of starting processes if each of those that may hold it waits for it.

    If one holds it nevertheless, two look for their node pids at once, and may take each other's:
    the agent corrects those.
    """
    lock = case.region.locks.startup
    if (
        lock is not None
        and case.before.startup_taken
        and case.now.startup_taken
        and case.processes.starting <= lock.waiting
    ):
        at = case.region.layout.semaphores[1]
        yield Repair(kind=RepairKind.STARTUP_LOCK, at=at, change=BitChange.SET, expected=())


def _slot_lock(case: RegionCase) -> Iterator[Repair]:
    """Free the lock of the list, of which the library frees only what has a dead owner.

    It frees that after ten seconds, if nobody has taken the owner's name out before. So the name is
    taken out first, and the lock is freed at a later look that still finds it without an owner.
    """
    layout, owner = case.region.layout, case.now.slots_taken_by
    if owner is None or owner != case.before.slots_taken_by:
        return
    noted = (layout.owner, _U64.pack(owner))
    if owner == 0:
        yield Repair(
            kind=RepairKind.SLOT_LOCK,
            at=layout.semaphores[0],
            change=BitChange.SET,
            expected=(noted,),
        )
    elif case.processes.is_dead(owner):
        yield Repair(
            kind=RepairKind.SLOT_LOCK,
            at=layout.owner,
            change=_U64.pack(0),
            expected=(noted,),
            final=False,
        )


def _counter_locks(case: RegionCase) -> Iterator[Repair]:
    """Make the locks of dead processes' counters even."""
    layout = case.region.layout
    for odd in sorted(case.before.odd & case.now.odd):
        if layout.slot.lock is not None and (odd.pid == 0 or case.processes.is_dead(odd.pid)):
            slot = layout.slots + odd.index * layout.slot.size
            yield Repair(
                kind=RepairKind.COUNTER_LOCK,
                at=slot + layout.slot.lock,
                change=BitChange.CLEAR,
                expected=(
                    (slot + OWN_PID_AT, _I32.pack(odd.pid)),
                    (slot + layout.slot.lock, _U64.pack(odd.number)),
                ),
            )


def _counters(case: RegionCase) -> Iterator[Repair]:
    """Set counters below zero to what the driver sees.

    With a sum below zero the library lets no process of the container allocate any more.
    """
    layout = case.region.layout
    for wrong in sorted(
        case.before.counters & case.now.counters, key=lambda w: (w.index, w.device)
    ):
        held = case.processes.held(wrong)
        if held is not None:
            slot = layout.slots + wrong.index * layout.slot.size
            at = slot + layout.slot.used + wrong.device * layout.slot.stride + TOTAL_AT
            total = _total(case.region, wrong)
            yield Repair(
                kind=RepairKind.COUNTER,
                at=at,
                change=_U64.pack(held),
                expected=((slot + OWN_PID_AT, _I32.pack(wrong.pid)), (at, _U64.pack(total))),
            )


def _total(region: Region, counter: WrongCounter) -> int:
    """Return the bytes that a counter of *region* has, 0 where there is no such process."""
    totals = [s.uses[counter.device].total for s in region.slots if s.index == counter.index]
    return totals[0] if totals else 0
