"""Repairs: what two looks in a row must have seen, and that nothing else is ever written."""

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.region.decode import Region
from agent.region.layout import BY_NAME, LAYOUTS, SEEDED, Layout
from agent.region.locks import OddLock, SemaphoreWords
from agent.region.repair import (
    MOST_REPAIRS,
    BitChange,
    RegionCase,
    RegionProcesses,
    Repair,
    RepairKind,
    Symptoms,
    pids_in_doubt,
    repairs,
    symptoms_of,
)
from tests.unit.agent.region.test_decode import GPU, built_region, readable_region, set_total

SIZE = 1000  # bytes of the GPU
FREE = SemaphoreWords(1, 0)
D = BY_NAME["D"]


def region(
    *slots: tuple[int, int], layout: Layout = SEEDED, change: Callable[[bytearray], None]
) -> Region:
    """Return a region with the processes *slots*, its locks free, then changed."""
    content = built_region(layout, [GPU], slots)
    for at in layout.semaphores:
        struct.pack_into("<II", content, at, 1, 0)
    change(content)
    return readable_region(content)


def lock_at(index: int, layout: Layout = SEEDED) -> int:
    assert layout.slot.lock is not None
    return layout.slots + index * layout.slot.size + layout.slot.lock


def looked(
    now: Region,
    before: Region | None = None,
    *,
    starting: int = 0,
    dead: frozenset[int] = frozenset(),
) -> tuple[Repair, ...]:
    """Return what is repaired at a look, *before* which the region was the same if not told."""
    return repairs(
        RegionCase(
            region=now,
            before=symptoms_of(before or now, (SIZE,)),
            now=symptoms_of(now, (SIZE,)),
            processes=RegionProcesses(
                starting=starting, is_dead=dead.__contains__, held=lambda _: 300
            ),
        )
    )


def startup(value: int, waiting: int, *, layout: Layout = SEEDED) -> Region:
    def change(content: bytearray) -> None:
        struct.pack_into("<II", content, layout.semaphores[1], value, waiting)

    return region((7, 4711), layout=layout, change=change)


def slot_lock(value: int, owner: int, layout: Layout = SEEDED) -> Region:
    def change(content: bytearray) -> None:
        struct.pack_into("<II", content, layout.semaphores[0], value, 0)
        struct.pack_into("<Q", content, layout.owner, owner)

    return region((7, 4711), layout=layout, change=change)


def odd(number: int, *, pid: int = 7, layout: Layout = SEEDED) -> Region:
    def change(content: bytearray) -> None:
        struct.pack_into("<Q", content, lock_at(1, layout), number)

    return region((8, 0), (pid, 0), layout=layout, change=change)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_a_sound_region_is_left_alone(layout: Layout) -> None:
    """Whatever is known of its processes."""
    sound = region((7, 4711), (0, 0), layout=layout, change=lambda _: None)

    assert symptoms_of(sound, (SIZE,)) == Symptoms()
    assert looked(sound, dead=frozenset({0, 7})) == ()


@pytest.mark.parametrize(
    ("value", "waiting", "starting", "repaired"),
    [
        pytest.param(0, 0, 0, True, id="nobody-is-left"),
        pytest.param(0, 1, 1, True, id="the-only-one-waits"),
        pytest.param(0, 3, 1, True, id="killed-ones-had-waited"),
        pytest.param(0, 0, 1, False, id="one-may-hold-it"),
        pytest.param(0, 1, 2, False, id="one-of-two-waits"),
        pytest.param(1, 0, 0, False, id="free"),
        pytest.param(2, 0, 0, False, id="more-than-free"),
        pytest.param(2**32 - 1, 0, 0, False, id="as-large-as-can-be"),
        pytest.param(0, 2**32 - 1, 256, True, id="as-many-as-can-be-wait"),
    ],
)
@pytest.mark.parametrize("layout", [D, SEEDED], ids=["D", "E"])
def test_the_lock_of_starting_processes(
    layout: Layout, value: int, waiting: int, *, starting: int, repaired: bool
) -> None:
    """It is freed when each process that may hold it waits for it."""
    found = looked(startup(value, waiting, layout=layout), starting=starting)

    expected = Repair(
        kind=RepairKind.STARTUP_LOCK,
        at=layout.semaphores[1],
        change=BitChange.SET,
        expected=(),
    )
    assert found == ((expected,) if repaired else ())


