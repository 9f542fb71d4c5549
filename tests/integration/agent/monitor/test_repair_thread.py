"""Repairing look by look: whose death is proved, and what that costs."""

import os
from pathlib import Path

import pytest

from agent.region.layout import SEEDED
from agent.region.repair import RepairKind
from tests.harness.broken_region import DEAD, LIST, ODD, STARTUP, BrokenRegionNode
from tests.integration.agent.shares import NEIGHBOUR

OTHER_ID = "fedcba9876543210" * 4


@pytest.fixture
def node(tmp_path: Path) -> BrokenRegionNode:
    return BrokenRegionNode(tmp_path)


def test_the_lock_of_one_whose_pod_lives_on_is_made_even(node: BrokenRegionNode) -> None:
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
def test_what_may_live_keeps_its_lock(
    node: BrokenRegionNode, resident: dict[str, object] | None
) -> None:
    """Also where the agent does not understand the control groups of a pod."""
    if resident is not None:
        node.enrol(**resident)  # type: ignore[arg-type]  # a row of the table
    node.put(ODD, "<Q", 3)
    node.put(LIST, "<I", 0)
    node.put(SEEDED.owner, "<Q", DEAD)

    assert node.looks((1.8,) * 6) == []
    assert (node.word(ODD), node.word(SEEDED.owner)) == (3, DEAD)


def test_the_list_is_freed_in_two_steps_by_looks(node: BrokenRegionNode) -> None:
    """Between them it has no owner, and the repair counts once."""
    node.enrol()
    node.put(LIST, "<I", 0)
    node.put(SEEDED.owner, "<Q", DEAD)

    assert node.looks() == []
    assert (node.word(SEEDED.owner), node.word(LIST) % 2**32) == (0, 0)
    assert node.looks() == [RepairKind.SLOT_LOCK]
    assert node.word(LIST) % 2**32 == 1


def test_who_has_just_started_may_hold_the_lock_of_starting_processes(
    node: BrokenRegionNode,
) -> None:
    """For half a minute; afterwards nobody is still in that, and whoever held it is dead."""
    node.enrol()
    node.put(SEEDED.slots + SEEDED.slot.size + 4, "<i", os.getpid())  # its number on the node
    node.put(STARTUP, "<I", 0)

    assert node.looks((1.8,) * 10) == []
    assert node.looks((20.0,)) == [RepairKind.STARTUP_LOCK]


def test_a_tenant_that_breaks_its_locks_again_and_again_costs_little(
    node: BrokenRegionNode,
) -> None:
    """Walks of all processes take a hundredth of the time; each repair is counted."""
    node.enrol(inner=DEAD)
    node.put(ODD, "<Q", 3)
    node.looks((0.4,) * 50)  # 20 seconds, in which a walk of 10 ms is allowed 20 times

    assert node.walked <= 2 * 0.01 * 22
    node.put(ODD, "<Q", 4)
    for _ in range(3):
        node.put(STARTUP, "<II", 0, 9)
        assert node.looks() == [RepairKind.STARTUP_LOCK]
