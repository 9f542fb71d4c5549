"""A region is on the node's disk, and whoever may write to it cannot fill that disk."""

import asyncio
import ctypes
import os
from pathlib import Path

import pytest

from agent.monitor.violation import ViolationKind
from agent.region.decode import Region
from agent.region.layout import SEEDED
from agent.region.safe_files import LARGEST_REGION, MOST_ON_DISK
from tests.fakes.hami_core import Tenant, enrol
from tests.harness.region_attacks import GROWTHS, MIB, RegionAttack, written
from tests.integration.agent.shares import GIB, GPU, ID, UID, inspector, regions, share, site

KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return Path(asyncio.run(regions(tmp_path).seed(share()))) / "vgpu.cache"


def reserved_behind_the_end(cache: Path) -> None:
    """Take blocks that no size tells of."""
    libc = ctypes.CDLL(None, use_errno=True)
    with cache.open("r+b") as file:
        arguments = (ctypes.c_long(SEEDED.size), ctypes.c_long(64 * MIB))
        if libc.fallocate(file.fileno(), KEEP_SIZE, *arguments):
            pytest.skip(f"no fallocate here: {os.strerror(ctypes.get_errno())}")
    assert cache.stat().st_size == SEEDED.size


@pytest.mark.parametrize(
    "growth", [*GROWTHS, reserved_behind_the_end], ids=lambda growth: growth.__name__
)
def test_what_no_region_needs_is_cut_off_and_told(
    tmp_path: Path, cache: Path, growth: RegionAttack
) -> None:
    """At the next look, whatever the file says it is; the look after that finds it in order."""
    watching = inspector(tmp_path)
    growth(cache)

    found = watching.inspect([], site(share()))

    status = cache.stat()
    assert status.st_size <= LARGEST_REGION
    assert status.st_blocks * 512 <= MOST_ON_DISK
    assert [v.kind for v in found.violations if v.kind is ViolationKind.DISK]
    (note,) = (v.note for v in found.violations if v.kind is ViolationKind.DISK)
    assert "in /tmp/vgpu/vgpu.cache, which is on the node's disk; they were cut off" in note
    again = watching.inspect([], site(share()))
    assert [v for v in again.violations if v.kind is ViolationKind.DISK] == []


def test_a_region_in_use_stays_what_it_is(tmp_path: Path, cache: Path) -> None:
    """Only what no process has in memory goes: figures and limits are those of before."""
    watching = inspector(tmp_path)
    with Tenant(cache, uuids=(GPU,)) as tenant:
        enrol(tmp_path / "proc", tenant.pid, uid=UID, container=ID)
        tenant.tell(f"alloc 0 {5 * GIB}")
        written(cache)

        found = watching.inspect([], site(share()))

        assert cache.stat().st_size == SEEDED.size
        assert [v.kind for v in found.violations] == [ViolationKind.DISK]
        assert found.counts[0].totals[GPU].total == 5 * GIB
        assert tenant.tell(f"alloc 0 {4 * GIB}") == "oom"
        assert tenant.tell(f"alloc 0 {GIB}") == str(6 * GIB)


@pytest.mark.parametrize("size", [SEEDED.size, LARGEST_REGION])
def test_a_region_of_any_layout_is_small_enough(tmp_path: Path, cache: Path, size: int) -> None:
    """Also one that is not sparse any more."""
    content = cache.read_bytes()
    cache.write_bytes(content.ljust(size, b"\0"))

    (reading,) = regions(tmp_path).read(UID, "main")

    assert reading.excess == 0
    assert cache.stat().st_size == size
    assert isinstance(reading.region, Region) is (size == SEEDED.size)


def test_a_further_region_is_cut_too(tmp_path: Path, cache: Path) -> None:
    """A pod of an older version has the whole directory, and its root may add files."""
    other = cache.with_name("other.cache")
    other.write_bytes(cache.read_bytes())
    written(other)

    found = inspector(tmp_path).inspect([], site(share()))

    assert other.stat().st_size == SEEDED.size
    assert ViolationKind.DISK in {v.kind for v in found.violations}


def test_a_file_that_is_not_the_containers_is_not_touched(tmp_path: Path, cache: Path) -> None:
    """A link in the region's place leads nowhere."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"x" * (10 * MIB))
    cache.unlink()
    cache.symlink_to(victim)

    inspector(tmp_path).inspect([], site(share()))

    assert victim.stat().st_size == 10 * MIB
