"""A pod that another plugin served is promised what it was given, and nothing beside it."""

from collections.abc import Mapping

import orjson
import pytest

from allocator.config.settings import NodeAgent
from allocator.volcano.device_list import LIST_ANNOTATION
from tests.builders.gpunodes import Json, entry
from tests.builders.model import soft_grant
from tests.builders.pods import MEMORY, NUMBER, container, pod
from tests.harness.late_commits import ASSIGNMENT, SIX, USED, as_told, bound, scene, wire


def started(found: Json) -> Json:
    """Say of a pod that its container runs."""
    found["status"] = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    return found


def test_what_the_agent_found_of_another_plugins_giving_is_promised() -> None:
    """The scheduler's own list is the pod's word where we never gave one; amounts its own."""
    less = entry("uid-p", soft_grant(9, gpu="GPU-n0-1"))

    found = scene(started(bound(SIX)), unpromised=[wire(less)]).sweep()

    assert [one.containers for one in found.promised] == [USED.containers]
    assert (found.how, found.promised[0].uid) == (["confirmed"], "uid-p")
    assert orjson.loads(found.annotations[ASSIGNMENT]) == orjson.loads(as_told(USED))


@pytest.mark.parametrize(
    "six",
    [
        pytest.param(SIX | {LIST_ANNOTATION: "GPU-n0-0,NVIDIA,3000,0:"}, id="another-gpu"),
        pytest.param(SIX | {"volcano.sh/vgpu-node": "n7"}, id="another-node"),
        pytest.param(
            SIX | {LIST_ANNOTATION: SIX[LIST_ANNOTATION] + ";" + SIX[LIST_ANNOTATION]},
            id="another-shape",
        ),
        pytest.param(
            SIX | {LIST_ANNOTATION: "GPU-n0-1[group1-0],NVIDIA,3000,0:"}, id="an-instance"
        ),
        pytest.param(SIX | {LIST_ANNOTATION: "GPU-n0-9,NVIDIA,3000,0:"}, id="a-gpu-that-is-gone"),
    ],
)
def test_a_list_that_does_not_match_is_no_word(six: Mapping[str, str]) -> None:
    """Neither witness alone is believed, whoever wrote the pod's."""
    found = scene(started(bound(six)), unpromised=[wire(USED)]).sweep()

    assert found.promised == ()
    assert [event.reason for event in found.events] == ["VgpuUnpromised"]


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"containerStatuses": [{"state": {"running": {}}}]}, id="runs"),
        pytest.param(
            {"containerStatuses": [{"lastState": {"terminated": {"exitCode": 1}}}]}, id="crashed"
        ),
        pytest.param(
            {"initContainerStatuses": [{"state": {"terminated": {"exitCode": 0}}}]}, id="began"
        ),
    ],
)
def test_a_pod_that_has_started_is_given_nothing_else(status: Json) -> None:
    """Where nobody found what it uses, another GPU would be promised to it and used by nobody."""
    found = scene(bound(SIX) | {"status": status}).sweep()

    assert found.promised == ()
    assert "has no entry: its containers use GPUs" in found.events[0].note


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"containerStatuses": [{"state": {"waiting": {"reason": "x"}}}]}, id="waits"),
        pytest.param({"containerStatuses": [{"state": {}, "lastState": {}}]}, id="says-nothing"),
        pytest.param({"containerStatuses": None}, id="none"),
    ],
)
def test_a_pod_that_has_not_is_given_what_its_scheduler_wished(status: Json) -> None:
    """It was bound past us, and waits for its promise."""
    found = scene(bound(SIX) | {"status": status}).sweep()

    assert [one.containers for one in found.promised] == [USED.containers]
    assert found.how == ["chosen"]


def test_containers_are_not_swapped() -> None:
    """The list says which container has which GPU: sums by GPU rest on it."""
    upstream = NodeAgent.UPSTREAM
    both = pod(
        container(limits={NUMBER: 1, MEMORY: 3000}),
        container(name="side", limits={NUMBER: 1, MEMORY: 9000}),
    )
    six = SIX | {LIST_ANNOTATION: "GPU-n0-1,NVIDIA,3000,0:;GPU-n0-0,NVIDIA,9000,0:"}

    found = scene(bound(six, upstream, both), agent=upstream).sweep()

    given = {held.name: held.grants[0].gpu for held in found.promised[0].containers}
    assert given == {"main": "GPU-n0-1", "side": "GPU-n0-0"}


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(as_told(entry("uid-p", soft_grant(3000, gpu="GPU-n0-0"))), id="another-gpu"),
        pytest.param(as_told(entry("uid-p", soft_grant(3000, gpu="GPU-n0-9"))), id="no-gpu"),
        pytest.param("[]", id="none"),
        pytest.param("[" * 900, id="deep"),
        pytest.param('[{"name":"main","devices":[]}]', id="empty"),
        pytest.param('{"name":"main"}', id="no-list"),
        pytest.param("7", id="a-number"),
        pytest.param("null", id="null"),
        pytest.param('"GPU-n0-0"', id="text"),
        pytest.param("x" * 100_000, id="long"),
    ],
)
def test_a_tenants_word_does_not_beat_the_list_of_the_plugin(told: str) -> None:
    """Its own namespace may lack the label, so nobody has read what it wrote."""
    upstream = NodeAgent.UPSTREAM

    found = scene(bound(SIX | {ASSIGNMENT: told}, upstream), agent=upstream).sweep()

    assert [one.containers for one in found.promised] == [USED.containers]


def test_a_malformed_word_is_no_word_where_there_is_no_list() -> None:
    """Nothing is given to a pod that says that it has something, which nobody can read."""
    upstream = NodeAgent.UPSTREAM
    told = {ASSIGNMENT: '[{"name":"main","devices":[{"gpu":7}]}]'}

    assert scene(bound(told, upstream), agent=upstream).sweep().promised == ()
