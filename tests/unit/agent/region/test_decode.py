"""Regions: what was written is read, and nothing that a tenant writes is believed or feared."""

import struct
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.region.decode import (
    IDENTIFYING_BYTES,
    MOST_SLOTS_READ,
    GpuTotals,
    Region,
    RegionBytes,
    Unreadable,
    layout_of,
    region_of,
    slots_taken,
    totals,
)
from agent.region.layout import BY_NAME, LAYOUTS, MAGIC, MOST_DEVICES, SEEDED, Layout
from agent.region.seed import (
    Limit,
    Seed,
    UnlimitedError,
    Write,
    fallback_writes,
    flag_writes,
    limit_arrays,
    limit_corrections,
    node_pid_writes,
    seed_region,
)
from allocator.model.request import Priority

GPU = "GPU-6b1f0000-0000-4000-8000-000000000000"
OTHER = "GPU-6b1f0000-0000-4000-8000-000000000001"
LIMITS = st.lists(
    st.builds(Limit, memory=st.integers(1, 2**63), cores=st.integers(0, 100)),
    min_size=1,
    max_size=16,
)
FEW = settings(max_examples=30)  # a region has two megabytes


def region_bytes(seed: Seed) -> bytearray:
    content = bytearray(seed.size)
    for offset, data in seed.parts:
        content[offset : offset + len(data)] = data
    return content


def read_region(content: bytes | bytearray) -> Region | Unreadable:
    """Read a whole file the way the agent reads windows of it."""
    data = bytes(content)
    layout = layout_of(len(data), data[:IDENTIFYING_BYTES])
    if isinstance(layout, Unreadable):
        return layout
    tail = data[layout.process_count :]
    taken = slots_taken(layout, tail)
    if isinstance(taken, Unreadable):
        return taken
    slots = data[layout.slots : layout.slots + taken * layout.slot.size]
    return region_of(layout, RegionBytes(header=data[: layout.slots], slots=slots, tail=tail))


def readable_region(content: bytes | bytearray) -> Region:
    region = read_region(content)
    assert isinstance(region, Region)
    return region


def with_writes(content: bytearray, writes: Sequence[Write]) -> bytearray:
    for write in writes:
        assert content[write.at - len(write.after) : write.at] == write.after
        content[write.at : write.at + len(write.data)] = write.data
    return content


def built_region(
    layout: Layout, uuids: Sequence[str], slots: Sequence[tuple[int, int]]
) -> bytearray:
    """Build a region by hand: devices, and processes by their own and the node's number."""
    content = bytearray(layout.size)
    struct.pack_into("<i", content, 0, MAGIC)
    if layout.version is not None:
        struct.pack_into("<II", content, 4, *layout.version)
    struct.pack_into("<Q", content, layout.device_count, len(uuids))
    for k, uuid in enumerate(uuids):
        struct.pack_into("96s", content, layout.uuids + 96 * k, uuid.encode())
    struct.pack_into("<i", content, layout.process_count, len(slots))
    for k, (pid, node) in enumerate(slots):
        struct.pack_into("<ii", content, layout.slots + k * layout.slot.size, pid, node)
    return content


def set_total(content: bytearray, *, slot: int, device: int, total: int) -> None:
    layout = layout_of(len(content), bytes(content[:IDENTIFYING_BYTES]))
    assert isinstance(layout, Layout)
    at = layout.slots + slot * layout.slot.size + layout.slot.used + device * layout.slot.stride
    struct.pack_into("<Q", content, at + 32, total)


@FEW
@given(limits=LIMITS, priority=st.sampled_from(Priority), now=st.integers(1, 2**40))
def test_what_is_seeded_is_read(limits: list[Limit], priority: Priority, now: int) -> None:
    """Reading a seed gives what went into it, and nothing is left to correct."""
    region = readable_region(region_bytes(seed_region(limits, priority=priority, now=now)))

    assert region.layout is SEEDED
    assert (region.limits, region.cores) == limit_arrays(limits)
    assert (region.priority, region.last_kernel) == (priority, now)
    assert (region.utilization_switch, region.recent_kernel, region.slots, region.uuids) == (
        1,
        2,
        (),
        (),
    )
    assert limit_corrections(region, limits) == ()