def test_one_look_repairs_nothing() -> None:
    """What is held for a moment was not left behind."""
    sound = region((7, 4711), change=lambda _: None)
    for broken in (startup(0, 0), slot_lock(0, 0), slot_lock(0, 9), odd(3), below_zero(-1)):
        assert looked(broken, sound, dead=frozenset({7, 9})) == ()
        assert looked(sound, broken, dead=frozenset({7, 9})) == ()


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_the_lock_of_the_list_is_freed_in_two_steps(layout: Layout) -> None:
    """First the dead owner is taken out, so that the library does not free it as well."""
    named, nameless = slot_lock(0, 9, layout), slot_lock(0, 0, layout)
    (first,) = looked(named, dead=frozenset({9}))
    (second,) = looked(nameless)

    assert (first.at, first.change, first.final) == (layout.owner, bytes(8), False)
    assert first.expected == ((layout.owner, struct.pack("<Q", 9)),)
    assert (second.at, second.change, second.final) == (layout.semaphores[0], BitChange.SET, True)
    assert second.expected == ((layout.owner, bytes(8)),)
    assert looked(nameless, named) == ()


@pytest.mark.parametrize(
    ("now", "before", "dead"),
    [
        pytest.param(slot_lock(0, 9), slot_lock(0, 9), 8, id="its-owner-lives"),
        pytest.param(slot_lock(0, 9), slot_lock(0, 8), 9, id="another-owner-meanwhile"),
        pytest.param(slot_lock(1, 9), slot_lock(1, 9), 9, id="free-with-an-owner"),
        pytest.param(slot_lock(3, 0), slot_lock(3, 0), 9, id="freed-too-often"),
        pytest.param(slot_lock(0, 2**64 - 1), slot_lock(0, 2**64 - 1), 9, id="no-pid-at-all"),
    ],
)
def test_a_lock_that_somebody_may_hold_is_left_to_him(
    now: Region, before: Region, dead: int
) -> None:
    """The library holds it for moments, again and again."""
    assert looked(now, before, dead=frozenset({dead})) == ()


