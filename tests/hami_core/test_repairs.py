"""What killed processes and tenants leave in a region is repaired under the real library.

The builds wait 330 seconds for a lock that a killed process held, or spin for ever, so a program
that answers at all was let go by a look.
"""

import struct
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agent.deviceplugin.container_edits import HostMount
from agent.monitor.inspection_thread import InspectionResult
from agent.monitor.violation import ObservedUse, ViolationKind, violations
from agent.region.feedback import RELEASED
from agent.region.layout import SEEDED
from agent.region.repair import RepairKind
from agent.share import Share
from allocator.model.request import Priority
from tests.hami_core.conftest import NodeMaker
from tests.harness.container import Container
from tests.harness.cuda_program import OUT_OF_MEMORY, CudaProgram
from tests.harness.library_node import GIB, LibraryNode
from tests.integration.agent.monitored import POD
from tests.integration.agent.shares import NEIGHBOUR, UID

pytestmark = pytest.mark.library
CONTEXT = GIB // 4  # what the stand-in for CUDA takes for one
PATIENCE = 25.0  # seconds: less than the 30 after which the library asks again
OLD_MOUNT = "/run/regions"
STARTUP_LOCK = SEEDED.semaphores[1]


def word(region: Path, at: int) -> int:
    with region.open("rb") as file:
        file.seek(at)
        return int(struct.unpack("<I", file.read(4))[0])


def set_word(region: Path, at: int, value: int) -> None:
    with region.open("r+b", buffering=0) as file:
        file.seek(at)
        file.write(struct.pack("<I", value))


class Looks:
    """An agent that looks while programs wait."""

    def __init__(self, node: LibraryNode, share: Share) -> None:
        self.node, self.share = node, share
        self.repairs: list[RepairKind] = []
        self._pool = ThreadPoolExecutor()

    def look(self) -> InspectionResult:
        found = self.node.inspect(self.share)
        self.repairs += [repair.kind for repair in found.repairs]
        return found

    def during(self, program: CudaProgram, command: str) -> str:
        """Return the answer to a command that takes as many looks as it takes."""
        answer: Future[str] = self._pool.submit(program.tell, command, within=PATIENCE)
        while not answer.done():
            self.look()
            threading.Event().wait(0.2)
        return answer.result()

    def program(
        self, container: Container, *, uid: int = 1000, env: Mapping[str, str] | None = None
    ) -> CudaProgram:
        """Start a program that the agent knows, its environment changed by *env*."""
        made = container.program(uid=uid, env={**container.env, **(env or {})})
        self.node.enrol(made, self.share)
        return made

    def observed(self, found: InspectionResult) -> ObservedUse:
        return ObservedUse(
            processes=found.processes,
            shares=(self.share,),
            pods={UID: POD},
            counted=found.counted,
        )


@contextmanager
def looking(node: LibraryNode, share: Share) -> Iterator[tuple[Looks, Container]]:
    with node.container(share) as container:
        yield Looks(node, share), container


@contextmanager
def looking_at_an_older_pod(node: LibraryNode, share: Share) -> Iterator[tuple[Looks, Container]]:
    """Look at a container that has the directory of its region, as older versions mounted it."""
    node.edits(share)
    directory = str(node.region(share).parent)
    volume = HostMount(host=directory, path=OLD_MOUNT, read_only=False)
    region = {"CUDA_DEVICE_MEMORY_SHARED_CACHE": f"{OLD_MOUNT}/vgpu.cache"}
    with node.container(share, volumes=[volume], env=region) as container:
        yield Looks(node, share), container


def test_a_process_killed_at_its_start_keeps_nobody_waiting(node: LibraryNode) -> None:
    """It is killed while it looks for its node pid, as an impatient probe does."""
    share = node.share(8192)
    with looking(node, share) as (looks, container):
        region, first, second = node.region(share), looks.program(container), None
        node.driver.gives.clear()  # which it waits for in the middle of that
        with ThreadPoolExecutor() as pool:
            starting = pool.submit(first.tell, "init", within=PATIENCE)
            while word(region, STARTUP_LOCK):
                threading.Event().wait(0.01)
            node.bury(first)
            assert starting.exception() is not None
        node.driver.gives.set()
        assert word(region, STARTUP_LOCK) == 0

        second = looks.program(container)
        assert looks.during(second, "init") == "1"
        assert looks.repairs == [RepairKind.STARTUP_LOCK]
        assert looks.during(looks.program(container), "init") == "1"
        assert looks.repairs == [RepairKind.STARTUP_LOCK]


