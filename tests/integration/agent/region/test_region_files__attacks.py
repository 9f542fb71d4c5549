"""What a tenant puts in the place of its region harms neither the agent nor anybody else."""

import asyncio
import os
from pathlib import Path

import pytest

from agent.monitor.violation import ViolationKind
from agent.region.decode import Region, RegionReading, Unreadable
from agent.region.layout import SEEDED
from agent.region.repair import RepairKind
from agent.region.seed import Write
from tests.fakes.hami_core import Tenant, bury, enrol
from tests.harness.region_attacks import (
    IN_THE_FILE,
    OF_THE_NAME,
    RegionAttack,
    device_file,
    symlink,
)
from tests.integration.agent.shares import GIB, GPU, ID, UID, inspector, regions, share, site


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return Path(asyncio.run(regions(tmp_path).seed(share()))) / "vgpu.cache"


@pytest.mark.parametrize("attack", IN_THE_FILE, ids=lambda attack: attack.__name__)
def test_an_attack_is_told_and_undone_at_the_next_start(
    tmp_path: Path, cache: Path, attack: RegionAttack
) -> None:
    """It reads as unreadable, is a violation, and the next container has a good region."""
    attack(cache)

    (reading,) = regions(tmp_path).read(UID, "main")
    assert isinstance(reading.region, Unreadable)
    found = inspector(tmp_path).inspect([], site(share()))
    assert [v.kind for v in found.violations] == [ViolationKind.LIMITS]
    assert found.faults == 1

    asyncio.run(regions(tmp_path).seed(share()))
    (reading,) = regions(tmp_path).read(UID, "main")
    assert isinstance(reading.region, Region)


@pytest.mark.parametrize(
    "attack",
    [
        *OF_THE_NAME,
        pytest.param(
            device_file,
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files"),
        ),
    ],
    ids=lambda attack: attack.__name__,
)
def test_a_region_that_lost_its_name_gets_it_back(
    tmp_path: Path, cache: Path, attack: RegionAttack
) -> None:
    """It is the same file, which running processes have in memory; and it is told once."""
    before = cache.stat().st_ino
    watching = inspector(tmp_path)
    attack(cache)

    found = watching.inspect([], site(share()))

    assert [v.kind for v in found.violations] == [ViolationKind.LIMITS]
    assert [repair.kind for repair in found.repairs] == [RepairKind.FILE]
    assert (found.faults, cache.lstat().st_ino, cache.stat().st_nlink) == (0, before, 2)
    again = watching.inspect([], site(share()))
    assert (again.violations, again.repairs, again.faults) == ((), (), 0)


def test_processes_before_and_after_a_deletion_share_one_limit(tmp_path: Path, cache: Path) -> None:
    """A root of the container deletes the region, and starts another process: 8 GiB in all."""
    watching = inspector(tmp_path)
    with Tenant(cache, uuids=(GPU,)) as early:
        enrol(tmp_path / "proc", early.pid, uid=UID, container=ID)
        early.tell(f"alloc 0 {5 * GIB}")
        cache.unlink()
        watching.inspect([], site(share()))
        with Tenant(cache, uuids=(GPU,)) as late:
            enrol(tmp_path / "proc", late.pid, uid=UID, container=ID)

            assert late.tell(f"alloc 0 {4 * GIB}") == "oom"
            assert late.tell(f"alloc 0 {3 * GIB}") == str(3 * GIB)


def test_what_the_library_made_in_the_place_of_a_deleted_region_counts_too(
    tmp_path: Path, cache: Path
) -> None:
    """Before a look, a process makes a region of its own there: both are limited in sum."""
    watching = inspector(tmp_path)
    with Tenant(cache, uuids=(GPU,)) as early:
        enrol(tmp_path / "proc", early.pid, uid=UID, container=ID)
        early.tell(f"alloc 0 {5 * GIB}")
        cache.unlink()
        with Tenant(cache, uuids=(GPU,)) as late:
            enrol(tmp_path / "proc", late.pid, uid=UID, container=ID)
            assert late.tell("limit 0") == "0"
            found = watching.inspect([], site(share()))

            assert (late.tell("limit 0"), early.tell("limit 0")) == (str(3 * GIB), str(8 * GIB))
            assert "replaced.cache" in found.violations[-1].note
            assert late.tell(f"alloc 0 {4 * GIB}") == "oom"


def test_a_container_that_starts_again_is_no_deletion(tmp_path: Path, cache: Path) -> None:
    """Its new region has a second name of its own, and the old one is gone."""
    before = cache.stat().st_ino
    with Tenant(cache, uuids=(GPU,)):  # holds the old file, so that its number is not used again
        asyncio.run(regions(tmp_path).seed(share()))

    found = inspector(tmp_path).inspect([], site(share()))

    assert cache.stat().st_ino != before
    assert (found.violations, found.repairs, cache.stat().st_nlink) == ((), (), 2)


def test_a_region_of_an_older_agent_is_kept_from_the_first_look_on(
    tmp_path: Path, cache: Path
) -> None:
    """It has no second name yet; what is unlinked before is lost, what is unlinked later is not."""
    (kept,) = cache.parent.parent.glob("*.kept")
    kept.unlink()
    watching = inspector(tmp_path)
    assert watching.inspect([], site(share())).violations == ()
    cache.unlink()
    watching.inspect([], site(share()))

    assert cache.exists()


