"""C.2 and D, as far as no library is needed: regions, and which libraries are installed."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from agent.deviceplugin.container_edits import hami_core_edits
from agent.monitor.inspection_thread import InspectionResult, Inspector
from agent.monitor.violation import ViolationKind
from agent.node.process_files import Processes
from agent.region.decode import Region, Unreadable
from agent.region.feedback import ComputeActivity, SharingContainer, flags_by_container
from agent.region.layout import MOST_DEVICES, SEEDED
from agent.region.library_files import Absent, install_from
from agent.region.region_files import RegionFiles
from agent.region.repair import RepairKind
from agent.region.safe_files import LARGEST_REGION, MOST_ON_DISK
from agent.share import NotYetError, Share
from allocator.catalog.injection import REGION_PATH, REGION_PATH_WITHOUT_ENVIRONMENT
from allocator.model.request import Priority
from benchmarks.hostile_door import door
from benchmarks.hostile_doors_pods import CONTEXT
from tests.builders.model import soft_grant
from tests.builders.pods import CORES, MEMORY, MODE, NUMBER, container, decided, pod
from tests.fakes.hami_core import Tenant, enrol, library_bytes
from tests.harness.broken_region import DEAD, LIST, LIVING, ODD, STARTUP, BrokenRegionNode
from tests.harness.region_attacks import GROWTHS, IN_THE_FILE, OF_THE_NAME, written
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

LIMIT: Final = 8 * GIB  # of each share here
CORE_LIMIT: Final = 30  # percent


class _Watched:
    """A region that the agent seeded, and the agent that looks at it."""

    def __init__(self, root: Path, of: Share) -> None:
        self.root, self.share = root, of
        self.cache = Path(asyncio.run(regions(root).seed(of))) / "vgpu.cache"
        self.inspector: Inspector = inspector(root)

    def look(self) -> InspectionResult:
        return self.inspector.inspect([], site(self.share))

    def region(self) -> Region | Unreadable:
        return regions(self.root).read(UID, "main")[0].region


@contextmanager
def _watched(*memory: int) -> Iterator[_Watched]:
    # The attacks leave files above the region, so each has a folder of its own.
    with TemporaryDirectory(prefix="doors-") as folder:
        grants = [
            soft_grant(m, CORE_LIMIT, gpu=g) for m, g in zip(memory, (GPU, OTHER), strict=False)
        ]
        yield _Watched(Path(folder), share(*grants))


def _kinds(found: InspectionResult) -> list[ViolationKind]:
    return [violation.kind for violation in found.violations]


@door
def regions_that_grow() -> Iterator[str]:
    """C.2: what no region needs is cut off at one look, and told once."""
    for growth in GROWTHS:
        with _watched() as node:
            growth(node.cache)
            found, status = node.look(), node.cache.stat()
            if status.st_size > LARGEST_REGION or status.st_blocks * 512 > MOST_ON_DISK:
                yield f"{growth.__name__}: {status.st_size} bytes stay"
            if ViolationKind.DISK not in _kinds(found):
                yield f"{growth.__name__}: not told"
            if ViolationKind.DISK in _kinds(node.look()):
                yield f"{growth.__name__}: told again, though it is cut"
    with _watched() as node:
        other = node.cache.with_name("other.cache")
        other.write_bytes(node.cache.read_bytes())
        written(other)
        if ViolationKind.DISK not in _kinds(node.look()) or other.stat().st_size != SEEDED.size:
            yield "a further file"


@door
def regions_that_are_overwritten() -> Iterator[str]:
    """C.2: a region that is shrunk or filled with anything is told, and good at the next start."""
    for attack in IN_THE_FILE:
        with _watched() as node:
            attack(node.cache)
            if not isinstance(node.region(), Unreadable):
                yield f"{attack.__name__}: is read as a region"
            if _kinds(node.look()) != [ViolationKind.LIMITS]:
                yield f"{attack.__name__}: not told"
            asyncio.run(regions(node.root).seed(node.share))
            if not isinstance(node.region(), Region):
                yield f"{attack.__name__}: the next container has no region"


@door
def regions_that_are_replaced() -> Iterator[str]:
    """C.2, D.7: a region that is deleted, moved or replaced is in its place again, and told."""
    for attack in OF_THE_NAME:
        with _watched() as node:
            before = node.cache.stat().st_ino
            attack(node.cache)
            found = node.look()
            if not os.path.lexists(node.cache) or node.cache.lstat().st_ino != before:
                yield f"{attack.__name__}: its file is not there"
            if _kinds(found) != [ViolationKind.LIMITS]:
                yield f"{attack.__name__}: told as {_kinds(found)}"
            if [repair.kind for repair in found.repairs] != [RepairKind.FILE]:
                yield f"{attack.__name__}: counted as no repair"
    with _watched() as node:
        victim = node.root / "victim"
        victim.write_bytes(b"x" * (10 << 20))
        node.cache.unlink()
        node.cache.symlink_to(victim)
        node.look()
        if victim.read_bytes() != b"x" * (10 << 20):
            yield "a link to a file that is not the container's"


@door
def limits_that_are_lifted() -> Iterator[str]:
    """C.4: limits that a tenant changes are put right at one look, those of compute too."""
    changes = {
        "no memory limit": (SEEDED.memory_limits, 0),
        "64 GiB": (SEEDED.memory_limits, 64 * GIB),
        "no compute limit": (SEEDED.core_limits, 0),
        "all of compute": (SEEDED.core_limits, 100),
        "more than all": (SEEDED.core_limits, 2**63),
    }
    for what, (at, value) in changes.items():
        with _watched() as node:
            with node.cache.open("r+b") as file:
                file.seek(at)
                file.write(value.to_bytes(8, "little"))
            found, region = node.look(), node.region()
            if isinstance(region, Unreadable):
                yield f"{what}: it cannot be read any more"
            elif (region.limits[0], region.cores[0]) != (LIMIT, CORE_LIMIT):
                yield f"{what}: {region.limits[0]} bytes, {region.cores[0]} %"
            if _kinds(found) != [ViolationKind.LIMITS]:
                yield f"{what}: not told"


@door
def second_regions() -> Iterator[str]:
    """D.7: two regions of one container hold one limit in sum, and that is told."""
    with _watched() as node:
        mine = Tenant(node.cache.with_name("mine.cache"), uuids=(GPU,))
        with Tenant(node.cache, uuids=(GPU,)) as first, mine as second:
            for tenant in (first, second):
                enrol(node.root / "proc", tenant.pid, uid=UID, container=ID)
            node.look()
            first.tell(f"alloc 0 {5 * GIB}")
            second.tell(f"alloc 0 {2 * GIB}")
            found = node.look()
            if not any("mine.cache" in each.note for each in found.violations):
                yield "not told"
            for tenant in (first, second):
                if tenant.tell(f"alloc 0 {2 * GIB}") != "oom":
                    yield f"9 of 8 GiB through {'the first' if tenant is first else 'its own'}"


@door
def regions_that_a_lost_environment_misses() -> Iterator[str]:
    """D.1: the region is also where the library looks without its variables."""
    edits = hami_core_edits(share(), library="/usr/local/vgpu", region="/region")
    hosts = {mount.path: (mount.host, mount.read_only) for mount in edits.mounts}
    for path in (REGION_PATH, REGION_PATH_WITHOUT_ENVIRONMENT):
        if hosts.get(path) != ("/region/vgpu.cache", False):
            yield f"{path}: {hosts.get(path)}"


@door
def libraries_that_cannot_be_held() -> Iterator[str]:
    """D.2: what our region would not limit is not installed, and no container starts with it."""
    served = library_bytes()
    contents = {
        **{f"generation {name}": library_bytes(name) for name in "ABCD"},
        "no library": b"#!/bin/sh\n" + served,
        "cut off": served[:20],
        "of 32 bits": served[:4] + b"\1" + served[5:],
        "of another machine": served[:18] + (183).to_bytes(2, "little") + served[20:],
        "of two layouts": library_bytes(tail=library_bytes("A")),
    }
    for what, content in contents.items():
        with TemporaryDirectory(prefix="doors-") as folder:
            root = Path(folder)
            image, target = root / "image", root / "usr/local/vgpu"
            image.mkdir()
            (root / "proc").mkdir()
            (image / "libvgpu.so.v2").write_bytes(content)
            found = install_from(target, image)
            if not isinstance(found, Absent) or target.exists():
                yield f"{what}: is installed"
            try:
                asyncio.run(RegionFiles(target, Processes(root), library=found).seed(share()))
            except NotYetError:
                continue
            yield f"{what}: a container starts with it"


@door
def devices_that_were_not_promised() -> Iterator[str]:
    """D.3: the region limits all devices that the library knows, as the fallback does."""
    for memory in ((8192,), (4096, 8192)):
        with _watched(*memory) as node:
            region = node.region()
            if isinstance(region, Unreadable):
                yield region.why
                continue
            rest = range(len(memory), MOST_DEVICES)
            if any(region.limits[k] != memory[0] << 20 for k in rest):
                yield f"memory beside {memory}"
            if any(region.cores[k] != CORE_LIMIT for k in rest):
                yield f"compute beside {memory}"


@door
def attaching_that_counts_as_computing() -> Iterator[str]:
    """D.4: who only asks for the state of its GPU holds nobody back; who computes does."""
    for utilization, recent, holds_back in ((0, 0, False), (0, 1, False), (40, 0, True)):
        with _watched() as node:
            region = node.region()
            if isinstance(region, Unreadable):
                yield region.why
                continue
        probed = _sharing(region, Priority.HIGH, recent=recent, utilization=utilization)
        waiting = _sharing(region, Priority.LOW, recent=0, utilization=0)
        containers = {"first": probed, "behind": waiting}
        _, active = ComputeActivity().advance(containers, NOW)
        if (flags_by_container(containers, active)["behind"].recent == -1) is not holds_back:
            yield f"at {utilization} % after {recent} launches"


def _sharing(
    region: Region, priority: Priority, *, recent: int, utilization: int
) -> SharingContainer:
    return SharingContainer(
        gpus=frozenset({GPU}),
        priority=priority,
        region=replace(region, recent_kernel=recent, last_kernel=int(NOW)),
        live=True,
        utilization=utilization,
    )


@door
def locks_of_killed_processes() -> Iterator[str]:
    """D.5: what a killed process held is freed, and what a living one holds is not."""
    with TemporaryDirectory(prefix="doors-") as folder:
        node = BrokenRegionNode(Path(folder))
        node.put(STARTUP, "<I", 0)
        if RepairKind.STARTUP_LOCK not in node.looks((1.8,) * 6 + (40.0,)):
            yield "the lock of starting processes"
    for name, at, words, kind in (
        ("the counters", ODD, ("<Q", 3), RepairKind.COUNTER_LOCK),
        ("the list of processes", LIST, ("<I", 0), RepairKind.SLOT_LOCK),
    ):
        for inner in (LIVING, DEAD):  # which of the two lives
            with TemporaryDirectory(prefix="doors-") as folder:
                node = BrokenRegionNode(Path(folder))
                node.enrol(inner=inner)
                node.put(at, *words)
                node.put(SEEDED.owner, "<Q", DEAD)
                if (kind in node.looks((1.8,) * 6)) is (inner == DEAD):
                    yield f"{name}, whose holder {'lives' if inner == DEAD else 'is dead'}"


@door
def ranks_that_are_counted_at_the_first_gpu() -> Iterator[str]:
    """D.6: who starts one process for each of several GPUs is warned that limits do not hold so."""
    two = {NUMBER: 2, MEMORY: 3000, CORES: 30}
    for command in (
        ["torchrun", "--nproc-per-node=2", "train.py"],
        ["sh", "-c", "cd /app && torchrun train.py"],
        ["python", "-m", "torch.distributed.run", "train.py"],
        ["mpirun", "-np", "2", "./a.out"],
        ["--tensor-parallel-size=2"],
    ):
        written_pod = pod(container(limits=two, command=command), annotations={MODE: "hami-core"})
        outcome = decided(written_pod, CONTEXT)
        if not any("CUDA_VISIBLE_DEVICES" in text for text in outcome.warnings):
            yield " ".join(command)
