"""A pod that came past admission, as the agent of its node and who promises GPUs see it."""

from dataclasses import replace
from typing import Any, Final

from agent.node.status import Hardware
from allocator.catalog.keys import ASSIGNMENT_KEY
from allocator.ledger.ledger import Ledger
from allocator.model.units import MiB
from tests.builders.model import soft_grant
from tests.fakes.api_objects import parsed
from tests.integration.agent.clusterside import PODS, Scene, play, promised
from tests.integration.waiting import until

RUNNING: Final = {
    "phase": "Running",
    "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": "now"}}}],
}
SEED: Final = {"aliyun.com/gpu-mem": "1"}  # seed 004


async def start(scene: Scene, name: str = "stranger", **spec: Any) -> str:  # noqa: ANN401 -- JSON
    """Start a pod that asks as seed 004 does, past everybody; return its uid."""
    uid = scene.bind(name, **RUNNING)
    container = {"name": "main", "resources": {"limits": SEED}}
    scene.change(f"{PODS}/{name}", spec={"nodeName": "n", "containers": [container], **spec})
    await heard(scene, uid)
    return uid


async def heard(scene: Scene, uid: str) -> None:
    """Return once the agent knows the pod as it is, and has written what it makes of it."""
    asked = {"aliyun.com/gpu-mem": 1}
    await until(lambda: uid in scene.informer.pods and scene.informer.pods[uid].requests == asked)
    await scene.told()


def charges(scene: Scene) -> dict[str, list[tuple[str, int]]]:
    """Return GPU and MiB of what the status says is in use without an entry, by pod."""
    return {
        one["pod"]["name"]: [
            (device["gpu"], device["memoryMiB"])
            for container in one["containers"]
            for device in container["devices"]
        ]
        for one in scene.status["unpromised"]
    }


def known(scene: Scene) -> Ledger:
    assert scene.informer.gpu_node is not None
    return scene.informer.gpu_node.ledger


def test_one_pod_past_admission_closes_nothing() -> None:
    """Its GiB is taken on one GPU; both GPUs stay in service, and the node names nobody's end."""

    async def act(scene: Scene) -> None:
        await start(scene)
        await scene.caught_up()

        assert charges(scene) == {"stranger": [("GPU-0", 1024)]}
        assert [g.get("reason") for g in scene.status["gpus"]] == [None, None]
        assert {g["healthy"] for g in scene.status["gpus"]} == {True}
        assert "closed" not in scene.status
        assert [gpu.memory_promised for gpu in known(scene).node.gpus] == [1024, 0]

    play(act)


def test_it_is_charged_where_its_processes_are() -> None:
    """From the first look of the monitor on, and there it stays when they end."""

    async def act(scene: Scene) -> None:
        uid = await start(scene)
        assert scene.hardware is not None
        before = scene.hardware
        scene.hardware = replace(before, reached={uid: frozenset({"GPU-1"})})
        await scene.told()
        seen = charges(scene)
        scene.hardware = before
        await scene.told()

        assert seen == charges(scene) == {"stranger": [("GPU-1", 1024)]}

    play(act)


def test_a_new_agent_leaves_the_charge_where_it_is() -> None:
    """Its status says where; a busier GPU does not draw it away."""

    async def act(scene: Scene) -> None:
        await start(scene)
        scene.promise(promised("busy", soft_grant(9000, gpu="GPU-1")))
        scene.status_controller = scene.new_status_controller()
        await scene.told()

        assert charges(scene) == {"stranger": [("GPU-0", 1024)]}

    play(act)


def test_the_charge_ends_with_the_pod() -> None:
    """However it ends: by itself, or deleted."""

    async def act(scene: Scene) -> None:
        await start(scene)
        await start(scene, "second")
        assert charges(scene).keys() == {"stranger", "second"}

        scene.bind("stranger", phase="Succeeded")
        scene.remove("second")
        await scene.told()

        assert charges(scene) == {}

    play(act)


def test_an_entry_takes_the_place_of_the_charge() -> None:
    """A late commit may come between two looks of the agent."""

    async def act(scene: Scene) -> None:
        uid = await start(scene)
        scene.promise(promised(uid))
        await scene.told()

        assert charges(scene) == {}
        assert scene.status["held"] == [uid]

    play(act)


def test_entries_that_came_first_are_left_alone() -> None:
    """It is charged on a GPU that is full, too, and nothing is promised beside it there."""

    async def act(scene: Scene) -> None:
        uid = await start(scene)
        devices = scene.hardware.devices if scene.hardware else ()
        scene.hardware = Hardware(
            devices=devices,
            foreign_memory={"GPU-1": MiB(devices[1].memory)},
            reached={uid: frozenset({"GPU-1"})},
        )
        await scene.told()
        await scene.caught_up()

        (first, full) = known(scene).node.gpus
        assert (first.memory_promised, full.memory_promised) == (0, 1024)
        assert first.healthy
        assert full.healthy

    play(act)


def test_an_annotation_of_its_own_takes_no_second_gpu() -> None:
    """Where the label is missing anybody may write one."""
    claims = ",".join(
        f'{{"gpu":"GPU-{n}","mode":"hami-core","memoryMiB":16384,"cores":100}}' for n in (0, 1)
    )
    text = f'[{{"name":"main","devices":[{claims}]}}]'

    async def act(scene: Scene) -> None:
        uid = scene.bind("liar", **RUNNING)
        stored = scene.server.objects.read(parsed(f"{PODS}/liar"))
        container = {"name": "main", "resources": {"limits": SEED}}
        scene.change(
            f"{PODS}/liar",
            metadata=stored["metadata"] | {"annotations": {ASSIGNMENT_KEY: text}},
            spec={"nodeName": "n", "containers": [container]},
        )
        await heard(scene, uid)

        assert charges(scene) == {"liar": [("GPU-0", 1024)]}

    play(act)