@pytest.mark.parametrize("layout", [D, SEEDED], ids=["D", "E"])
@pytest.mark.parametrize("pid", [7, 0, -1, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("number", [1, 2**32 - 1, 2**64 - 1])
def test_the_lock_of_a_dead_processs_counters_is_made_even(
    layout: Layout, pid: int, number: int
) -> None:
    """Only while the slot is still his, and the lock where it was found."""
    (found,) = looked(odd(number, pid=pid, layout=layout), dead=frozenset({pid}))

    at = lock_at(1, layout)
    assert (found.kind, found.at, found.change) == (RepairKind.COUNTER_LOCK, at, BitChange.CLEAR)
    assert found.expected == (
        (layout.slots + layout.slot.size, struct.pack("<i", pid)),
        (at, struct.pack("<Q", number)),
    )


def test_the_lock_of_one_that_lives_or_goes_on_is_left_alone() -> None:
    """An odd number is a change that takes no time; the next look finds another one."""
    assert looked(odd(3)) == ()
    assert looked(odd(5), odd(3), dead=frozenset({7})) == ()
    assert looked(odd(3), odd(3, pid=9), dead=frozenset({7, 9})) == ()
    assert looked(odd(4), dead=frozenset({7})) == ()


def below_zero(total: int, other: int = 0) -> Region:
    def change(content: bytearray) -> None:
        set_total(content, slot=0, device=0, total=other)
        set_total(content, slot=1, device=0, total=total % 2**64)

    return region((8, 0), (7, 0), change=change)


@pytest.mark.parametrize(
    ("total", "other", "repaired"),
    [
        pytest.param(-1, 0, True, id="below-zero"),
        pytest.param(-400, 300, True, id="more-below-than-the-other-has"),
        pytest.param(-400, 500, False, id="a-part-of-the-others-count"),
        pytest.param(SIZE + 1, 0, True, id="more-than-the-gpu-has"),
        pytest.param(SIZE, 0, False, id="all-of-the-gpu"),
        pytest.param(600, 600, False, id="each-plausible"),
        pytest.param(-(2**63), 0, True, id="as-low-as-can-be"),
    ],
)
def test_a_counter_below_zero_is_set_to_what_the_driver_sees(
    total: int, other: int, *, repaired: bool
) -> None:
    """Only where the sum cannot be: a part of what one counts may stand in another's slot."""
    found = looked(below_zero(total, other))

    at = SEEDED.slots + SEEDED.slot.size + SEEDED.slot.used + 32
    assert [(r.kind, r.at, r.change) for r in found] == (
        [(RepairKind.COUNTER, at, struct.pack("<Q", 300))] if repaired else []
    )
    if repaired:
        assert found[0].expected[1] == (at, struct.pack("<Q", total % 2**64))


def test_a_counter_is_left_alone_while_the_driver_does_not_answer() -> None:
    """Nobody knows what is right, and the size of a GPU that is not promised is not known."""
    broken = below_zero(-1)
    now = symptoms_of(broken, (SIZE,))
    processes = RegionProcesses(starting=0, is_dead=lambda _: False)

    case = RegionCase(region=broken, before=now, now=now, processes=processes)
    assert repairs(case) == ()
    assert symptoms_of(broken, (None,)) == Symptoms()


def test_who_must_be_known_to_be_dead() -> None:
    """Who holds a lock at both looks; one that exited, or is not noted, needs no proof."""
    first, second = OddLock(0, 7, 1), OddLock(1, 0, 1)
    now = Symptoms(slots_taken_by=9, odd=frozenset({first, second}))

    assert pids_in_doubt(now, now) == {7, 9}
    assert pids_in_doubt(Symptoms(), now) == frozenset()
    assert pids_in_doubt(replace(now, slots_taken_by=0), now) == {7}


def test_a_tenant_that_breaks_everything_is_repaired_in_parts() -> None:
    """256 slots with odd locks are not written at one look."""

    def change(content: bytearray) -> None:
        for index in range(256):
            struct.pack_into("<Q", content, lock_at(index), 1)

    broken = region(*[(pid, 0) for pid in range(1, 257)], change=change)

    assert len(looked(broken, dead=frozenset(range(300)))) == MOST_REPAIRS


@settings(max_examples=60)
@given(
    holes=st.lists(
        st.tuples(st.integers(0, SEEDED.size - 1), st.binary(min_size=1, max_size=64)), max_size=6
    ),
    head=st.binary(max_size=1856),
    tail=st.binary(max_size=57),
)
def test_whatever_a_tenant_writes_repairs_stay_within_the_words_they_name(
    holes: list[tuple[int, bytes]], head: bytes, tail: bytes
) -> None:
    """Each is an aligned word of a lock, a name of an owner, or a counter."""
    content = built_region(SEEDED, [GPU], [(7, 0), (8, 4711)])
    content[12 : 12 + len(head)] = head[: SEEDED.slots - 12]
    content[SEEDED.process_count + 4 : SEEDED.process_count + 4 + len(tail)] = tail
    for offset, data in holes:
        end = min(len(content), offset + len(data))
        content[max(12, offset) : end] = data[max(0, 12 - offset) : end - offset]
    try:
        broken = readable_region(content)
    except AssertionError:
        return
    sizes = tuple(SIZE for _ in broken.uuids)
    now = symptoms_of(broken, sizes)
    everything = RegionProcesses(starting=0, is_dead=lambda _: True, held=lambda _: 0)
    for repair in repairs(RegionCase(region=broken, before=now, now=now, processes=everything)):
        size = 4 if isinstance(repair.change, BitChange) else len(repair.change)
        assert repair.at % size == 0
        assert SEEDED.owner <= repair.at
        assert repair.at + size <= SEEDED.region_size