def test_a_kept_name_goes_with_its_directory(tmp_path: Path, cache: Path) -> None:
    """When the pod is over nothing is left, and one name is told."""
    kept = regions(tmp_path)
    kept.collect([UID])

    assert kept.collect([]) == (cache.parent.name,)
    assert list(cache.parent.parent.iterdir()) == []


def test_a_link_is_not_followed_when_writing(tmp_path: Path, cache: Path) -> None:
    """Not even one that takes the file's place after it was read."""
    (reading,) = regions(tmp_path).read(UID, "main")
    symlink(cache)
    victim = tmp_path / "victim"
    before = victim.read_bytes()

    writes = [Write(SEEDED.utilization_switch, b"\7\0\0\0")]
    assert not regions(tmp_path).write(UID, "main", reading=reading, writes=writes)

    assert victim.read_bytes() == before


def test_a_file_that_is_no_region_any_more_is_not_written(tmp_path: Path, cache: Path) -> None:
    """The magic number and the size are checked again."""
    (reading,) = regions(tmp_path).read(UID, "main")
    cache.write_bytes(bytes(SEEDED.size))

    writes = [Write(SEEDED.utilization_switch, b"\7\0\0\0")]
    assert not regions(tmp_path).write(UID, "main", reading=reading, writes=writes)

    assert cache.read_bytes() == bytes(SEEDED.size)


def test_a_slot_that_was_handed_on_is_not_written(tmp_path: Path, cache: Path) -> None:
    """A process's number on the node is written only while its slot is its own."""
    (reading,) = regions(tmp_path).read(UID, "main")
    with Tenant(cache, uuids=(GPU,)) as tenant:
        at = SEEDED.slots + 4
        told = []
        for after in (tenant.pid + 1, tenant.pid):
            write = Write(at, b"\1\2\0\0", after=after.to_bytes(4, "little"))
            assert regions(tmp_path).write(UID, "main", reading=reading, writes=[write])
            told.append(tenant.tell("host"))

    assert told == ["0", "513"]


def test_limits_that_were_lifted_are_put_right(tmp_path: Path, cache: Path) -> None:
    """Within one look, for processes that run already, and with a word about it."""
    watching = inspector(tmp_path)
    with Tenant(cache, uuids=(GPU,)) as tenant:
        enrol(tmp_path / "proc", tenant.pid, uid=UID, container=ID)
        with cache.open("r+b") as file:
            file.seek(SEEDED.memory_limits)
            file.write((64 * GIB).to_bytes(8, "little"))
        assert tenant.tell("limit 0") == str(64 * GIB)

        (violation,) = watching.inspect([], site(share())).violations
        assert tenant.tell("limit 0") == str(8 * GIB)
        assert watching.inspect([], site(share())).violations == ()

    assert (violation.kind, violation.pod.uid, violation.container) == (
        ViolationKind.LIMITS,
        UID,
        "main",
    )


def test_a_region_of_the_tenants_own_is_limited_too(tmp_path: Path, cache: Path) -> None:
    """A program that is told another path in its directory finds the same limits there."""
    watching = inspector(tmp_path)
    with Tenant(cache.with_name("mine.cache"), uuids=(GPU,)) as tenant:
        assert tenant.tell("limit 0") == "0"
        found = watching.inspect([], site(share()))

        assert [violation.kind for violation in found.violations] == [ViolationKind.LIMITS]
        assert tenant.tell("limit 0") == str(8 * GIB)


def test_seven_and_seven_are_not_fourteen(tmp_path: Path, cache: Path) -> None:
    """A second region is told while somebody counts in it, and all hold the limit in sum."""
    watching = inspector(tmp_path)
    mine = Tenant(cache.with_name("mine.cache"), uuids=(GPU,))
    with Tenant(cache, uuids=(GPU,)) as first, mine as second:
        for tenant in (first, second):
            enrol(tmp_path / "proc", tenant.pid, uid=UID, container=ID)
        watching.inspect([], site(share()))
        first.tell(f"alloc 0 {5 * GIB}")
        second.tell(f"alloc 0 {2 * GIB}")
        (violation,) = watching.inspect([], site(share())).violations
        limits = first.tell("limit 0"), second.tell("limit 0")
        grown = first.tell(f"alloc 0 {2 * GIB}"), second.tell(f"alloc 0 {2 * GIB}")
        second.tell("exit")
        bury(tmp_path / "proc", second.pid)
        afterwards = watching.inspect([], site(share())).violations

        assert (violation.kind, '"mine.cache"' in violation.note) == (ViolationKind.LIMITS, True)
        assert limits == (str(6 * GIB), str(3 * GIB))
        assert grown == ("oom", "oom")
        assert (afterwards, first.tell("limit 0")) == ((), str(8 * GIB))


def test_a_crowd_of_names_hides_nothing(tmp_path: Path, cache: Path) -> None:
    """The agent's own file is read first; of the others a few are."""
    for number in range(200):
        (cache.parent / f"{number}.cache").touch()

    found = regions(tmp_path).read(UID, "main")

    assert isinstance(found[0], RegionReading)
    assert found[0].name == "vgpu.cache"
    assert isinstance(found[0].region, Region)
    assert len(found) <= 3


def test_a_directory_that_is_a_link_is_refused(tmp_path: Path, cache: Path) -> None:
    """Nothing below it is read or written."""
    moved = cache.parent.rename(tmp_path / "elsewhere")
    cache.parent.symlink_to(moved)

    assert regions(tmp_path).read(UID, "main") == ()
