"""A pod bound past the hook is promised what it uses, or what it may yet use, or nothing."""

from collections.abc import Mapping

import orjson
import pytest

from allocator.config.settings import NodeAgent
from allocator.volcano.device_list import LIST_ANNOTATION
from tests.builders.gpunodes import Json, entry
from tests.builders.model import soft_grant
from tests.builders.pods import container
from tests.harness.late_commits import ASSIGNMENT, NODE, SIX, USED, as_told, bound, scene, wire


def test_a_pod_that_uses_nothing_yet_is_given_something() -> None:
    """It is promised by the same choice as at the door, and told."""
    found = scene(bound({})).sweep()

    (one,) = found.promised
    assert (one.uid, found.how) == ("uid-p", ["chosen"])
    assert orjson.loads(found.annotations[ASSIGNMENT]) == orjson.loads(as_told(one))
    assert found.annotations["volcano.sh/bind-phase"] == "success"
    assert [event.reason for event in found.events] == ["VgpuAssigned"]


def test_a_second_look_changes_nothing() -> None:
    """What is promised and told is left alone."""
    found = scene(bound({})).sweep(times=5)

    assert (found.server.writes, len(found.records)) == (1, 1)


def test_one_look_is_not_enough() -> None:
    """The entry of a pod that was just bound may be on its way to the cache."""
    assert scene(bound({})).sweep(times=1).server.writes == 0


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"metadata": {"deletionTimestamp": "now"}}, id="deleting"),
        pytest.param({"status": {"phase": "Failed"}}, id="over"),
        pytest.param({"spec": {"nodeName": ""}}, id="unbound"),
        pytest.param({"spec": {"nodeName": "n7"}}, id="no-ledger-there"),
        pytest.param({"spec": {"containers": [container()]}}, id="asks-for-nothing"),
    ],
)
def test_others_are_left_alone(change: Json) -> None:
    """Only a living pod that asks, on a node with a ledger, is promised anything."""
    found = bound({})
    for part, fields in change.items():
        found[part] = {**found.get(part, {}), **fields}

    assert scene(found).sweep().promised == ()


def test_a_node_that_is_not_accounted_for_is_waited_for() -> None:
    """Nobody knows yet what runs there, so nobody is told that a pod does not start."""
    found = scene(bound({}), inventory="").sweep()

    assert (found.promised, found.events) == ((), [])


def test_what_the_agent_found_in_use_is_promised_again() -> None:
    """Where the pod was told the same: neither witness alone is believed."""
    told = {ASSIGNMENT: as_told(USED)}

    found = scene(bound(told), unpromised=[wire(USED)]).sweep()

    assert [one.containers for one in found.promised] == [USED.containers]
    assert found.how == ["confirmed"]


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(
            {ASSIGNMENT: as_told(entry("uid-p", soft_grant(9, gpu="GPU-n0-0")))}, id="other"
        ),
        pytest.param(SIX | {LIST_ANNOTATION: "GPU-n0-0,NVIDIA,3000,0:"}, id="another-list"),
    ],
)
def test_witnesses_that_differ_are_reported(told: Mapping[str, str]) -> None:
    """Nothing is guessed: an Event says so, and the slots stay taken as the agent found them."""
    found = scene(bound(told), unpromised=[wire(USED)]).sweep()

    assert found.promised == ()
    assert [event.reason for event in found.events] == ["VgpuUnpromised"]
    assert "use other GPUs than its annotations name" in found.events[0].note


@pytest.mark.parametrize("told", [{}, {ASSIGNMENT: "{"}], ids=["nothing", "unreadable"])
def test_a_pod_that_tells_nothing_stays_charged(told: Mapping[str, str]) -> None:
    """The agent can only have guessed at its GPUs, so no entry says that it has them."""
    found = scene(bound(told), unpromised=[wire(USED)]).sweep()

    assert found.promised == ()
    assert [event.reason for event in found.events] == ["VgpuUnpromised"]
    assert "what it asks for is charged on GPU-n0-1; delete the pod" in found.events[0].note


def test_what_it_uses_may_have_been_given_away() -> None:
    """Then it is not given something else, on which it does not run."""
    whole = soft_grant(NODE.gpus[1].memory - 1000, gpu="GPU-n0-1")
    told = {ASSIGNMENT: as_told(USED)}

    found = scene(bound(told), entry("b", whole), unpromised=[wire(USED)]).sweep()

    assert [one.uid for one in found.promised] == ["b"]
    assert "the GPUs in use are promised to other pods" in found.events[0].note


def test_a_pod_that_was_not_told_is_told_what_stands() -> None:
    """Whoever committed died before the pod heard of it."""
    found = scene(bound({}), USED).sweep()

    assert [one.containers for one in found.promised] == [USED.containers]
    assert (found.how, found.annotations[ASSIGNMENT]) == (["kept"], as_told(USED))


def test_a_full_node_is_told_and_asked_again_later() -> None:
    """One sentence, less and less often, for as long as there is no room."""
    full = [
        entry(uuid, soft_grant(NODE.gpus[0].memory, gpu=uuid)) for uuid in ("GPU-n0-0", "GPU-n0-1")
    ]

    found = scene(bound({}), *full).sweep(times=4)

    assert {event.reason for event in found.events} == {"VgpuUnpromised"}
    assert len(found.events) == 1
    assert 'does not start: node "n0": container "main"' in found.events[0].note


def test_another_plugins_word_is_taken() -> None:
    """Where it serves the node, its scheduler's list says what is in use; its keys stay."""
    six = SIX | {"volcano.sh/bind-phase": "success"}
    upstream = NodeAgent.UPSTREAM

    found = scene(bound(six, upstream), agent=upstream).sweep()

    assert [g.gpu for g in found.promised[0].containers[0].grants] == ["GPU-n0-1"]
    assert found.how == ["told"]
    assert found.annotations["volcano.sh/bind-phase"] == "success"
    assert found.annotations["vgpu-admission.io/served-by"] == "upstream"


def test_another_plugins_word_for_what_is_taken_is_reported() -> None:
    """It is not promised another GPU than the one that its scheduler gave it."""
    full = entry("b", soft_grant(NODE.gpus[1].memory, gpu="GPU-n0-1"))
    upstream = NodeAgent.UPSTREAM

    found = scene(bound(SIX, upstream), full, agent=upstream).sweep()

    assert [one.uid for one in found.promised] == ["b"]
    assert [event.reason for event in found.events] == ["VgpuUnpromised"]


def test_a_list_for_another_node_is_no_word() -> None:
    """It is left over from an attempt that failed."""
    six = SIX | {"volcano.sh/vgpu-node": "n7"}
    upstream = NodeAgent.UPSTREAM

    assert scene(bound(six, upstream), agent=upstream).sweep().how == ["chosen"]


def test_an_assignment_of_ours_is_kept_to_the_letter() -> None:
    """On a node of another plugin it is all that is left of a lost ledger."""
    upstream = NodeAgent.UPSTREAM
    told = {ASSIGNMENT: as_told(USED)}

    found = scene(bound(told, upstream), agent=upstream).sweep()

    assert [one.containers for one in found.promised] == [USED.containers]
