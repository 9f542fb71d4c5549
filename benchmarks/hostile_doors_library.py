"""D with the real library: limits that must hold in a container, whatever its programs do.

Real builds lie in the folder that ``VGPU_HAMI_CORE`` names, by default beside the checkout; the
driver is a stand-in of ours. Without builds, or where no container can be made, these doors are
untried.
"""

import os
import platform
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final

import pytest

from agent.deviceplugin.container_edits import HostMount
from agent.monitor.inspection_thread import InspectionResult
from agent.monitor.violation import ObservedUse, ViolationKind, violations
from agent.region.layout import SEEDED
from agent.region.repair import RepairKind
from agent.share import Share
from benchmarks.hostile_door import Door, UntriedError, door
from compiled import ROOT
from tests.gpu.builds import VARIABLE, builds_in, has_seeded_layout
from tests.harness.container import Container, Image
from tests.harness.cuda_program import CudaProgram, ProgramError
from tests.harness.library_node import GIB, MIB, LibraryNode
from tests.integration.agent.monitored import POD
from tests.integration.agent.shares import UID

BUILDS: Final = ROOT.parent / "shared/peers/hami-core"
LIMIT: Final = 8 * GIB
PATIENCE: Final = 25.0  # seconds: less than the 30 after which the library asks again
LOST: Final = "/tmp/cudevshr.cache"
KEPT: Final = "/tmp/vgpu/vgpu.cache"
OLD_MOUNT: Final = "/run/regions"  # of a pod of an older version, which has the directory
LIES: Final = {"CUDA_DEVICE_MEMORY_LIMIT": "39g", "CUDA_DEVICE_MEMORY_LIMIT_0": "39g"}
IMAGES: Final = {
    "plain": Image(),
    "read-only": Image(read_only=True),
    "without /tmp": Image(tmp_mode=None),
    "own users": Image(user_namespace=True),
    "own users, read-only": Image(user_namespace=True, read_only=True),
}


def builds() -> tuple[Path, ...]:
    """Return the builds that the product serves; raises :class:`UntriedError` without any."""
    folder = Path(os.environ.get(VARIABLE) or BUILDS)
    if platform.machine() != "x86_64":
        raise UntriedError(f"the builds are for x86-64, this machine is {platform.machine()}")
    if os.geteuid() != 0:
        raise UntriedError("containers need root")
    found = tuple(build for build in builds_in(folder) if has_seeded_layout(build))
    if not found:
        raise UntriedError(f"{folder} has no builds of libvgpu.so; {VARIABLE} names another folder")
    return found


