"""The status is true, and written when it matters."""

import asyncio
import copy
from collections.abc import Mapping
from dataclasses import replace

import pytest

from agent.driver.driver import SIMULATED
from agent.node.status import Hardware
from agent.node.status_controller import StatusController, StatusFacts
from allocator.cluster.objects import NodeObject
from allocator.controllers.gpunode import GpuNodeController
from allocator.ledger.ledger import Ledger
from allocator.ledger.lifecycle import NodeIdentity
from kube.clock import SYSTEM
from tests.fakes.api_objects import parsed
from tests.integration.agent.clusterside import (
    BOOT,
    GPU_NODES,
    NODE,
    PODS,
    STATUS,
    Scene,
    gpu,
    play,
    writing,
)
from tests.integration.waiting import until

STARTED = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}


def test_the_status_is_written_once() -> None:
    """Nothing has changed, so nothing is written."""

    async def act(scene: Scene) -> None:
        await scene.status_controller.flush()
        await scene.told()

        assert len(scene.writes(STATUS)) == 1
        assert [g["uuid"] for g in scene.status["gpus"]] == ["GPU-0", "GPU-1"]
        assert scene.status["observedGeneration"] == scene.stored["metadata"]["generation"]

    play(act)


def test_nothing_is_said_before_the_driver_has_spoken() -> None:
    """An empty list would say that there are no GPUs."""

    async def act(scene: Scene) -> None:
        scene.hardware = None
        await scene.status_controller.flush()

        assert scene.status == {}

    play(act)


def test_simulated_gpus_go_with_their_agent() -> None:
    """The next agent may have no driver for ever; what it finds later stands there at once."""

    async def act(scene: Scene) -> None:
        found, scene.hardware = scene.hardware, Hardware(devices=(gpu(0), gpu(1)), driver=SIMULATED)
        await scene.told()
        scene.hardware = None
        await scene.told()
        await scene.told()
        left = scene.status
        scene.hardware = found
        await scene.told()

        assert (left["gpus"], "inventory" in left, left["closed"]) == (
            [],
            False,
            "its agent finds no driver; the GPUs that it had before were simulated",
        )
        assert len(scene.writes(STATUS)) == 3
        assert len(scene.status["gpus"]) == 2

    play(act)


@pytest.mark.parametrize(
    ("allocatable", "why"),
    [
        ({"nvidia.com/gpu": "2"}, 'another device plugin serves "nvidia.com/gpu" on this node: '),
        ({"nvidia.com/gpu": "0"}, "its agent has not registered with kubelet yet"),
    ],
)
def test_an_agent_that_another_plugin_keeps_out_says_so(
    allocatable: dict[str, str], why: str
) -> None:
    """It has registered nothing because of that plugin; that it has not would help nobody."""

    async def act(scene: Scene) -> None:
        scene.serving = False
        await scene.told()

        assert scene.status["closed"].startswith(why)
        assert "inventory" not in scene.status

    play(act, status={"allocatable": allocatable})


def test_an_agent_without_a_driver_says_that_it_leaves() -> None:
    """A withdrawal is no fault of the driver."""

    async def act(scene: Scene) -> None:
        scene.hardware = None
        scene.status_controller.leaving = True
        await scene.told()

        assert scene.status["closed"] == "its agent is leaving the node"

    play(act)


def test_a_simulated_agent_keeps_its_gpus_until_it_has_played_them() -> None:
    """It has just started and reads its fleet."""

    async def act(scene: Scene) -> None:
        scene.hardware = Hardware(devices=(gpu(0),), driver=SIMULATED)
        await scene.told()
        scene.hardware = None
        facts = StatusFacts(BOOT, lambda: None, scene._alive, simulated=True)  # noqa: SLF001
        scene.status_controller = StatusController(
            scene.client, scene.informer, facts, clock=scene.time.clock()
        )
        await scene.told()

        assert len(scene.status["gpus"]) == 1

    play(act)


@pytest.mark.parametrize(
    ("simulated", "said"), [(False, "any container may"), (True, None)], ids=["real", "simulated"]
)
def test_an_exposed_node_is_told(*, simulated: bool, said: str | None) -> None:
    """What was found when the agent started; of simulated GPUs nobody sees one."""

    async def act(scene: Scene) -> None:
        facts = StatusFacts(
            BOOT,
            lambda: scene.hardware,
            scene._alive,  # noqa: SLF001
            simulated=simulated,
            exposed="any container may",
        )
        scene.status_controller = StatusController(
            scene.client, scene.informer, facts, clock=scene.time.clock()
        )
        await scene.told()

        assert scene.status.get("exposed") == said
        assert "inventory" in scene.status

    play(act)


def test_a_field_that_the_schema_drops_is_not_written_for_ever() -> None:
    """The control plane may be one release behind."""

    async def act(scene: Scene) -> None:
        await scene.status_controller.flush()
        pruned = {key: value for key, value in scene.status.items() if key != "bootID"}
        scene.change(f"{GPU_NODES}/n", status=pruned)
        scene.status_controller._last_write = (scene.status_controller._last_write[0], pruned)  # type: ignore[index] # noqa: SLF001
        await scene.told()

        assert len(scene.writes(STATUS)) == 1

    play(act)


def test_what_the_control_plane_shut_is_accounted_for_anew() -> None:
    """It takes the inventory away when a Node came back; a commit needs it."""

    async def act(scene: Scene) -> None:
        await scene.status_controller.flush()
        shut = {key: value for key, value in scene.status.items() if key != "inventory"}
        scene.change(f"{GPU_NODES}/n", status=shut)
        await scene.told()

        assert scene.status["inventory"].startswith("sha256:")

    play(act)


