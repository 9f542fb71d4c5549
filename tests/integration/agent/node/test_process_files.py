"""Processes as the kernel tells of them, and what is remembered of each."""

import os
import subprocess
from pathlib import Path

import pytest

from agent.node.cgroup import PodCgroup
from agent.node.process_files import Processes, Resident
from tests.fakes.hami_core import bury, enrol
from tests.integration.agent.shares import ID, NEIGHBOUR, UID


def test_the_kernel_is_understood() -> None:
    """Our own process is found, by its start and its number, outside pods or in one."""
    found = Processes().resident(os.getpid())

    assert found is not None
    assert found.inner_pid is not None
    assert found.started > 0


def test_a_process_that_ended_is_nobody(tmp_path: Path) -> None:
    """A zombie's number is still taken; one that was waited for is free."""
    with subprocess.Popen(["true"]) as process:
        process.wait(10)

    assert Processes().resident(process.pid) is None
    assert Processes(tmp_path).resident(1) is None
    assert Processes().resident(-1) is None


def test_a_number_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    """What was remembered of a pid is dropped with its start time."""
    node = Processes(tmp_path)
    enrol(tmp_path / "proc", os.getpid(), uid=UID, container=ID)
    first = node.resident(os.getpid())
    stat = tmp_path / "proc" / str(os.getpid()) / "stat"
    enrol(tmp_path / "proc", os.getpid(), uid=NEIGHBOUR, container=ID)
    kept = node.resident(os.getpid())
    stat.write_text("7 (a) b) S " + " ".join(map(str, range(4, 52))))
    second = node.resident(os.getpid())

    assert first is not None
    assert first.cgroup == PodCgroup(UID, ID)
    assert kept == first
    assert second is not None
    assert (second.cgroup, second.started) == (PodCgroup(NEIGHBOUR, ID), 22)


def test_a_containers_first_process_is_found_once_it_is_inside(tmp_path: Path) -> None:
    """It begins its life in the runtime's group; what is old stays where it is."""
    now = [0.0]
    node = Processes(tmp_path, ticks=lambda: now[0])
    enrol(tmp_path / "proc", os.getpid(), uid=UID, container=ID)
    group = tmp_path / "proc" / str(os.getpid()) / "cgroup"
    inside, outside = group.read_text(), "0::/system.slice/containerd.service\n"

    cells = []
    for text, pause in ((outside, 1), (inside, 1), (outside, 100), (outside, 0)):
        group.write_text(text)
        found = node.resident(os.getpid())
        assert found is not None
        cells.append(found.cgroup)
        now[0] += pause
    assert cells == [None, *[PodCgroup(UID, ID)] * 3]


def test_what_has_been_outside_for_long_stays_there(tmp_path: Path) -> None:
    """Most processes of a node are not read again and again."""
    now = [0.0]
    node = Processes(tmp_path, ticks=lambda: now[0])
    enrol(tmp_path / "proc", os.getpid(), uid=UID, container=ID)
    group = tmp_path / "proc" / str(os.getpid()) / "cgroup"
    inside = group.read_text()
    group.write_text("0::/system.slice/nvidia-persistenced.service\n")

    for _ in range(2):
        node.resident(os.getpid())
        now[0] += 100
    group.write_text(inside)
    found = node.resident(os.getpid())

    assert found is not None
    assert found.cgroup is None


def test_everyone_is_whoever_runs_in_a_pod(tmp_path: Path) -> None:
    """The node's own processes are not among them, nor is who has left."""
    node = Processes(tmp_path)
    enrol(tmp_path / "proc", os.getpid(), uid=UID, container=ID)
    enrol(tmp_path / "proc", os.getppid(), uid=UID, container=ID)
    (tmp_path / "proc" / str(os.getppid()) / "cgroup").write_text("0::/system.slice/x.service\n")
    (tmp_path / "proc/self").mkdir()

    assert [one.pid for one in node.pod_processes()] == [os.getpid()]
    bury(tmp_path / "proc", os.getpid())
    assert node.pod_processes() == ()


@pytest.mark.parametrize(
    ("maps", "expected"),
    [
        ("         0          0 4294967295\n", 0),
        ("         0     131072      65536\n", 131072),
        ("      1000       1000          1\n         0     100000       1000\n", 100000),
        ("", 0),  # no ids were given to it yet
    ],
    ids=["host-users", "own-users", "two-ranges", "unmapped"],
)
def test_the_root_user_of_a_pod_is_known_by_its_sandbox(
    tmp_path: Path, maps: str, expected: int
) -> None:
    """The oldest process is the runtime's; a tenant may give a later one any user namespace."""
    node = Processes(tmp_path)
    sandbox, later = (
        Resident(pid=pid, inner_pid=1, started=pid, cgroup=PodCgroup(UID, ID)) for pid in (7, 8)
    )
    for one, text in ((sandbox, maps), (later, "         0       4711          1\n")):
        folder = tmp_path / "proc" / str(one.pid)
        folder.mkdir(parents=True)
        (folder / "uid_map").write_text(text)

    assert node.root_id([sandbox]) == expected
    assert node.root_id([later, sandbox]) == (expected if maps else 4711)
    assert node.root_id([]) == 0