def test_the_magic_number_is_the_last_part() -> None:
    """A library that starts meanwhile waits for it."""
    parts = seed_region([Limit(1, 0)], priority=Priority.LOW, now=1).parts

    assert parts[-1] == (0, struct.pack("<i", MAGIC))


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param([], id="no-devices"),
        pytest.param([Limit(0, 30)], id="zero-is-unlimited"),
        pytest.param([Limit(1, 0)] * 17, id="more-than-it-knows"),
    ],
)
def test_a_region_without_limits_is_not_made(limits: list[Limit]) -> None:
    """The library takes 0 for no limit, and overruns its tables beyond 16 devices."""
    with pytest.raises(UnlimitedError):
        seed_region(limits, priority=Priority.LOW, now=1)


@FEW
@given(ours=LIMITS, theirs=LIMITS)
def test_corrections_restore_the_promise(ours: list[Limit], theirs: list[Limit]) -> None:
    """Whatever the limits were set to, the devices that were promised have theirs again."""
    content = region_bytes(seed_region(theirs, priority=Priority.LOW, now=1))
    corrected = readable_region(
        with_writes(content, limit_corrections(readable_region(content), ours))
    )

    assert limit_corrections(corrected, ours) == ()
    assert corrected.limits[: len(ours)] == tuple(limit.memory for limit in ours)


@FEW
@given(ours=LIMITS, theirs=LIMITS)
def test_devices_that_were_not_promised_have_the_first_limit(
    ours: list[Limit], theirs: list[Limit]
) -> None:
    """In a new region, and after a look at any other of that layout; no promise is touched."""
    content = region_bytes(seed_region(theirs, priority=Priority.LOW, now=1))
    before = readable_region(content)

    after = readable_region(with_writes(content, fallback_writes(before, ours)))

    first = ours[0]
    rest = slice(len(ours), MOST_DEVICES)
    assert set(after.limits[rest]) <= {first.memory}
    assert {cores % 100 for cores in after.cores[rest]} <= {first.cores % 100}
    assert after.limits[: len(ours)] == before.limits[: len(ours)]
    assert fallback_writes(after, ours) == ()
    seeded = readable_region(region_bytes(seed_region(ours, priority=Priority.LOW, now=1)))
    assert fallback_writes(seeded, ours) == ()
    assert 0 not in seeded.limits


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_other_layouts_keep_what_their_library_wrote(layout: Layout) -> None:
    """Nobody knows what it means by the devices that it does not see."""
    region = readable_region(built_region(layout, [GPU], []))

    assert bool(fallback_writes(region, [Limit(1, 30)])) is (layout is SEEDED)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_every_layout_tells_who_uses_what(layout: Layout) -> None:
    """Devices, processes and their memory, wherever that generation has them."""
    content = built_region(layout, [GPU, OTHER], [(7, 4711), (8, 0)])
    set_total(content, slot=0, device=1, total=100)
    set_total(content, slot=1, device=1, total=20)

    region = readable_region(content)

    assert region.uuids == (GPU, OTHER)
    assert [(slot.pid, slot.node_pid) for slot in region.slots] == [(7, 4711), (8, 0)]
    assert totals(region, {GPU: 1000, OTHER: 1000}, lambda _: True)[OTHER].total == 120
    assert totals(region, {OTHER: 1000}, lambda slot: slot.pid == 8)[OTHER].total == 20


@pytest.mark.parametrize(
    ("size", "version", "name"),
    [
        pytest.param(2008953, (1, 1), "C", id="c"),
        pytest.param(2008985, (1, 1), "D", id="d-says-it-is-c"),
        pytest.param(2008953, (1, 2), "E", id="e"),
        pytest.param(804681, (0, 0), "A", id="a"),
        pytest.param(1197897, (7, 7), "B", id="b-has-no-version"),
        pytest.param(2008953, (2, 0), None, id="a-fork"),
        pytest.param(2008985, (1, 2), None, id="e-grown-by-d"),
        pytest.param(2008954, (1, 2), None, id="one-too-many"),
    ],
)
def test_a_layout_is_known_by_size_and_version(
    size: int, version: tuple[int, int], name: str | None
) -> None:
    """Neither alone tells; what is unknown is not guessed at."""
    found = layout_of(size, struct.pack("<iII", MAGIC, *version))

    assert (found.name if isinstance(found, Layout) else None) == name


def test_figures_that_cannot_be_are_nothing() -> None:
    """A counter below zero, devices that were not promised, and one device under two names."""
    content = built_region(SEEDED, [GPU, GPU, "GPU-\xff", OTHER], [(7, 0), (8, 0), (0, 0), (-1, 3)])
    set_total(content, slot=0, device=0, total=2**64 - 4096)
    set_total(content, slot=1, device=0, total=10)
    set_total(content, slot=1, device=1, total=99)
    set_total(content, slot=2, device=0, total=50)

    region = readable_region(content)

    assert region.uuids == (GPU, GPU, None, OTHER)
    assert totals(region, {GPU: 1000}, lambda _: True) == {
        GPU: GpuTotals(total=10, utilization=0, corrupt=1)
    }


