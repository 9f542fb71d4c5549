"""Regions on a disk: what a program under the library finds in them, and what is read back."""

import asyncio
import os
import shutil
import stat
from pathlib import Path

import pytest

from agent.node.process_files import Processes
from agent.region.decode import Region, Unreadable
from agent.region.layout import LAYOUTS, Layout
from agent.region.library_files import Absent
from agent.region.region_files import RegionFiles, semaphore
from agent.region.seed import SEMAPHORE
from agent.share import NotYetError
from tests.builders.model import soft_grant
from tests.fakes.hami_core import Tenant, bury, enrol, offsets
from tests.integration.agent.shares import GIB, GPU, ID, NOW, OTHER, UID, regions, share

UNLIMITED = {"CUDA_DEVICE_MEMORY_LIMIT_0": "0", "CUDA_DEVICE_SM_LIMIT": "0"}


def seed(root: Path, *, now: float = NOW) -> Path:
    return Path(asyncio.run(regions(root, now=now).seed(share()))) / "vgpu.cache"


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def region(root: Path) -> Region:
    """Return the one region of the container."""
    (reading,) = regions(root).read(UID, "main")
    assert isinstance(reading.region, Region)
    return reading.region


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_tables_and_compiler_agree(layout: Layout) -> None:
    """The struct of each generation has its fields where the agent looks for them."""
    assert offsets(layout.name) == (
        layout.size,
        layout.device_count,
        layout.uuids,
        layout.memory_limits,
        layout.core_limits,
        layout.slots,
        layout.process_count,
        layout.slot.size,
        layout.slot.used,
        layout.slot.stride,
        layout.slot.status,
    )


