"""Our part of the Node: capacity that stands while it may, and goes without ending anything."""

import json
from typing import Any

import pytest

from allocator.catalog.keys import CAPACITY_KEY, NOT_READY_TAINT
from allocator.volcano.register import HANDSHAKE_ANNOTATION, REGISTER_ANNOTATION
from kube.errors import InvalidError
from tests.fakes.api_objects import parsed
from tests.integration.agent.clusterside import (
    MEMORY,
    NODE,
    SETTINGS,
    SLOT,
    Scene,
    play,
)
from tests.integration.waiting import until

CORES = "volcano.sh/vgpu-cores"
TAINTS = [{"key": "a", "effect": "NoSchedule"}, {"key": NOT_READY_TAINT, "effect": "NoSchedule"}]


async def capacity_after_sweeps(scene: Scene) -> dict[str, Any]:
    """Sweep until nothing changes any more; return the Node's capacity."""
    for _ in range(3):
        await scene.capacity_controller.sweep()
        await _wait_for_node(scene)
    return dict(scene.node["status"]["capacity"])


async def _wait_for_node(scene: Scene) -> None:
    def same() -> bool:
        node, stored = scene.informer.node, scene.node
        labels = stored["metadata"].get("labels", {})
        taints = tuple(t["key"] for t in stored.get("spec", {}).get("taints", ()))
        return (
            node is not None
            and dict(node.capacity) == stored["status"]["capacity"]
            and node.label == labels.get("vgpu-admission.io/agent")
            and node.taints == taints
        )

    await until(same)


async def write_status(scene: Scene) -> None:
    await scene.status_controller.flush()
    await scene.caught_up()


def test_the_node_gets_label_capacity_and_a_note_of_it() -> None:
    """What stands there because of us is written down, so that it can be taken away again."""

    async def act(scene: Scene) -> None:
        await write_status(scene)
        found = await capacity_after_sweeps(scene)

        assert (found["cpu"], found[MEMORY], found[CORES]) == ("2", "30720", "200")
        assert SLOT not in found
        metadata = scene.node["metadata"]
        assert metadata["labels"] == {
            "vgpu-admission.io/agent": "1",
            "vgpu-admission.io/gpu-model": "Tesla-T4",
        }
        noted = set(metadata["annotations"][CAPACITY_KEY].split(","))
        assert noted == found.keys() - {"cpu"} | {SLOT}

    play(act)


def test_capacity_comes_after_the_account_of_the_gpus() -> None:
    """Before it nobody could commit, and every pod sent here would come back."""

    async def act(scene: Scene) -> None:
        scene.hardware = None

        assert await capacity_after_sweeps(scene) == {"cpu": "2"}

    play(act)


def test_what_somebody_zeroes_is_written_again() -> None:
    """Kubelet does, once another plugin had the name."""

    async def act(scene: Scene) -> None:
        await write_status(scene)
        await capacity_after_sweeps(scene)
        capacity = scene.node["status"]["capacity"] | {MEMORY: "0"}
        scene.change(f"{NODE}/n", status={"capacity": capacity})
        await _wait_for_node(scene)

        assert (await capacity_after_sweeps(scene))[MEMORY] == "30720"

    play(act)


def test_a_vocabulary_that_is_left_out_is_offered_no_more() -> None:
    """What its own plugin offers there later is not ours to remove."""
    name = "aliyun.com/gpu-mem"

    async def act(scene: Scene) -> None:
        await write_status(scene)
        before = await capacity_after_sweeps(scene)
        text = "vocabularies: [volcano]"
        body = {"metadata": {"name": "vgpu-admission-settings"}, "data": {"settings.yaml": text}}
        scene.server.objects.create(parsed(SETTINGS), body)
        await until(lambda: len(scene.informer.vocabularies) == 1)
        after = await capacity_after_sweeps(scene)
        capacity = scene.node["status"]["capacity"] | {name: "15"}
        scene.change(f"{NODE}/n", status={"capacity": capacity})
        await _wait_for_node(scene)

        assert name in before
        assert name not in after
        assert (await capacity_after_sweeps(scene))[name] == "15"
        assert name not in scene.node["metadata"]["annotations"][CAPACITY_KEY].split(",")

    play(act)


def test_nothing_is_written_twice() -> None:
    """A sweep that changes nothing costs nothing."""

    async def act(scene: Scene) -> None:
        await write_status(scene)
        await capacity_after_sweeps(scene)
        before = len(scene.server.requests)
        await scene.capacity_controller.sweep()

        assert len(scene.server.requests) == before

    play(act)


def test_vc_scheduler_finds_its_register_first() -> None:
    """It crashes on a node that has capacity and no register."""

    async def act(scene: Scene) -> None:
        text = "volcanoRegister: true"
        body = {"metadata": {"name": "vgpu-admission-settings"}, "data": {"settings.yaml": text}}
        scene.server.objects.create(parsed(SETTINGS), body)
        await until(lambda: scene.informer.settings.volcano_register)
        await write_status(scene)
        assert MEMORY not in await capacity_after_sweeps(scene)

        annotations = {
            REGISTER_ANNOTATION: "GPU-0,10,1,NVIDIA-T4,true,hami-core:",
            HANDSHAKE_ANNOTATION: "Reported x",
        }
        metadata = scene.node["metadata"]
        scene.change(f"{NODE}/n", metadata=metadata | {"annotations": annotations})
        await until(
            lambda: scene.informer.node is not None and scene.informer.node.has_volcano_register
        )
        assert (await capacity_after_sweeps(scene))[MEMORY] == "30720"

    play(act)


