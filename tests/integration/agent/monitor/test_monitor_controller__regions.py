"""What the monitor says of regions: repairs, further regions, and processes that count wrongly."""

import os
import struct
from pathlib import Path

import pytest

from agent.monitor.monitor_controller import REPAIR_INTERVAL
from agent.monitor.violation import ViolationKind
from agent.region.layout import SEEDED
from agent.region.repair import RepairKind
from allocator.config.settings import Enforcement
from allocator.model.request import Priority
from tests.builders.model import soft_grant
from tests.fakes.hami_core import Tenant, enrol
from tests.integration.agent.monitored import MonitoredNode
from tests.integration.agent.shares import GIB, GPU, ID, NEIGHBOUR, OTHER, UID, share


@pytest.fixture
def node(tmp_path: Path) -> MonitoredNode:
    return MonitoredNode(tmp_path)


def hold_startup_lock(cache: Path) -> None:
    """Leave the lock of starting processes as one does that is killed with it."""
    with cache.open("r+b") as file:
        file.seek(SEEDED.semaphores[1])
        file.write(struct.pack("<I", 0))


def test_a_repair_is_counted_each_time_and_told_at_intervals(node: MonitoredNode) -> None:
    """A tenant can break its region at every look."""
    cache = node.seed(share())
    told = []
    for pause in (0.0, 0.0, REPAIR_INTERVAL / 2, REPAIR_INTERVAL / 2):
        node.clock.now += pause
        hold_startup_lock(cache)
        node.run_cycle()
        node.run_cycle()
        told.append(len(node.events))

    assert node.counted_repairs == [RepairKind.STARTUP_LOCK] * 4
    assert told == [1, 1, 1, 2]
    event = node.events[0]
    assert (event.reason, event.regarding.uid) == ("VgpuRegionRepaired", UID)
    assert event.note == (
        'container "main": a process was killed at its start and kept the next ones waiting;'
        " they go on now"
    )
    assert node.counted_violations == []


def test_a_deleted_region_is_told_at_once(node: MonitoredNode) -> None:
    """By one Event and two counters; it is in its place again, and nobody is evicted."""
    node.enforced = Enforcement.EVICT
    cache = node.seed(share())
    node.run_cycle()
    cache.unlink()
    node.run_cycle()
    node.run_cycle()

    (event,) = node.events
    assert (event.reason, cache.exists()) == ("VgpuLimitBreached", True)
    assert event.note == (
        'container "main" its region /tmp/vgpu/vgpu.cache was deleted, and is in its place again'
    )
    assert node.counted_repairs == [RepairKind.FILE]
    assert (node.counted_violations, node.evictions) == ([ViolationKind.LIMITS], [])


def test_a_rank_that_counts_on_the_wrong_gpu_is_told_and_not_evicted(tmp_path: Path) -> None:
    """Its memory counts where the driver sees it, and so does a breach of its limit there."""
    both = share(soft_grant(8192, gpu=GPU), soft_grant(2048, gpu=OTHER))
    node = MonitoredNode(tmp_path, promised=(both,), enforced=Enforcement.EVICT)
    with Tenant(node.seed(both), uuids=(GPU, OTHER)) as rank:
        node.enrol(rank)
        node.use(rank, 1500, gpu=OTHER)
        rank.tell(f"alloc 0 {GIB}")
        for _ in range(3):
            node.run_cycle()
        snapshot = node.monitor.snapshot
        evicted = list(node.evictions)
        node.use(rank, 3500, gpu=OTHER)
        for _ in range(2):
            node.run_cycle()

    assert snapshot is not None
    measured = [snapshot.measured[UID, "main", gpu].memory for gpu in (GPU, OTHER)]
    assert (measured, evicted) == ([0, GIB], [])
    assert [(event.reason, event.regarding.uid) for event in node.events] == [
        ("VgpuMiscounted", UID),
        ("VgpuLimitBreached", UID),
    ]
    assert f"uses {OTHER}, but the library counts it on others" in node.events[0].note
    assert f"uses 3500 of 2048 MiB on {OTHER}" in node.evictions[0]