@pytest.mark.parametrize("env", [{}, UNLIMITED], ids=["no-environment", "a-lying-environment"])
def test_limits_are_the_regions_whatever_the_environment(
    tmp_path: Path, env: dict[str, str]
) -> None:
    """A process without variables, or with its own, gets what was promised."""
    with Tenant(seed(tmp_path), uuids=(GPU,), env=env) as tenant:
        assert tenant.tell("limit 0") == str(8 * GIB)
        assert tenant.tell(f"alloc 0 {6 * GIB}") == str(6 * GIB)
        assert tenant.tell(f"alloc 0 {3 * GIB}") == "oom"


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_what_a_program_did_is_read(tmp_path: Path, layout: Layout) -> None:
    """A region that a library of any generation made says what its processes hold."""
    path = tmp_path / f"usr/local/vgpu/vgpu/containers/{UID}_main/vgpu.cache"
    path.parent.mkdir(parents=True)
    with Tenant(path, uuids=(GPU, OTHER), generation=layout.name) as tenant:
        tenant.tell(f"alloc 1 {GIB}")
        tenant.tell(f"alloc 1 {GIB}")
        tenant.tell(f"free 1 {GIB // 2}")
        found = region(tmp_path)

    assert found.layout is layout
    assert found.uuids == (GPU, OTHER)
    assert [(s.pid, s.running, s.uses[1].total) for s in found.slots] == [
        (tenant.pid, True, 3 * GIB // 2)
    ]


def test_processes_of_one_container_share_its_limit(tmp_path: Path) -> None:
    """They take turns by the semaphores that we wrote, which are as the C library makes them."""
    path = seed(tmp_path)
    with Tenant(path, uuids=(GPU,)) as one, Tenant(path, uuids=(GPU,)) as other:
        first = one.tell(f"alloc 0 {5 * GIB}")
        crowded = other.tell(f"alloc 0 {5 * GIB}")
        one.exit()

        assert (first, crowded) == (str(5 * GIB), "oom")
        assert other.tell(f"alloc 0 {5 * GIB}") == str(5 * GIB)
    assert semaphore() == SEMAPHORE


def test_modes_let_any_user_write_the_file_and_nobody_replace_it(tmp_path: Path) -> None:
    """Containers run as any user; the directory stays the agent's."""
    path = seed(tmp_path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755
    assert path.stat().st_blocks * 512 < 64 * 1024  # sparse


def test_a_restarted_container_begins_with_an_empty_region(tmp_path: Path) -> None:
    """What a killed process left would count against the next one of the same number."""
    path = seed(tmp_path)
    with Tenant(path, uuids=(GPU,)) as tenant:
        tenant.tell(f"alloc 0 {6 * GIB}")
        tenant.kill()
    assert len(region(tmp_path).slots) == 1

    seed(tmp_path)

    assert region(tmp_path).slots == ()


def test_a_region_in_use_is_kept_and_set_right(tmp_path: Path) -> None:
    """Asked twice for one start, the processes that are attached stay attached."""
    path = seed(tmp_path)
    with Tenant(path, uuids=(GPU,)) as tenant:
        enrol(tmp_path / "proc", tenant.pid, uid=UID, container=ID)
        tenant.tell(f"alloc 0 {GIB}")
        inode = path.stat().st_ino
        with path.open("r+b") as file:
            file.seek(LAYOUTS[-1].memory_limits)
            file.write(bytes(8))

        seed(tmp_path)

        assert path.stat().st_ino == inode
        assert tenant.tell("limit 0") == str(8 * GIB)


@pytest.mark.parametrize("later", [0.0, 1e9], ids=["just-now", "long-settled"])
def test_what_takes_a_files_place_is_read(tmp_path: Path, later: float) -> None:
    """A new file of that name, one more beside it, and neither any more."""
    path = seed(tmp_path)
    node = regions(tmp_path, now=path.stat().st_ctime + later)
    first = node.read(UID, "main")
    same = node.read(UID, "main")
    other = share(soft_grant(4096, gpu=GPU))
    asyncio.run(regions(tmp_path).seed(other))
    second = node.read(UID, "main")
    (path.with_name("mine.cache")).write_bytes(path.read_bytes())
    beside = node.read(UID, "main")
    path.unlink()
    third = node.read(UID, "main")
    shutil.rmtree(path.parent)

    assert first[0].region is same[0].region
    assert [r.region.limits[0] for r in (*first, *second) if isinstance(r.region, Region)] == [
        8 * GIB,
        4 * GIB,
    ]
    assert [reading.name for reading in beside] == ["vgpu.cache", "mine.cache"]
    assert third[0].region == Unreadable("no file", missing=True)
    assert isinstance(third[1].region, Region)
    assert node.read(UID, "main") == ()


def test_what_is_watched_takes_no_more_files_than_there_are(tmp_path: Path) -> None:
    """Pods come and go, and an agent runs for months."""
    path = seed(tmp_path)
    node = regions(tmp_path)
    open_before = open_descriptors()
    for _ in range(20):
        asyncio.run(regions(tmp_path).seed(share()))
        node.read(UID, "main")
    watched = open_descriptors()
    shutil.rmtree(path.parent)
    node.collect([])

    assert watched == open_before + 1
    assert open_descriptors() == open_before


def test_without_a_library_nothing_is_seeded(tmp_path: Path) -> None:
    """The user reads why."""
    bare = RegionFiles(
        tmp_path / "usr/local/vgpu",
        Processes(tmp_path),
        library=Absent("the agent's image has none"),
    )

    with pytest.raises(NotYetError, match="image has none"):
        asyncio.run(bare.seed(share()))


@pytest.mark.parametrize("name", ["libvgpu.so", "ld.so.preload"])
def test_a_library_that_is_lost_later_lets_nothing_start(tmp_path: Path, name: str) -> None:
    """A container runtime would mount an empty folder, and the loader would pass it over."""
    node = regions(tmp_path)
    asyncio.run(node.seed(share()))
    file = tmp_path / "usr/local/vgpu" / name
    file.unlink()
    file.mkdir()

    with pytest.raises(NotYetError, match="is missing or was replaced"):
        asyncio.run(node.seed(share()))


def test_a_share_without_a_limit_is_not_seeded(tmp_path: Path) -> None:
    """0 would be no limit at all."""
    with pytest.raises(NotYetError, match="memory limit"):
        asyncio.run(regions(tmp_path).seed(share(soft_grant(0, gpu=GPU))))


def test_a_pod_is_gone_when_its_last_process_is(tmp_path: Path) -> None:
    """Whoever gets its slots waits for that."""
    node = regions(tmp_path)
    enrol(tmp_path / "proc", os.getpid(), uid=UID, container=ID)

    async def vacated() -> None:
        waiting = asyncio.create_task(node.vacate(UID))
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done
        bury(tmp_path / "proc", os.getpid())
        await waiting

    asyncio.run(vacated())


def test_directories_go_when_their_pods_have(tmp_path: Path) -> None:
    """At once where the entry ended, after a while where nobody ever knew; not while one lives."""
    path = seed(tmp_path)
    stranger = path.parent.with_name(f"{UID.replace('6', '5')}_main")
    stranger.mkdir()
    (tmp_path / "outside").write_text("kept")
    (path.parent / "link").symlink_to(tmp_path / "outside")
    (path.parent / "deep/er").mkdir(parents=True)
    node = regions(tmp_path, now=path.stat().st_ctime + 10)

    assert node.collect([UID]) == ()
    enrol(tmp_path / "proc", os.getpid(), uid=UID, container=ID)
    assert node.collect([]) == ()
    bury(tmp_path / "proc", os.getpid())
    assert node.collect([]) == (path.parent.name,)
    assert sorted(path.parent.parent.iterdir()) == [stranger]
    assert (tmp_path / "outside").exists()

    later = regions(tmp_path, now=path.parent.parent.stat().st_ctime + 400)
    assert later.collect([]) == (stranger.name,)


def test_a_deep_directory_is_removed(tmp_path: Path) -> None:
    """A tenant may nest deeper than any path is long."""
    path = seed(tmp_path)
    node = regions(tmp_path)
    node.collect([UID])
    at = os.open(path.parent, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=at)
        deeper = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = deeper
    os.close(at)

    assert node.collect([]) == (path.parent.name,)

    assert list(path.parent.parent.iterdir()) == []


@pytest.mark.parametrize("before", ["nothing", "region", "directory", "placeholder"])
def test_a_container_without_a_library_gets_no_region(tmp_path: Path, before: str) -> None:
    """What is in its place can be mounted, and neither be opened nor grow on the node's disk."""
    node = regions(tmp_path)
    path = tmp_path / "usr/local/vgpu/vgpu/containers" / f"{UID}_main" / "vgpu.cache"
    if before == "region":
        seed(tmp_path)
    elif before == "directory":  # kubelet's, of a path that was missing
        path.mkdir(parents=True)
        (path / "full").write_bytes(b"x" * 4096)
    elif before == "placeholder":
        asyncio.run(node.withhold(share()))

    asyncio.run(node.withhold(share()))

    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_TRUNC):
        with pytest.raises(OSError, match="No such device"):
            os.open(path, flags)
    assert [each.name for each in path.parent.iterdir()] == ["vgpu.cache"]
    (reading,) = node.read(UID, "main")
    assert isinstance(reading.region, Unreadable)
    assert seed(tmp_path) == path
    assert isinstance(region(tmp_path), Region)


def test_a_place_that_cannot_be_closed_is_told(tmp_path: Path) -> None:
    """The container waits, and its pod says why."""
    node = regions(tmp_path)
    (tmp_path / "usr/local/vgpu/vgpu").write_text("in the way")

    with pytest.raises(NotYetError, match=r"vgpu/containers/.*_main cannot be prepared: "):
        asyncio.run(node.withhold(share()))
