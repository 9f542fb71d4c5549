"""Inspection: which processes stand behind a region's slots, also those that are on no GPU."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agent.driver.driver import Process
from agent.monitor.inspection_thread import Inspector
from agent.monitor.violation import ViolationKind
from agent.node.process_files import Processes
from allocator.model.units import MiB
from tests.builders.model import mig_grant, soft_grant
from tests.fakes.hami_core import Tenant, bury, enrol
from tests.integration.agent.shares import (
    GIB,
    GPU,
    ID,
    NOW,
    OTHER,
    UID,
    inspector,
    regions,
    share,
    site,
)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return Path(asyncio.run(regions(tmp_path).seed(share()))) / "vgpu.cache"


def region_total(inspector: Inspector) -> int:
    """Return the bytes that the container's region says, after a look that saw no process."""
    (count,) = inspector.inspect([], site(share())).counts
    return count.totals[GPU].total


def test_a_process_without_a_context_is_found_by_its_number(tmp_path: Path, cache: Path) -> None:
    """The driver does not list it yet; ``/proc`` does."""
    with Tenant(cache, uuids=(GPU,)) as tenant:
        enrol(tmp_path / "proc", tenant.pid, uid=UID, container=ID)
        tenant.tell(f"alloc 0 {GIB}")

        assert region_total(inspector(tmp_path)) == GIB
        assert tenant.tell("host") == str(tenant.pid)


def test_one_that_was_killed_before_it_was_known_does_not_count(
    tmp_path: Path, cache: Path
) -> None:
    """Nobody ever told its number on the node, so only a walk of all processes can miss it."""
    with Tenant(cache, uuids=(GPU,)) as tenant:
        tenant.tell(f"alloc 0 {GIB}")
        tenant.kill()

        assert region_total(inspector(tmp_path)) == 0


def test_walks_are_rare(tmp_path: Path, cache: Path) -> None:
    """A tenant that writes numbers of nobody costs no more than a hundredth of the time."""
    now, used = [0.0], [0.0]

    def cpu_seconds() -> float:
        used[0] += 0.01  # of each walk
        return used[0]

    watching = Inspector(
        regions(tmp_path),
        Processes(tmp_path),
        now=lambda: NOW,
        ticks=lambda: now[0],
        cpu_seconds=cpu_seconds,
    )
    with Tenant(cache, uuids=(GPU,)) as tenant:
        assert region_total(watching) == 0
        enrol(tmp_path / "proc", tenant.pid, uid=UID, container=ID)
        now[0] += 0.99
        region_total(watching)
        early = tenant.tell("host")
        now[0] += 0.02
        region_total(watching)

        assert (early, tenant.tell("host")) == ("0", str(tenant.pid))


def test_a_walk_that_waits_on_a_busy_node_is_soon_repeated(tmp_path: Path, cache: Path) -> None:
    """A walk that takes a minute but hardly any processor time delays no compute limit."""
    now = [0.0]

    def ticks() -> float:
        now[0] += 60.0
        return now[0]

    watching = Inspector(
        regions(tmp_path),
        Processes(tmp_path),
        now=lambda: NOW,
        ticks=ticks,
        cpu_seconds=lambda: 0.0,
    )
    with Tenant(cache, uuids=(GPU,)) as tenant:
        assert region_total(watching) == 0
        enrol(tmp_path / "proc", tenant.pid, uid=UID, container=ID)
        region_total(watching)

        assert tenant.tell("host") == str(tenant.pid)


def test_a_wrong_number_is_put_right(tmp_path: Path, cache: Path) -> None:
    """Two containers that start at one moment may take each other's."""
    watching = inspector(tmp_path)
    with Tenant(cache, uuids=(GPU,)) as tenant:
        enrol(tmp_path / "proc", tenant.pid, uid=UID, container=ID)
        with cache.open("r+b") as file:
            file.seek(1856 + 4)
            file.write((4711).to_bytes(4, "little"))
        process = Process(pid=tenant.pid, gpu=GPU, memory=MiB(1))
        watching.inspect([process], site(share()))

        assert tenant.tell("host") == str(tenant.pid)


def test_a_process_that_ended_meanwhile_is_nobodys(tmp_path: Path, cache: Path) -> None:
    """Between the driver's answer and ours its memory is free again, not foreign."""
    with Tenant(cache, uuids=(GPU,)) as tenant:
        enrol(tmp_path / "proc", tenant.pid, uid=UID, container=ID)
        bury(tmp_path / "proc", tenant.pid)
        process = Process(pid=tenant.pid, gpu=GPU, memory=MiB(1))

        assert inspector(tmp_path).inspect([process], site(share())).processes == ()


def test_containers_without_the_library_have_no_region(tmp_path: Path, cache: Path) -> None:
    """A MIG container's directory says nothing, whatever lies in it."""
    cache.write_bytes(b"x")
    found = inspector(tmp_path).inspect([], site(share(mig_grant("1g.5gb", 0, gpu=GPU))))

    assert (found.counts, found.violations, found.faults) == ((), (), 0)


def test_two_gpus_are_told_apart_by_their_names(tmp_path: Path) -> None:
    """The library may list them in another order than they were promised in."""
    both = share(soft_grant(8192, gpu=GPU), soft_grant(2048, gpu=OTHER))
    path = Path(asyncio.run(regions(tmp_path).seed(both))) / "vgpu.cache"
    with Tenant(path, uuids=(OTHER, GPU)) as tenant:
        enrol(tmp_path / "proc", tenant.pid, uid=UID, container=ID)
        tenant.tell(f"alloc 1 {GIB}")
        found = inspector(tmp_path).inspect([], site(both))

    assert {gpu: total.total for gpu, total in found.counts[0].totals.items()} == {
        GPU: GIB,
        OTHER: 0,
    }
    assert [v.kind for v in found.violations if v.kind is not ViolationKind.LIMITS] == []


def test_a_container_without_the_library_is_no_violation(tmp_path: Path) -> None:
    """One with whole GPUs may run without a region; nothing is missing then."""
    bare = replace(share(soft_grant(15360, 100, gpu=GPU)), library_off=True)

    found = inspector(tmp_path).inspect([], site(bare))

    assert (found.violations, found.faults, found.counts) == ((), 0, ())