def test_a_pod_of_another_plugin_takes_what_its_scheduler_listed() -> None:
    """The rest of the node stays open."""
    listed = {
        "volcano.sh/vgpu-node": "n",
        "volcano.sh/vgpu-ids-new": "GPU-1,NVIDIA,3000,0:",
    }

    async def act(scene: Scene) -> None:
        uid = scene.bind("older", **STARTED)
        place = f"{PODS}/older"
        metadata = scene.server.objects.read(parsed(place))["metadata"]
        scene.change(place, metadata=metadata | {"annotations": listed})
        await until(lambda: uid in scene.informer.pods and scene.informer.pods[uid].volcano_devices)
        await scene.status_controller.flush()

        (found,) = scene.status["unpromised"]
        assert found["pod"]["uid"] == uid
        assert [d["gpu"] for d in found["containers"][0]["devices"]] == ["GPU-1"]
        assert {g["healthy"] for g in scene.status["gpus"]} == {True}

    play(act)


def test_a_second_plugin_closes_the_node() -> None:
    """Both would give out one GPU."""

    async def act(scene: Scene) -> None:
        await scene.status_controller.flush()

        assert "nvidia.com/gpu" in scene.status["gpus"][0]["reason"]

    play(act, status={"allocatable": {"nvidia.com/gpu": "2"}})


def test_a_change_of_the_hardware_is_told() -> None:
    """Without anybody asking."""

    async def act(scene: Scene) -> None:
        async with writing(scene):
            await until(lambda: scene.status)
            scene.hardware = Hardware(devices=(gpu(0),), unhealthy={"GPU-0": "Xid 79"})
            scene.informer.notify()
            await until(lambda: len(scene.status["gpus"]) == 1)

            assert scene.status["gpus"][0]["reason"] == "Xid 79"

    play(act)


def test_a_registration_that_is_lost_closes_the_node_without_delay() -> None:
    """Other changes are collected for a second, and kubelet ends each pod bound meanwhile."""

    async def never(_: float) -> None:
        await asyncio.Event().wait()

    async def act(scene: Scene) -> None:
        await scene.told()
        assert "inventory" in scene.status
        facts = StatusFacts(BOOT, lambda: scene.hardware, scene._alive, serving=lambda: False)  # noqa: SLF001
        scene.status_controller = StatusController(
            scene.client, scene.informer, facts, clock=replace(SYSTEM, sleep=never)
        )
        async with writing(scene):
            scene.informer.notify()
            await asyncio.sleep(0.2)
            assert "inventory" in scene.status

            scene.status_controller.hasten()

            await until(lambda: "inventory" not in scene.status)

    play(act)


class NoCaches:
    """The control plane's caches; a single step reads everything anew."""

    def node_identities(self) -> Mapping[str, NodeIdentity] | None:
        return None

    def node_identity(self, node: NodeObject) -> NodeIdentity:
        return node.identity()

    def ledgers(self) -> Mapping[str, Ledger] | None:
        return None


def _reboot(scene: Scene, boot: str) -> None:
    """Let kubelet report another boot id."""
    status = {**copy.deepcopy(scene.node["status"]), "nodeInfo": {"bootID": boot}}
    scene.change(f"{NODE}/n", status=status)


async def _knows(scene: Scene, boot: str) -> None:
    await until(lambda: scene.informer.node is not None and scene.informer.node.boot == boot)


LABELLED = {"name": "n", "labels": {"vgpu-admission.io/agent": "1"}}


def test_agent_and_control_plane_do_not_write_for_ever() -> None:
    """Where they see different boots, one write says so, with both, and nobody undoes it."""

    async def act(scene: Scene) -> None:
        await scene.caught_up()
        control_plane = GpuNodeController(scene.client, NoCaches(), upstream=lambda: False)
        for _ in range(10):
            await scene.told()
            await control_plane.reconcile("n")

        assert len(scene.writes(STATUS)) == 1
        assert "inventory" not in scene.status
        assert '"boot-1"' in scene.status["closed"]
        assert '"boot-host"' in scene.status["closed"]

    play(act, metadata=LABELLED, status={"nodeInfo": {"bootID": "boot-host"}})


def test_a_node_opens_when_boot_ids_agree() -> None:
    """After a reboot kubelet may report the new one a moment after its agent started."""

    async def act(scene: Scene) -> None:
        await scene.caught_up()
        control_plane = GpuNodeController(scene.client, NoCaches(), upstream=lambda: False)
        await scene.told()
        _reboot(scene, "boot-1")
        await _knows(scene, "boot-1")
        await scene.told()
        await control_plane.reconcile("n")

        assert scene.status["inventory"]
        assert "closed" not in scene.status
        assert all(gpu["healthy"] for gpu in scene.status["gpus"])

        _reboot(scene, "boot-2")
        await control_plane.reconcile("n")

        assert "inventory" not in scene.status
        assert scene.status["closed"] == (
            'its GPUs were reported in the boot "boot-1", but its Node is in the boot "boot-2"'
        )

    play(act, metadata=LABELLED, status={"nodeInfo": {"bootID": "boot-0"}})


def test_what_runs_is_held_while_boot_ids_differ() -> None:
    """A container that started before must not lose its entry, whatever kubelet reports."""

    async def act(scene: Scene) -> None:
        uid = await scene.held("tenant")
        _reboot(scene, "boot-host")
        await _knows(scene, "boot-host")
        await scene.told()

        assert "inventory" not in scene.status
        assert scene.status["held"] == [uid]

    play(act, metadata=LABELLED)