def test_a_slow_start_is_no_killed_one(node: LibraryNode) -> None:
    """Who holds the lock and lives keeps it, and others wait for it as they should."""
    share = node.share(8192)
    with looking(node, share) as (looks, container), ThreadPoolExecutor() as pool:
        slow, waiting = looks.program(container), looks.program(container)
        node.driver.gives.clear()
        answers = []
        for program in (slow, waiting):
            answers.append(pool.submit(program.tell, "init", within=PATIENCE))
            while word(node.region(share), STARTUP_LOCK):
                threading.Event().wait(0.01)
        for _ in range(6):
            threading.Event().wait(0.2)
            looks.look()
        repaired = list(looks.repairs)
        node.driver.gives.set()

        assert [answer.result() for answer in answers] == ["1", "1"]
        assert repaired == []


def test_a_process_killed_while_it_counts_lets_the_others_allocate(node: LibraryNode) -> None:
    """Its lock is odd for ever, and everybody else spins until it is even."""
    share = node.share(8192)
    with looking(node, share) as (looks, container):
        first, second = looks.program(container), looks.program(container)
        for program in (first, second):
            looks.during(program, "init")
        assert first.fits(0, GIB)
        node.bury(first)
        assert SEEDED.slot.lock is not None
        lock = SEEDED.slots + SEEDED.slot.lock
        set_word(node.region(share), lock, word(node.region(share), lock) + 1)

        assert looks.during(second, f"alloc 0 {GIB}").isdigit()
        assert looks.repairs == [RepairKind.COUNTER_LOCK]


@pytest.mark.parametrize("owner", [0, 4711], ids=["nobody-noted", "a-dead-one-noted"])
def test_a_process_killed_with_the_list_of_processes_lets_the_next_start(
    node: LibraryNode, owner: int
) -> None:
    """The library gives up on a lock without an owner after five minutes, and ends."""
    share = node.share(8192)
    with looking(node, share) as (looks, container):
        looks.during(looks.program(container), "init")
        set_word(node.region(share), SEEDED.owner, owner)
        set_word(node.region(share), SEEDED.semaphores[0], 0)

        assert looks.during(looks.program(container), "init") == "1"
        assert looks.repairs == [RepairKind.SLOT_LOCK]
        assert word(node.region(share), SEEDED.semaphores[0]) == 1


def test_a_region_that_root_deletes_is_shared_again(node: LibraryNode) -> None:
    """Processes of before and after count in one, within one limit."""
    share = node.share(8192)
    with looking_at_an_older_pod(node, share) as (looks, container):
        before = looks.program(container, uid=0)
        looks.during(before, "init")
        assert before.fits(0, 5 * GIB)
        assert container.run("rm", f"{OLD_MOUNT}/vgpu.cache", uid=0).returncode == 0
        found = looks.look()
        after = looks.program(container)
        looks.during(after, "init")

        assert [v.kind for v in found.violations] == [ViolationKind.LIMITS]
        assert looks.repairs == [RepairKind.FILE]
        assert not after.fits(0, 3 * GIB)
        assert after.fits(0, 2 * GIB)


def test_two_regions_hold_one_limit(node: LibraryNode) -> None:
    """7 + 7 GiB of 8 were had through a second file in the directory."""
    share = node.share(8192)
    mine = {"CUDA_DEVICE_MEMORY_SHARED_CACHE": f"{OLD_MOUNT}/mine.cache"}
    with looking_at_an_older_pod(node, share) as (looks, container):
        first, second = looks.program(container, uid=0), looks.program(container, uid=0, env=mine)
        for program in (first, second):
            looks.during(program, "init")
        assert first.fits(0, 5 * GIB)
        found = looks.look()

        assert not second.fits(0, 3 * GIB)
        assert second.fits(0, 2 * GIB)
        assert '"mine.cache"' in found.violations[-1].note
        totals = [count.totals[node.uuids[0]].total for count in looks.look().counts]
        assert sum(totals) == 7 * GIB + len(totals) * CONTEXT


def test_a_region_elsewhere_is_told_at_once(node: LibraryNode) -> None:
    """The library opens any file that a variable names; what it holds there the driver sees."""
    share = node.share(8192)
    mine = {"CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/mine.cache"}
    with looking(node, share) as (looks, container):
        first, second = looks.program(container), looks.program(container, env=mine)
        for program in (first, second):
            looks.during(program, "init")
            assert program.fits(0, 7 * GIB)
        looks.look()
        found = looks.look()

        (violation,) = found.violations
        assert violation.kind is ViolationKind.UNCOUNTED
        assert f"pid {second.pid};" in violation.note
        (excess,) = violations(looks.observed(found))
        assert excess.note.endswith(f"the library does not count all of pid {second.pid}")


