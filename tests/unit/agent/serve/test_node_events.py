"""Events: what users read of their pods and GPUs, and how often."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agent.driver.driver import Fault
from agent.monitor.drift import HardwareDrift
from agent.monitor.violation import LocalPod
from agent.serve.node_events import NodeEvents
from agent.share import Owner
from allocator.ledger.drift import DriftKind
from kube.events import Event, Reference
from tests.builders.model import placed
from tests.harness.mig_agent import Desk
from tests.harness.simulated_boards import GPU

NODE = Reference(api_version="v1", kind="Node", name="gpu-1", uid="uid-n")
OWNER = Owner(uid="uid-1", namespace="team-a", pod="train-0", containers=("main",))
SMALL, OTHER, LARGE = placed("1g.5gb", 0), placed("1g.5gb", 1), placed("2g.10gb", 0)


class RecordedEvents:
    """NodeEvents, and the Events that it recorded."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.node_events = NodeEvents(lambda: NODE, self.events.append)

    @property
    def reasons_and_notes(self) -> list[tuple[str, str]]:
        return [(event.reason, event.note) for event in self.events]


@pytest.fixture
def recorded() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
def desk(tmp_path: Path, recorded: RecordedEvents) -> Desk:
    desk = Desk(tmp_path)
    desk.tools = replace(desk.tools, report=recorded.node_events.record_reconfiguration)
    desk.restart()
    return desk


def test_a_number_that_changes_makes_no_new_sentence(recorded: RecordedEvents) -> None:
    """A reason is repeated word for word while only its numbers move; another one is news."""
    for why in ("in use by pid 7 (tried once)", "in use by pid 8 (tried once)", "MIG mode is off"):
        recorded.node_events.record_refusal("slot-0000", OWNER, why)

    assert [note for _, note in recorded.reasons_and_notes] == [
        'container "main": in use by pid 7 (tried once)',
        'container "main": in use by pid 7 (tried once)',
        'container "main": MIG mode is off',
    ]


def test_a_drift_is_told_of_the_node_and_names_the_pod(recorded: RecordedEvents) -> None:
    """Whoever runs the node finds there whose pod it is."""
    pod = LocalPod(uid="uid-1", namespace="team-a", name="train-0")
    recorded.node_events.record_drift(
        HardwareDrift(kind=DriftKind.EXTRA, gpu="GPU-1", what="pod x uses it", pod=pod)
    )
    recorded.node_events.record_drift(
        HardwareDrift(kind=DriftKind.EXTRA, gpu="GPU-1", what="strangers")
    )

    assert recorded.reasons_and_notes == [
        ("VgpuDrift", 'GPU "GPU-1": pod x uses it'),
        ("VgpuDrift", 'GPU "GPU-1": strangers'),
    ]
    assert [event.regarding for event in recorded.events] == [NODE, NODE]
    assert [event.related and event.related.uid for event in recorded.events] == ["uid-1", None]


def test_the_next_holder_of_a_slot_has_its_own_words(recorded: RecordedEvents) -> None:
    """What was said to one pod is not taken for what another one is told."""
    recorded.node_events.record_refusal("slot-0000", OWNER, "pid 7 runs")
    recorded.node_events.record_refusal("slot-0000", replace(OWNER, uid="uid-2"), "pid 8 runs")

    assert [event.note[-10:] for event in recorded.events] == ["pid 7 runs", "pid 8 runs"]
    assert [event.regarding.uid for event in recorded.events] == ["uid-1", "uid-2"]


def test_what_a_gpu_was_cut_to_is_told_in_one_sentence(
    desk: Desk, recorded: RecordedEvents
) -> None:
    """Cuts that come together are one Event on the Node: before, after, and how long it took."""

    async def story() -> None:
        await desk.settle(SMALL, OTHER)
        await desk.settle(LARGE)
        await desk.settle(LARGE)

    asyncio.run(story())

    assert recorded.reasons_and_notes == [
        ("MigReconfigured", f'GPU "{GPU}": no instances → 1g.5gb at 0, 1 in 0.0 s'),
        ("MigReconfigured", f'GPU "{GPU}": 1g.5gb at 0, 1 → 2g.10gb at 0 in 0.0 s'),
    ]
    assert {event.regarding for event in recorded.events} == {NODE}


def test_a_cut_that_fails_is_told_with_what_is_left(desk: Desk, recorded: RecordedEvents) -> None:
    """Each try is: the step, the driver's word and the state, in words that stay the same."""
    desk.faults.at |= {
        ("create_compute", 1): Fault.OTHER,
        ("create_compute", 2): Fault.OTHER,
        ("destroy_instance", 1): Fault.IN_USE,
    }

    async def story() -> None:
        await desk.settle(SMALL)
        await desk.instances.settle()  # it is not due yet
        await desk.again()
        await desk.again()

    asyncio.run(story())

    assert [reason for reason, _ in recorded.reasons_and_notes] == [
        "MigReconfigured",
        "MigReconfigureFailed",
        "MigReconfigured",
        "MigReconfigureFailed",
        "MigReconfigured",
    ]
    assert recorded.reasons_and_notes[1][1] == (
        f'GPU "{GPU}": 1g.5gb at slot 0: create_compute: call 1 fails, as the test says; '
        "layout now: 1g.5gb without compute instance at 0"
    )
    assert recorded.reasons_and_notes[-1][1] == f'GPU "{GPU}": no instances → 1g.5gb at 0 in 0.0 s'


def test_a_foreign_instance_is_not_told_as_our_work(desk: Desk, recorded: RecordedEvents) -> None:
    """What somebody else made or destroyed between two looks is no cut of ours."""

    async def story() -> None:
        await desk.settle()
        desk.hand(LARGE)
        await desk.settle()

    asyncio.run(story())

    assert recorded.events == []


def test_a_gpu_that_leaves_service_is_told(recorded: RecordedEvents) -> None:
    """With the reason, and again when it is back."""
    recorded.node_events.record_health("GPU-1", "Xid 79")
    recorded.node_events.record_health("GPU-1", "")

    assert recorded.reasons_and_notes == [
        ("GpuUnhealthy", 'GPU "GPU-1": Xid 79'),
        ("GpuRecovered", 'GPU "GPU-1": is healthy again'),
    ]
