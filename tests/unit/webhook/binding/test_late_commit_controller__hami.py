"""Pods that HAMi's scheduler bound past the hook get the entry that its list tells of."""

import pytest

from allocator.catalog.hami_keys import ALLOCATED_KEY, NODE_KEY, PHASE_KEY
from allocator.config.settings import NodeAgent
from allocator.model.request import Mode
from tests.builders.gpunodes import entry
from tests.builders.model import soft_grant
from tests.builders.pods import MEMORY, NUMBER, container, pod
from tests.harness.late_commits import NODE, bound, scene

HAMI = NodeAgent.HAMI
LISTED = {NODE_KEY: "n0", ALLOCATED_KEY: "GPU-n0-1,NVIDIA,3000,0:;", PHASE_KEY: "success"}


def test_the_word_of_hamis_scheduler_is_taken() -> None:
    """Its plugin serves by that list; its keys stay as they are."""
    found = scene(bound(LISTED, HAMI), agent=HAMI).sweep()

    assert [g.gpu for g in found.promised[0].containers[0].grants] == ["GPU-n0-1"]
    assert found.how == ["told"]
    assert found.annotations[ALLOCATED_KEY] == LISTED[ALLOCATED_KEY]
    assert found.annotations[PHASE_KEY] == "success"
    assert found.annotations["vgpu-admission.io/served-by"] == "hami"
    assert "volcano.sh/bind-phase" not in found.annotations


def test_what_it_gave_away_twice_is_reported() -> None:
    """The pod is not charged on another GPU than the one that it runs on."""
    full = entry("b", soft_grant(NODE.gpus[1].memory, gpu="GPU-n0-1"))

    found = scene(bound(LISTED, HAMI), full, agent=HAMI).sweep()

    assert [one.uid for one in found.promised] == ["b"]
    assert [event.reason for event in found.events] == ["VgpuUnpromised"]


@pytest.mark.parametrize(
    "change",
    [
        {NODE_KEY: "n7"},
        {NODE_KEY: ""},
        {ALLOCATED_KEY: ""},
        {ALLOCATED_KEY: ";;"},
        {ALLOCATED_KEY: "GPU-n0-1,NVIDIA,3000"},
        {ALLOCATED_KEY: "GPU-n0-1,NVIDIA,-1,0:;"},
        {ALLOCATED_KEY: "GPU-n0-1,DCU,3000,0:;"},
        {ALLOCATED_KEY: "GPU-n0-1[0-1],NVIDIA,3000,0:;"},
        {ALLOCATED_KEY: "\x1b[2J,NVIDIA,3000,0:;"},
        {ALLOCATED_KEY: "x" * 40_000},
    ],
)
def test_what_cannot_be_meant_is_no_word(change: dict[str, str]) -> None:
    """A list of another node, or a malformed one, says nothing of what is in use."""
    found = scene(bound(LISTED | change, HAMI), agent=HAMI).sweep()

    assert found.how == ["chosen"]


def test_on_our_nodes_it_is_a_wish() -> None:
    """The containers do not start before the agent holds the entry."""
    found = scene(bound(LISTED)).sweep()

    assert [g.gpu for g in found.promised[0].containers[0].grants] == ["GPU-n0-1"]
    assert found.how == ["chosen"]


def test_a_list_of_another_node_is_written_anew() -> None:
    """HAMi's plugin serves by its own keys, which name this node only once we have written them."""
    found = scene(bound(LISTED | {NODE_KEY: "n7"}, HAMI), agent=HAMI).sweep()

    assert found.annotations[NODE_KEY] == "n0"
    assert found.annotations[ALLOCATED_KEY] == "GPU-n0-0,NVIDIA,3000,0:;"
    assert found.annotations[PHASE_KEY] == "allocating"


def test_on_our_nodes_the_keys_of_volcanos_scheduler_are_written_too() -> None:
    """It counts by them, whoever bound the pod."""
    found = scene(bound(LISTED)).sweep()

    assert found.annotations["volcano.sh/vgpu-ids-new"] == "GPU-n0-1,NVIDIA,3000,0:"


def test_a_list_without_a_mode_means_a_share_in_software() -> None:
    """HAMi's list tells no mode, and neither does a pod that did not come by our webhook."""
    past_us = bound(LISTED, HAMI)
    del past_us["metadata"]["annotations"]["volcano.sh/vgpu-mode"]

    found = scene(past_us, agent=HAMI).sweep()

    assert found.promised[0].containers[0].grants[0].mode is Mode.HAMI_CORE


@pytest.mark.parametrize("listed", ["GPU-n0-1,NVIDIA,3000,0:;", "GPU-n0-1,NVIDIA,3000,0:;;"])
def test_a_list_of_fewer_containers_says_which_gpus(listed: str) -> None:
    """Not what each container has of them: both that ask are charged there."""
    both = pod(
        container("one", limits={NUMBER: 1, MEMORY: 3000}),
        container("two", limits={NUMBER: 1, MEMORY: 3000}),
    )

    found = scene(bound(LISTED | {ALLOCATED_KEY: listed}, HAMI, both), agent=HAMI).sweep()

    held = found.promised[0].containers
    assert [(one.name, [grant.gpu for grant in one.grants]) for one in held] == [
        ("one", ["GPU-n0-1"]),
        ("two", ["GPU-n0-1"]),
    ]