def test_a_process_that_is_not_counted_is_named_where_it_breaks_the_limit(
    node: MonitoredNode,
) -> None:
    """One that attached without the region, or that a compaction lost."""
    with Tenant(node.seed(share()), uuids=(GPU,)) as counted:
        node.enrol(counted)
        node.use(counted, 9000)
        counted.tell(f"alloc 0 {6 * GIB}")
        node.run_cycle()
        counted.tell(f"alloc 0 {2 * GIB}")
        node.use(counted, 9500)
        node.run_cycle()

    (event,) = node.events
    assert event.note.endswith(f"; the library does not count all of pid {counted.pid}")
    assert node.monitor.snapshot is not None
    (violation,) = node.monitor.snapshot.violations
    assert violation.note.startswith(f"uses 9500 of 8192 MiB on {GPU}: pid {counted.pid}; the")


def test_a_process_in_no_region_is_told_although_it_fits(
    node: MonitoredNode, tmp_path: Path
) -> None:
    """At the second look: it has told the library another place, and no limit holds there."""
    node.enforced = Enforcement.EVICT
    node.seed(share())
    with Tenant(tmp_path / "mine.cache", uuids=(GPU,)) as hidden:
        node.enrol(hidden)
        node.use(hidden, 3000)
        told = []
        for _ in range(4):
            node.run_cycle()
            told.append([event.reason for event in node.events])

    assert told == [[], *[["VgpuMiscounted"]] * 3]
    assert node.events[0].note == (
        f'container "main" uses {GPU} without being counted: pid {hidden.pid}; it runs without the'
        " interception library, or with a region of its own (CUDA_DEVICE_MEMORY_SHARED_CACHE), so"
        " that only the driver's figures hold it to its limit"
    )
    assert (node.counted_violations, node.evictions) == ([ViolationKind.UNCOUNTED], [])


@pytest.mark.parametrize("answers", [True, False], ids=["the-driver-tells", "a-silent-driver"])
def test_a_probe_holds_nobody_back(tmp_path: Path, *, answers: bool) -> None:
    """nvidia-smi attaches, launches nothing and ends; without the driver only its time is known."""
    low = share(soft_grant(4096, 30, gpu=GPU))
    high = share(soft_grant(4096, 0, gpu=GPU), uid=NEIGHBOUR, pod="train-1", priority=Priority.HIGH)
    node = MonitoredNode(tmp_path, promised=(low, high))
    region, launches = node.seed(high), []
    with Tenant(node.seed(low), uuids=(GPU,)) as patient, Tenant(region, uuids=(GPU,)) as idle:
        node.enrol(patient)
        node.enrol(idle, uid=NEIGHBOUR)
        node.ahead = -60.0  # as a region is seeded it says that its container launched
        node.run_cycle()
        node.ahead = 0.0
        node.lose(GPU, lost=not answers)
        for _ in range(4):
            with Tenant(region, uuids=(GPU,)) as probe:
                enrol(node.root / "proc", probe.pid, uid=NEIGHBOUR, container=ID)
            node.run_cycle()
            launches.append(patient.tell("launch"))

    assert ("blocked" in launches) == (not answers)


@pytest.mark.parametrize(
    ("enforced", "evicted"),
    [
        (Enforcement.EVICT, ["train-0: had 198 MiB too many in /tmp/vgpu/vgpu.cache"]),
        (Enforcement.REPORT, []),
    ],
)
def test_who_goes_on_filling_the_disk_is_evicted(
    node: MonitoredNode, enforced: Enforcement, evicted: list[str]
) -> None:
    """Once is told; at two looks in a row it is meant."""
    node.enforced = enforced
    cache = node.seed(share())
    node.run_cycle()
    for looks in ((200,), (200, 0), (200, 200)):
        for size in looks:
            if size:
                os.truncate(cache, size * 1024 * 1024)
            node.run_cycle()
            if looks != (200, 200):
                assert node.evictions == []
        node.run_cycle()

    assert [why.partition(",")[0] for why in node.evictions] == evicted
    assert set(node.counted_violations) == {ViolationKind.DISK}
    assert {event.reason for event in node.events} == {"VgpuLimitBreached"}
    assert cache.stat().st_size == SEEDED.size