@dataclass(slots=True)
class _Scene:
    """A node with one build, a share on it, and the agent that looks while programs wait."""

    node: LibraryNode
    share: Share
    repairs: list[RepairKind] = field(default_factory=list)
    _pool: ThreadPoolExecutor = field(default_factory=ThreadPoolExecutor)

    @property
    def region(self) -> Path:
        return self.node.region(self.share)

    def look(self) -> InspectionResult:
        found = self.node.inspect(self.share)
        self.repairs += [repair.kind for repair in found.repairs]
        return found

    def program(
        self,
        container: Container,
        *,
        uid: int = 1000,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> CudaProgram:
        """Start a program that the agent knows, its environment changed, and let it begin."""
        made = container.program(uid=uid, env={**container.env, **env})
        self.node.enrol(made, self.share)
        self.during(made, "init")
        return made

    def during(self, program: CudaProgram, command: str) -> str:
        """Return the answer to a command that takes as many looks as it takes."""
        answer: Future[str] = self._pool.submit(program.tell, command, within=PATIENCE)
        while not answer.done():
            self.look()
            threading.Event().wait(0.2)
        return answer.result()

    def kill_at_start(self, container: Container) -> None:
        """Kill a program while it looks for its node pid, with the lock of that in its hands."""
        program = container.program()
        self.node.enrol(program, self.share)
        self.node.driver.gives.clear()  # which it waits for in the middle
        starting = self._pool.submit(program.tell, "init", within=PATIENCE)
        while self.word(SEEDED.semaphores[1]) and not starting.done():
            threading.Event().wait(0.01)
        self.node.bury(program)
        starting.exception()
        self.node.driver.gives.set()

    def word(self, at: int, value: int | None = None) -> int:
        """Return a word of the region as it was, and write *value* there."""
        with self.region.open("r+b", buffering=0) as file:
            file.seek(at)
            before = int(struct.unpack("<I", file.read(4))[0])
            if value is not None:
                file.seek(at)
                file.write(struct.pack("<I", value))
        return before


@contextmanager
def _scene(build: Path, *memory: int, gpus: int = 1) -> Iterator[_Scene]:
    with TemporaryDirectory(prefix="doors-") as folder:
        node = LibraryNode(Path(folder), build, gpus=gpus)
        with node.driver:
            yield _Scene(node, node.share(*(memory or (LIMIT // MIB,))))


def _with_library(attack: Callable[[Path], Iterator[str]]) -> Door:
    """Try *attack* with each build; a program that is left hanging or ends got through too."""

    def tried() -> Iterator[str]:
        for build in builds():
            try:
                for what in attack(build):
                    yield f"{build.name}: {what}"
            except ProgramError as error:
                yield f"{build.name}: {error}"
            except pytest.skip.Exception as error:
                raise UntriedError(str(error)) from error

    tried.__name__ = attack.__name__
    return door(tried)


def _excess(program: CudaProgram) -> Iterator[str]:
    """Yield what a program of a share of LIMIT gets wrong: too much, or less than it may have."""
    if program.tell("total 0") != str(LIMIT):
        yield f"sees {program.tell('total 0')} bytes"
    if not program.fits(0, LIMIT - GIB):
        yield "has less than it was promised"
    if program.fits(0, GIB):
        yield "has more than it was promised"


@_with_library
def lost_environments(build: Path) -> Iterator[str]:
    """D.1: who lost the variables, or has others, is held to the same limit."""
    for (what, image), uid in ((pair, uid) for pair in IMAGES.items() for uid in (0, 1000)):
        with _scene(build) as scene, scene.node.container(scene.share, image=image) as container:
            lost = container.program(uid=uid, cleared=True)
            lost.tell("init")
            for each in _excess(lost):
                yield f"env -i in {what}, uid {uid}: {each}"
    with _scene(build) as scene, scene.node.container(scene.share) as container:
        for how, program in (
            ("lies alone", container.program(env=LIES)),
            ("lies beside ours", container.program(env={**container.env, **LIES})),
        ):
            program.tell("init")
            for each in _excess(program):
                yield f"{how}: {each}"
            program.kill()


@_with_library
def programs_beside_each_other(build: Path) -> Iterator[str]:
    """D.1: processes with and without variables share one limit, and what a killed one had."""
    with _scene(build) as scene, scene.node.container(scene.share) as container:
        kept, lost = container.program(), container.program(cleared=True)
        for program in (kept, lost):
            program.tell("init")
        if not kept.fits(0, 5 * GIB) or lost.fits(0, 3 * GIB):
            yield "8 GiB are had twice"
        kept.kill()
        if not lost.fits(0, 5 * GIB):
            yield "what a killed one had is lost"


@_with_library
def roots_that_replace_the_region(build: Path) -> Iterator[str]:
    """D.1, D.7: a container's root neither removes, moves nor covers the file of its limits."""
    for image in (Image(), Image(user_namespace=True)):
        for command in (
            ("rm", "-f", LOST),
            ("mv", LOST, "/tmp/other"),
            ("ln", "-sf", "/dev/null", LOST),
            ("unlink", KEPT),
            ("mv", "-T", "/etc/passwd", LOST),
            ("umount", LOST),
            ("mount", "-t", "tmpfs", "x", "/tmp"),
        ):
            with (
                _scene(build) as scene,
                scene.node.container(scene.share, image=image) as container,
            ):
                before = str(scene.region.stat().st_ino)
                container.run(*command, uid=0)
                for path in (LOST, KEPT):
                    if container.run("stat", "-c%i", path).stdout.strip() != before:
                        yield f"{' '.join(command)}: {path} is another file"


@_with_library
def regions_filled_by_tenants(build: Path) -> Iterator[str]:
    """C.2: 200 MiB are cut under running programs, told once, and the limits stay."""
    for path, uid in ((KEPT, 0), (LOST, 65534)):
        with _scene(build) as scene, scene.node.container(scene.share) as container:
            program = scene.program(container)
            program.fits(0, 5 * GIB)
            container.run("sh", "-c", f"head -c 209715200 /dev/zero >>{path}", uid=uid)
            found = scene.look()
            if scene.region.stat().st_size != SEEDED.size:
                yield f"{scene.region.stat().st_size} bytes of {path} stay"
            if ViolationKind.DISK not in {each.kind for each in found.violations}:
                yield f"{path} is not told"
            if program.fits(0, 3 * GIB):
                yield f"{path} has no limit any more"


@_with_library
def devices_beside_the_promised(build: Path) -> Iterator[str]:
    """D.3: a device that was not promised is limited too, and no program finds an error."""
    with _scene(build, gpus=2) as scene, scene.node.container(scene.share) as container:
        program = scene.program(container)
        program.tell("nvml 0")
        if program.errors():
            yield f"it says {program.errors()[:80]!r}"
        if program.fits(1, LIMIT + GIB):
            yield "the second device has no limit"


@_with_library
def locks_that_killed_programs_held(build: Path) -> Iterator[str]:
    """D.5: a program killed at its start, or while it counts, keeps nobody waiting."""
    with _scene(build) as scene, scene.node.container(scene.share) as container:
        first, second = scene.program(container), scene.program(container)
        scene.node.bury(first)
        lock = SEEDED.slots + (SEEDED.slot.lock or 0)
        scene.word(lock, scene.word(lock) | 1)
        if not scene.during(second, f"alloc 0 {GIB}").isdigit():
            yield "who counts beside a dead one gets no memory"
        if scene.repairs != [RepairKind.COUNTER_LOCK]:
            yield f"repaired were {scene.repairs}"
    with _scene(build) as scene, scene.node.container(scene.share) as container:
        scene.kill_at_start(container)
        for _ in range(2):  # who finds the lock held, and who comes later
            scene.program(container)
        if scene.repairs != [RepairKind.STARTUP_LOCK]:
            yield f"repaired were {scene.repairs}"


@_with_library
def programs_that_nobody_counts(build: Path) -> Iterator[str]:
    """D.5, D.7: after a compaction, and with a region of its own, who is uncounted is named."""
    with _scene(build) as scene, scene.node.container(scene.share) as container:
        dies, compacts, stale = (scene.program(container) for _ in range(3))
        scene.node.bury(dies)
        compacts.fits(0, GIB)
        compacts.fits(0, LIMIT)  # which compacts, because it does not fit
        stale.fits(0, 6 * GIB)
        stale.fits(0, 6 * GIB)
        yield from _unnamed("after a compaction", stale, scene)
    mine = {"CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/mine.cache"}
    with _scene(build) as scene, scene.node.container(scene.share) as container:
        first, second = scene.program(container), scene.program(container, env=mine)
        for program in (first, second):
            program.fits(0, 7 * GIB)
        scene.look()
        yield from _unnamed("with a region elsewhere", second, scene)


def _unnamed(how: str, program: CudaProgram, scene: _Scene) -> Iterator[str]:
    """Yield *how* a program has more than its pod may, where it is not the one that is told."""
    found = scene.look()
    seen = ObservedUse(
        processes=found.processes,
        shares=(scene.share,),
        pods={UID: POD},
        counted=found.counted,
    )
    notes = [each.note for each in violations(seen) if each.kind is ViolationKind.MEMORY]
    if not any(note.endswith(f"does not count all of pid {program.pid}") for note in notes):
        yield f"{how}: {notes}"


@_with_library
def second_regions_of_older_pods(build: Path) -> Iterator[str]:
    """D.7: where the whole directory is mounted, a second file and a deleted one gain nothing."""
    with _scene(build) as scene:
        scene.node.edits(scene.share)
        volume = HostMount(host=str(scene.region.parent), path=OLD_MOUNT, read_only=False)
        region = {"CUDA_DEVICE_MEMORY_SHARED_CACHE": f"{OLD_MOUNT}/vgpu.cache"}
        mine = {"CUDA_DEVICE_MEMORY_SHARED_CACHE": f"{OLD_MOUNT}/mine.cache"}
        with scene.node.container(scene.share, volumes=[volume], env=region) as container:
            first = scene.program(container, uid=0)
            second = scene.program(container, uid=0, env=mine)
            first.fits(0, 5 * GIB)
            told = scene.look().violations
            if not any("mine.cache" in each.note for each in told):
                yield "a second region is not told"
            if second.fits(0, 3 * GIB):
                yield "a second region has a limit of its own"
            container.run("rm", f"{OLD_MOUNT}/vgpu.cache", uid=0)
            if ViolationKind.LIMITS not in {each.kind for each in scene.look().violations}:
                yield "a deleted region is not told"
            third = scene.program(container)
            if third.fits(0, 3 * GIB):
                yield "a deleted region's limit begins anew"


@_with_library
def ranks_on_their_own_gpus(build: Path) -> Iterator[str]:
    """D.6: a rank that sees one GPU by CUDA_VISIBLE_DEVICES is counted there, and told."""
    with (
        _scene(build, 8192, 8192, gpus=2) as scene,
        scene.node.container(scene.share) as container,
    ):
        for rank in ("0", "1"):
            scene.program(container, env={"CUDA_VISIBLE_DEVICES": rank}).fits(0, 3 * GIB)
        found = scene.look()
        (count,) = found.counts
        totals = [count.totals[gpu].data for gpu in scene.node.uuids]
        if totals != [3 * GIB, 3 * GIB]:
            yield f"{totals} bytes are counted on the two"
        if ViolationKind.NUMBERING not in {each.kind for each in found.violations}:
            yield "nobody is told"