@pytest.mark.parametrize(
    "allocatable", [{"nvidia.com/gpu": "2"}, {"nvidia.com/mig-1g.5gb": "7"}, {MEMORY: "1000"}]
)
def test_gpus_that_another_plugin_serves_are_left_alone(allocatable: dict[str, str]) -> None:
    """Nothing is added, and whoever asks is told who serves them."""

    async def act(scene: Scene) -> None:
        await write_status(scene)

        assert await capacity_after_sweeps(scene) == {"cpu": "2"}
        assert next(iter(allocatable)) in scene.informer.plugin_conflict

    play(act, status={"capacity": {"cpu": "2"}, "allocatable": allocatable})


def test_a_plugin_that_is_gone_is_no_rival() -> None:
    """Kubelet keeps its resources, with nothing to allocate; so does what we wrote ourselves."""

    async def act(scene: Scene) -> None:
        await write_status(scene)

        assert (await capacity_after_sweeps(scene))[MEMORY] == "30720"
        assert scene.informer.plugin_conflict == ""

    note = {CAPACITY_KEY: CORES}
    allocatable = {"nvidia.com/gpu": "0", MEMORY: "0", CORES: "200"}
    status = {"capacity": {"cpu": "2"}, "allocatable": allocatable}
    play(act, metadata={"name": "n", "annotations": note}, status=status)


def test_the_taint_goes_once_pods_can_be_served() -> None:
    """Kubelet knows our slots, and capacity stands; other taints stay."""

    async def act(scene: Scene) -> None:
        await write_status(scene)
        await capacity_after_sweeps(scene)
        assert scene.node["spec"]["taints"] == TAINTS

        scene.capacity_controller.serving = True
        await capacity_after_sweeps(scene)
        assert scene.node["spec"]["taints"] == TAINTS[:1]

    play(act, spec={"taints": TAINTS})


def test_a_taint_that_moved_meanwhile_is_not_mistaken_for_another() -> None:
    """It goes by its place in the list, which somebody may have changed since we saw it."""

    async def act(scene: Scene) -> None:
        await write_status(scene)
        await capacity_after_sweeps(scene)
        scene.capacity_controller.serving = True
        moved = TAINTS[::-1]
        scene.change(f"{NODE}/n", spec={"taints": moved})
        with pytest.raises(InvalidError):  # we have not seen that yet
            await scene.capacity_controller.sweep()
        assert scene.node["spec"]["taints"] == moved

        await _wait_for_node(scene)
        await capacity_after_sweeps(scene)
        assert scene.node["spec"]["taints"] == TAINTS[:1]

    play(act, spec={"taints": TAINTS})


def test_withdrawing_leaves_nothing_behind() -> None:
    """Keys are deleted, the slot's too once kubelet has given it up."""

    async def act(scene: Scene) -> None:
        await write_status(scene)
        await capacity_after_sweeps(scene)
        capacity = scene.node["status"]["capacity"] | {SLOT: "0", "nvidia.com/gpu": "0"}
        scene.change(f"{NODE}/n", status={"capacity": capacity})
        await _wait_for_node(scene)
        await scene.capacity_controller.withdraw()

        assert scene.node["status"]["capacity"] == {"cpu": "2", "nvidia.com/gpu": "0"}
        assert scene.node["metadata"]["labels"] == {}
        assert scene.node["metadata"]["annotations"] == {}
        order = [r.path for r in scene.server.requests if r.method == "PATCH"][-2:]
        assert order == [f"{NODE}/n/status", f"{NODE}/n"]

    play(act)


def test_a_resource_under_a_new_name_replaces_the_old_one() -> None:
    """The site renamed it; what stood under the old name goes, though we did not see it come."""

    async def act(scene: Scene) -> None:
        await write_status(scene)
        found = await capacity_after_sweeps(scene)

        assert "example.com/old" not in found
        assert MEMORY in found

    note = {CAPACITY_KEY: "example.com/old"}
    status = {"capacity": {"cpu": "2", "example.com/old": "5"}}
    play(act, metadata={"name": "n", "annotations": note}, status=status)


def test_a_slot_under_a_new_name_leaves_none_of_the_old_one() -> None:
    """Kubelet writes 0 for it in the end; the one that is served now is kubelet's alone."""

    async def act(scene: Scene) -> None:
        await write_status(scene)
        found = await capacity_after_sweeps(scene)

        assert "example.com/gpu" not in found
        assert found[SLOT] == "20"

    note = {CAPACITY_KEY: f"example.com/gpu,{SLOT}"}
    status = {"capacity": {"cpu": "2", "example.com/gpu": "0", SLOT: "20"}}
    play(act, metadata={"name": "n", "annotations": note}, status=status)


def test_changes_are_merged_into_the_status_and_nothing_else() -> None:
    """The rest of it is kubelet's."""

    async def act(scene: Scene) -> None:
        await write_status(scene)
        await capacity_after_sweeps(scene)

        (written,) = scene.writes(f"{NODE}/n/status")
        assert json.loads(written.body).keys() == {"status"}
        status = json.loads(written.body)["status"]
        assert status.keys() == {"capacity", "allocatable"}
        assert status["capacity"] == status["allocatable"]

    play(act)
