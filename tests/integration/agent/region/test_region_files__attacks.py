"""What a tenant puts in the place of its region harms neither the agent nor anybody else."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.monitor.violation import ViolationKind
from agent.region.decode import Region, Unreadable
from agent.region.layout import SEEDED
from agent.region.region_files import RegionReading
from agent.region.seed import Write
from tests.fakes.hami_core import Tenant, enrol
from tests.integration.agent.shares import GIB, GPU, ID, UID, inspector, regions, share, site

Attack = Callable[[Path], None]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return Path(asyncio.run(regions(tmp_path).seed(share()))) / "vgpu.cache"


def symlink(cache: Path) -> None:
    victim = cache.parents[6] / "victim"
    cache.rename(victim)
    cache.symlink_to(victim)


def hard_link(cache: Path) -> None:
    os.link(cache, cache.parents[6] / "other")


def pipe(cache: Path) -> None:
    cache.unlink()
    os.mkfifo(cache)


def device_file(cache: Path) -> None:
    cache.unlink()
    os.mknod(cache, 0o666 | 0o020000, os.makedev(1, 3))


def folder(cache: Path) -> None:
    cache.unlink()
    cache.mkdir()
    (cache / "full").touch()


def truncated(cache: Path) -> None:
    os.truncate(cache, 4096)


def emptied(cache: Path) -> None:
    os.truncate(cache, 0)


def grown(cache: Path) -> None:
    os.truncate(cache, SEEDED.size + 32)


def garbage(cache: Path) -> None:
    cache.write_bytes(b"\x5a" * SEEDED.size)


def huge_count(cache: Path) -> None:
    with cache.open("r+b") as file:
        file.seek(SEEDED.process_count)
        file.write(b"\xff\xff\xff\x7f")


ATTACKS = [
    symlink,
    hard_link,
    pipe,
    pytest.param(
        device_file,
        marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files"),
    ),
    folder,
    truncated,
    emptied,
    grown,
    garbage,
    huge_count,
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_is_told_and_undone_at_the_next_start(
    tmp_path: Path, cache: Path, attack: Attack
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
