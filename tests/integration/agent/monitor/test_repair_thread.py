"""Repairing look by look: whose death is proved, and what that costs."""

import asyncio
import os
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from agent.monitor.inspection_thread import Inspector
from agent.node.process_files import Processes
from agent.region.layout import SEEDED
from agent.region.repair import RepairKind
from tests.fakes.hami_core import enrol
from tests.integration.agent.shares import GPU, ID, NEIGHBOUR, NOW, UID, regions, share, site

OTHER_ID = "fedcba9876543210" * 4
DEAD, LIVING = 77, 78  # pids in the container


class Node:
    """A node of which a test writes the region; nobody uses it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 0.0
        self.walked = 0.0
        self.cache = Path(asyncio.run(regions(root).seed(share()))) / "vgpu.cache"
        self.inspector = Inspector(
            regions(root),
            Processes(root),
            now=lambda: NOW,
            ticks=lambda: self.now,
            cpu_seconds=self._cpu_seconds,
        )
        self.put(SEEDED.device_count, "<Q", 1)
        self.put(SEEDED.uuids, "96s", GPU.encode())
        self.put(SEEDED.process_count, "<i", 2)
        for index, pid in enumerate((DEAD, LIVING)):
            self.put(SEEDED.slots + index * SEEDED.slot.size, "<ii", pid, 4_000_000 + index)

    def _cpu_seconds(self) -> float:
        self.walked += 0.01  # at the beginning and at the end of each walk
        return self.walked

    def put(self, at: int, form: str, *values: object) -> None:
        with self.cache.open("r+b") as file:
            file.seek(at)
            file.write(struct.pack(form, *values))

    def word(self, at: int) -> int:
        return int(struct.unpack_from("<Q", self.cache.read_bytes(), at)[0])

    def enrol(self, *, inner: int = LIVING, uid: str = UID, container: str = ID) -> None:
        """Let this very process be one of a pod."""
        enrol(self.root / "proc", os.getpid(), uid=uid, container=container, inner=inner)

    def looks(self, pauses: Iterable[float] = (1.8, 1.8)) -> list[RepairKind]:
        """Look after each pause; return what was repaired."""
        done = []
        for pause in pauses:
            self.now += pause
            done += [r.kind for r in self.inspector.inspect([], site(share())).repairs]
        return done


ODD = SEEDED.slots + (SEEDED.slot.lock or 0)
STARTUP, LIST = SEEDED.semaphores[1], SEEDED.semaphores[0]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_the_lock_of_one_whose_pod_lives_on_is_made_even(node: Node) -> None:
    """At the second look, and once."""
    node.enrol()
    node.put(ODD, "<Q", 3)

    assert node.looks((1.8,)) == []
    assert node.looks((1.8,)) == [RepairKind.COUNTER_LOCK]
    assert node.word(ODD) == 2
    assert node.looks() == []


@pytest.mark.parametrize(
    "resident",
    [
        pytest.param({"inner": DEAD}, id="it-lives"),
        pytest.param({"inner": DEAD, "container": OTHER_ID}, id="in-a-container-not-known-yet"),
        pytest.param({"uid": NEIGHBOUR}, id="nobody-of-its-pod-is-seen"),
        pytest.param(None, id="nobody-is-seen"),
    ],
)
def test_what_may_live_keeps_its_lock(node: Node, resident: dict[str, object] | None) -> None:
    """Also where the agent does not understand the control groups of a pod."""
    if resident is not None:
        node.enrol(**resident)  # type: ignore[arg-type]  # a row of the table
    node.put(ODD, "<Q", 3)
    node.put(LIST, "<I", 0)
    node.put(SEEDED.owner, "<Q", DEAD)

    assert node.looks((1.8,) * 6) == []
    assert (node.word(ODD), node.word(SEEDED.owner)) == (3, DEAD)


def test_the_list_is_freed_in_two_steps_by_looks(node: Node) -> None:
    """Between them it has no owner, and the repair counts once."""
    node.enrol()
    node.put(LIST, "<I", 0)
    node.put(SEEDED.owner, "<Q", DEAD)

    assert node.looks() == []
    assert (node.word(SEEDED.owner), node.word(LIST) % 2**32) == (0, 0)
    assert node.looks() == [RepairKind.SLOT_LOCK]
    assert node.word(LIST) % 2**32 == 1


def test_who_has_just_started_may_hold_the_lock_of_starting_processes(node: Node) -> None:
    """For half a minute; afterwards nobody is still in that, and whoever held it is dead."""
    node.enrol()
    node.put(SEEDED.slots + SEEDED.slot.size + 4, "<i", os.getpid())  # its number on the node
    node.put(STARTUP, "<I", 0)

    assert node.looks((1.8,) * 10) == []
    assert node.looks((20.0,)) == [RepairKind.STARTUP_LOCK]


def test_a_tenant_that_breaks_its_locks_again_and_again_costs_little(node: Node) -> None:
    """Walks of all processes take a hundredth of the time; each repair is counted."""
    node.enrol(inner=DEAD)
    node.put(ODD, "<Q", 3)
    node.looks((0.4,) * 50)  # 20 seconds, in which a walk of 10 ms is allowed 20 times

    assert node.walked <= 2 * 0.01 * 22
    node.put(ODD, "<Q", 4)
    for _ in range(3):
        node.put(STARTUP, "<II", 0, 9)
        assert node.looks() == [RepairKind.STARTUP_LOCK]