@FEW
@given(processes=st.dictionaries(st.integers(1, 2**31 - 1), st.integers(1, 2**31 - 1), max_size=5))
def test_a_process_is_introduced_once(processes: dict[int, int]) -> None:
    """Afterwards its slot has its number on the node, and there is nothing left to say."""
    content = built_region(SEEDED, [GPU], [(pid, 0) for pid in processes])
    writes = node_pid_writes(readable_region(content), processes)
    region = readable_region(with_writes(content, writes))

    assert len(writes) == len(processes)
    assert {slot.pid: slot.node_pid for slot in region.slots} == processes
    assert node_pid_writes(region, processes) == ()


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.parametrize("taken", [-(2**31), -1, 1025, 2**31 - 1])
def test_a_number_of_processes_that_cannot_be_is_not_believed(layout: Layout, taken: int) -> None:
    """The file has 1024 slots: neither fewer than none nor more than those can be taken."""
    content = built_region(layout, [GPU], [(7, 0)])
    struct.pack_into("<i", content, layout.process_count, taken)

    assert read_region(content) == Unreadable(f"{taken} process slots, expected 0 to 1024")


@pytest.mark.parametrize(
    ("promised", "found", "right"),
    [
        pytest.param(30, 0, 30, id="unlimited"),
        pytest.param(30, 100, 30, id="unlimited-in-its-other-word"),
        pytest.param(30, 31, 30, id="raised"),
        pytest.param(0, 30, 100, id="limited-without-need"),
        pytest.param(0, 0, 0, id="either-word-for-no-limit-stands"),
    ],
)
def test_a_compute_limit_that_its_tenant_changed_is_put_right(
    promised: int, found: int, right: int
) -> None:
    """For the library 0 and 100 both mean none: a tenant that writes either is limited again."""
    limits = [Limit(1, promised)]
    content = region_bytes(seed_region(limits, priority=Priority.LOW, now=1))
    struct.pack_into("<Q", content, SEEDED.core_limits, found)

    corrected = readable_region(
        with_writes(content, limit_corrections(readable_region(content), limits))
    )

    assert corrected.cores[0] == right
    assert limit_corrections(corrected, limits) == ()


def test_orders_change_two_words() -> None:
    """Nothing is written that stands there already."""
    content = region_bytes(seed_region([Limit(1, 30)], priority=Priority.LOW, now=1))
    changed = with_writes(content, flag_writes(readable_region(content), switch=0, recent=-1))

    assert (
        readable_region(changed).utilization_switch,
        readable_region(changed).recent_kernel,
    ) == (0, -1)
    assert flag_writes(readable_region(changed), switch=0, recent=-1) == ()


@given(
    name=st.sampled_from(sorted(BY_NAME)),
    holes=st.lists(st.tuples(st.integers(0, 2008984), st.binary(min_size=1, max_size=300))),
    length=st.none() | st.integers(0, 2008985),
)
@example(name="E", holes=[(2008896, b"\xff" * 24)], length=None)
@example(name="E", holes=[(56, b"\xff" * 8)], length=None)
@example(name="E", holes=[(2008896, b"\xff\x03\x00\x00")], length=1857)
def test_whatever_a_tenant_writes_is_read_without_fault(
    name: str, holes: list[tuple[int, bytes]], length: int | None
) -> None:
    """Reading gives a value; what it says stays within what a region can say."""
    content = built_region(BY_NAME[name], [GPU], [(7, 0)])
    for offset, data in holes:
        end = min(len(content), offset + len(data))
        content[offset:end] = data[: max(0, end - offset)]

    region = read_region(content[:length])

    if isinstance(region, Region):
        assert len(region.slots) <= MOST_SLOTS_READ
        found = totals(region, {GPU: 1000}, lambda _: True)
        assert all(total.total <= 1000 * MOST_SLOTS_READ for total in found.values())


@given(header=st.binary(max_size=1900), slots=st.binary(max_size=64), tail=st.binary(max_size=80))
def test_a_file_that_shrinks_while_it_is_read_is_unreadable(
    header: bytes, slots: bytes, tail: bytes
) -> None:
    """Windows shorter than they were asked for raise nothing."""
    found = region_of(SEEDED, RegionBytes(header=header, slots=slots, tail=tail))

    assert isinstance(found, Unreadable | Region)
