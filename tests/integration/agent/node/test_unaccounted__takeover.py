"""A pod that another plugin served: found by the agent, promised what it has, and held."""

from typing import Final

import orjson

from agent.node.status import Hardware
from allocator.catalog.keys import ASSIGNMENT_KEY
from allocator.cluster.pods import Pods
from allocator.config.settings import Settings
from allocator.model.units import MiB
from allocator.placement.fleet import snapshot_of
from allocator.request.pod_summary import pod_summary
from allocator.volcano.device_list import (
    HAMI_LIST_ANNOTATION,
    HAMI_LIST_NODE_ANNOTATION,
    LIST_ANNOTATION,
    LIST_NODE_ANNOTATION,
)
from tests.builders.summaries import replace_pods
from tests.fakes.api_objects import parsed
from tests.integration.agent.clusterside import PODS, Scene, play
from tests.integration.waiting import until
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_server import BindingHandler
from webhook.binding.late_commit_controller import Caches, LateCommitController

RUNNING: Final = {
    "phase": "Running",
    "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": "now"}}}],
}
VOLCANOS: Final = {LIST_NODE_ANNOTATION: "n", LIST_ANNOTATION: "GPU-1,NVIDIA,1000,0:"}
HAMIS: Final = {HAMI_LIST_NODE_ANNOTATION: "n", HAMI_LIST_ANNOTATION: "GPU-1,NVIDIA,5000,25:;"}


async def add_older_pod(scene: Scene, annotations: dict[str, str], *limits: str) -> str:
    """Add a pod that runs and bears what its scheduler wrote; return its uid."""
    uid = scene.bind("older", **RUNNING)
    pod = scene.server.objects.read(parsed(f"{PODS}/older"))
    metadata, spec = pod["metadata"] | {"annotations": annotations}, pod["spec"]
    if limits:
        spec["containers"][0]["resources"]["limits"] = dict.fromkeys(limits, "1")
    scene.change(f"{PODS}/older", metadata=metadata, spec=spec)

    def heard() -> bool:
        found = scene.informer.pods.get(uid)
        return found is not None and bool(found.volcano_devices or found.hami_devices)

    await until(heard)
    return uid


async def commit(scene: Scene) -> None:
    """Let a control plane look twice at the cluster as it is now."""
    known = scene.informer.gpu_node
    assert known is not None
    around = AdmissionContext(
        settings=Settings(),
        snapshot=snapshot_of((known.ledger.node,), version="1", complete=True),
    )
    pods = Pods()
    stored = scene.server.objects.read(parsed(f"{PODS}/older"))
    one = pod_summary(orjson.dumps(stored))
    replace_pods(pods, {one.uid: one})
    late = LateCommitController(
        calls=scene.client,
        binder=BindingHandler(
            calls=scene.client, context_of=lambda _: around, nodes_with_entry=lambda _: frozenset()
        ),
        caches=Caches(pods=pods, ledgers=lambda: {"n": known.ledger}, context_of=lambda _: around),
    )
    for _ in range(2):
        await late.sweep()


def test_its_share_becomes_a_promise_that_the_agent_keeps() -> None:
    """Told as unpromised, committed to the same GPU, held; and nobody was ever offered it."""

    async def act(scene: Scene) -> None:
        uid = await add_older_pod(scene, VOLCANOS)
        await scene.status_controller.flush()
        await scene.caught_up()
        assert [one["pod"]["uid"] for one in scene.status["unpromised"]] == [uid]
        free = scene.informer.gpu_node
        assert free is not None
        assert [gpu.memory_promised for gpu in free.ledger.node.gpus] == [0, 1000]

        await commit(scene)
        await scene.caught_up()
        await scene.status_controller.flush()

        (entry,) = scene.stored["spec"]["entries"]
        assert entry["pod"]["uid"] == uid
        assert [d["gpu"] for d in entry["containers"][0]["devices"]] == ["GPU-1"]
        assert (scene.status["unpromised"], scene.status["held"]) == ([], [uid])
        pod = scene.server.objects.read(parsed(f"{PODS}/older"))["metadata"]
        assert "GPU-1" in pod["annotations"][ASSIGNMENT_KEY]

    play(act)


def test_what_it_holds_already_does_not_stand_in_its_way() -> None:
    """Its memory was foreign before anybody knew whose it is."""

    async def act(scene: Scene) -> None:
        uid = await add_older_pod(scene, VOLCANOS)
        gpus = scene.hardware.devices if scene.hardware else ()
        scene.hardware = Hardware(devices=gpus, foreign_memory={"GPU-1": MiB(15000)})
        await scene.status_controller.flush()
        await scene.caught_up()
        await commit(scene)
        assert scene.stored["spec"]["entries"] == []

        scene.hardware = Hardware(devices=gpus)  # as the monitor counts it from now on
        await scene.status_controller.flush()
        await scene.caught_up()
        await commit(scene)

        assert [e["pod"]["uid"] for e in scene.stored["spec"]["entries"]] == [uid]

    play(act)


def test_a_share_of_hamis_is_told_and_stays_so() -> None:
    """Its pod asks in words that nobody here translates; its GPU is not promised a second time."""

    async def act(scene: Scene) -> None:
        uid = await add_older_pod(scene, HAMIS, "nvidia.com/gpu")
        await scene.status_controller.flush()
        await scene.caught_up()
        known = scene.informer.gpu_node
        assert known is not None

        assert [one["pod"]["uid"] for one in scene.status["unpromised"]] == [uid]
        assert [gpu.memory_promised for gpu in known.ledger.node.gpus] == [0, 5000]

    play(act)