def test_who_is_not_counted_after_a_compaction_is_named(node: LibraryNode) -> None:
    """One of three dies, one compacts, and the third counts in a slot that nobody reads."""
    share = node.share(8192)
    with looking(node, share) as (looks, container):
        dies, compacts, stale = (looks.program(container) for _ in range(3))
        for program in (dies, compacts, stale):
            looks.during(program, "init")
        node.bury(dies)
        assert compacts.fits(0, GIB)
        assert not compacts.fits(0, 8 * GIB)  # compacts, because it does not fit
        assert stale.fits(0, 6 * GIB)
        assert stale.fits(0, 6 * GIB)  # 13 of 8 GiB
        found = looks.look()

        (violation,) = violations(looks.observed(found))
        assert violation.kind is ViolationKind.MEMORY
        assert violation.note.endswith(f"the library does not count all of pid {stale.pid}")
        assert found.violations == ()


def test_a_counter_below_zero_does_not_end_a_container(node: LibraryNode) -> None:
    """The third frees from the slot of a fourth, whose counter falls below zero."""
    share = node.share(8192)
    with looking(node, share) as (looks, container):
        dies, compacts, stale = (looks.program(container) for _ in range(3))
        for program in (dies, compacts, stale):
            looks.during(program, "init")
        assert stale.fits(0, GIB)
        node.bury(dies)
        assert not compacts.fits(0, 8 * GIB)
        held = stale.tell(f"alloc 0 {4 * GIB}")
        fourth = looks.program(container)
        looks.during(fourth, "init")
        assert stale.tell(f"free {held}") == "ok"
        refused = fourth.tell(f"alloc 0 {GIB}")
        for _ in range(2):
            looks.look()

        assert refused == OUT_OF_MEMORY
        assert looks.repairs == [RepairKind.COUNTER]
        assert fourth.fits(0, GIB)
        assert not fourth.fits(0, 7 * GIB)


@pytest.mark.parametrize("ranks", [(0, 1), (1, 0)], ids=["in-order", "reversed"])
def test_a_rank_on_its_own_gpu_counts_there(node_of: NodeMaker, ranks: tuple[int, int]) -> None:
    """Launchers give each rank one GPU by CUDA_VISIBLE_DEVICES, and the library numbers it 0."""
    node = node_of(2)
    share = node.share(8192, 8192)
    with looking(node, share) as (looks, container):
        programs = [
            looks.program(container, env={"CUDA_VISIBLE_DEVICES": str(rank)}) for rank in ranks
        ]
        for program in programs:
            assert looks.during(program, "init") == "1"
            assert program.fits(0, 3 * GIB)
        found = looks.look()

        (count,) = found.counts
        totals = [count.totals[gpu].data for gpu in node.uuids]
        (violation,) = found.violations
        assert totals == [3 * GIB, 3 * GIB]
        assert (violation.kind, violation.gpu) == (ViolationKind.NUMBERING, node.uuids[1])
        assert not programs[1].fits(0, 3 * GIB)  # of 8 GiB on its own GPU: why it is told


def test_a_probe_in_a_container_that_goes_first_holds_nobody_back(node: LibraryNode) -> None:
    """A program that asks NVML alone attaches, and so writes the time of a kernel."""
    low, high = node.share(8192), node.share(8192, cores=0)
    high = replace(
        high, owner=replace(high.owner, uid=NEIGHBOUR, pod="first"), priority=Priority.HIGH
    )
    with node.container(low) as behind, node.container(high) as first:
        for share, container in ((low, behind), (high, first)):
            set_word(node.region(share), SEEDED.recent_kernel, RELEASED)  # as if long running
            program = container.program()
            node.enrol(program, share)
            program.tell("nvml 0")
        assert SEEDED.last_kernel is not None
        noted = word(node.region(high), SEEDED.last_kernel)
        probed = node.inspect(low, high).held_back
        computing = first.program()
        node.enrol(computing, high)
        computing.tell("init")
        computing.tell("launch 0 1")
        busy = node.inspect(low, high).held_back

    assert noted > 0
    assert [set(probed), set(busy)] == [set(), {(UID, "main")}]
