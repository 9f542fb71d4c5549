"""Nodes of HAMi's plugin, and our nodes under HAMi's scheduler, as the cluster shows them."""

from collections.abc import Callable

import orjson
import pytest
from structlog.testing import capture_logs

from allocator.catalog.hami_keys import ALLOCATED_KEY, LOCK_ANNOTATION, NODE_KEY
from allocator.catalog.keys import AGENT_LABEL
from allocator.cluster.hami_nodes import hami_locks, hami_register_inputs, ownership_warnings
from allocator.cluster.inventory import GPU_NODES, NODES, Inventory
from allocator.cluster.pods import Pods
from allocator.ledger.closed import closed_reason
from allocator.request.pod_fields import decode_watched
from allocator.request.pod_summary import PodSummary, summary_of
from tests.fakes.api_objects import parsed
from tests.fakes.api_rules import Json
from tests.fakes.api_server import ApiServer
from tests.integration.allocator.cluster.test_inventory import (
    GPU_NODE,
    KUBE_SYSTEM,
    SYSTEM,
    config,
    play,
    until,
)

REGISTER = '[{"id":"GPU-h","count":10,"devmem":15360,"type":"NVIDIA-Tesla T4","health":true}]'
HAMI = "nodeAgent: hami\nvocabularies: [hami]"
LOCK = "2026-11-25T03:00:00Z,team-a,p"


def node(name: str, *, ours: bool = False, **annotations: str) -> Json:
    written = {f"hami.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
    return {
        "metadata": {
            "name": name,
            "annotations": written,
            "labels": {AGENT_LABEL: "1"} if ours else {},
        },
        "status": {"allocatable": {"nvidia.com/gpu": "10"}},
    }


def settings(text: str) -> Json:
    return config("vgpu-admission-settings", "settings.yaml", text)


def test_hamis_register_is_the_inventory() -> None:
    """From the change of the settings on, and until its plugin is gone."""

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        server.objects.create(parsed(NODES), node("a", node_nvidia_register=REGISTER))
        await until(inventory.nodes)
        assert not inventory.snapshot().nodes

        server.objects.create(parsed(SYSTEM), settings(HAMI))
        await until(lambda: inventory.snapshot().nodes)
        assert [gpu.uuid for gpu in inventory.snapshot().nodes["a"].gpus] == ["GPU-h"]
        identities = inventory.node_identities()
        assert identities is not None
        assert identities["a"].registered_by == "hami"

        gone = {**server.objects.read(parsed(f"{NODES}/a")), "status": {}}
        server.objects.replace(parsed(f"{NODES}/a"), gone)
        await until(lambda: not inventory.snapshot().nodes)

    play(scene)


def test_locks_are_ours_to_release_where_we_own_the_node() -> None:
    """Those of HAMi's plugin with its setting, those of our agents with ours, else none."""

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        for name, ours in (("a", True), ("b", False)):
            locked = node(name, ours=ours)
            locked["metadata"]["annotations"] = {LOCK_ANNOTATION: LOCK}
            server.objects.create(parsed(NODES), locked)
        await until(lambda: len(inventory.nodes() or ()) == 2)
        assert hami_locks(inventory) == {}

        server.objects.create(parsed(SYSTEM), settings(HAMI))
        await until(lambda: hami_locks(inventory) == {"a": LOCK, "b": LOCK})
        place = parsed(f"{SYSTEM}/vgpu-admission-settings")
        ours_now = {**server.objects.read(place), "data": {"settings.yaml": "hamiRegister: true"}}
        server.objects.replace(place, ours_now)
        await until(lambda: hami_locks(inventory) == {"a": LOCK})

    play(scene)


def test_registers_rest_on_the_pods_that_hami_counts() -> None:
    """A pod with HAMi's list of this node is counted there until it is over."""
    written = {NODE_KEY: "a", ALLOCATED_KEY: "GPU-h,NVIDIA,1,1:;"}
    limits = {"nvidia.com/gpu": "1"}
    stored: Json = {
        "metadata": {"uid": "u", "name": "p", "namespace": "team-a", "annotations": written},
        "spec": {"nodeName": "a", "containers": [{"resources": {"limits": limits}}]},
    }
    pods = Pods()

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        server.objects.create(parsed(NODES), node("a", ours=True))
        server.objects.create(parsed(NODES), node("b"))
        server.objects.create(parsed(SYSTEM), settings("hamiRegister: true"))
        await until(lambda: inventory.settings.hami_register and inventory.nodes())
        assert hami_register_inputs(inventory, pods) is None

        pods.update({"u": _summary(stored)})
        inputs = hami_register_inputs(inventory, pods)
        assert inputs is not None
        assert {name: (i.counted, i.wanted) for name, i in inputs.items()} == {
            "a": (frozenset({"u"}), True)
        }
        for changed in (
            {"status": {"phase": "Failed"}},
            {"metadata": {**stored["metadata"], "annotations": {ALLOCATED_KEY: "x"}}},
            {"metadata": {**stored["metadata"], "annotations": {**written, NODE_KEY: "b"}}},
        ):
            pods.update({"u": _summary({**stored, **changed})})
            inputs = hami_register_inputs(inventory, pods)
            assert inputs is not None
            assert inputs["a"].counted == frozenset()

    play(scene)


def _summary(pod: Json) -> PodSummary:
    return summary_of(decode_watched(orjson.dumps(pod)))


def test_a_node_of_two_plugins_takes_no_pods() -> None:
    """From when HAMi's register is there until it is removed; why is part of the identity."""
    status = {**GPU_NODE["status"], "inventory": "sha256:1"}

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        server.objects.create(parsed(SYSTEM), settings("hamiRegister: true"))
        server.objects.create(parsed(NODES), node("a", ours=True))
        server.objects.create(parsed(GPU_NODES), GPU_NODE | {"status": status})
        await until(lambda: inventory.index().node_infos)
        await until(lambda: not inventory.index().node_infos["a"].closed)
        ledger = inventory.ledger("a")
        assert ledger is not None
        assert inventory.is_current(ledger)

        server.objects.replace(
            parsed(f"{NODES}/a"), node("a", ours=True, node_nvidia_register=REGISTER)
        )
        await until(lambda: inventory.index().node_infos["a"].closed)
        assert not inventory.is_current(ledger)
        identities = inventory.node_identities()
        assert identities is not None
        reason = closed_reason(ledger, identities["a"], upstream=False)
        assert "HAMi's device plugin gives out its GPUs too" in reason

        server.objects.replace(parsed(f"{NODES}/a"), node("a", ours=True))
        await until(lambda: not inventory.index().node_infos["a"].closed)

    play(scene)


def test_a_scheduler_of_hamis_is_told_of() -> None:
    """On a node of its plugin that the setting gives to us."""

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        asked = node("a", node_nvidia_register=REGISTER, node_handshake="Requesting_x")
        server.objects.create(parsed(NODES), asked)
        await until(inventory.nodes)
        assert ownership_warnings(inventory) == {}

        server.objects.create(parsed(SYSTEM), settings(HAMI))
        await until(lambda: ownership_warnings(inventory))
        ((name, _),) = ownership_warnings(inventory)
        assert name == "a"

    play(scene)


def _new_vocabularies(inventory: Inventory) -> Callable[[], bool]:
    before = inventory.vocabularies
    return lambda: inventory.vocabularies is not before


@pytest.mark.parametrize("settings_first", [True, False])
def test_a_shared_name_leaves_hamis_vocabulary_out(*, settings_first: bool) -> None:
    """Whichever ConfigMap comes first, so that replicas agree; a log line tells of it."""

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        ours = (SYSTEM, settings("vocabularies: [volcano, hami]"))
        text = "resourceMemoryName: nvidia.com/gpumem"
        plugins = (KUBE_SYSTEM, config("volcano-vgpu-device-config", "device-config.yaml", text))
        for place, written in (ours, plugins) if settings_first else (plugins, ours):
            changed = _new_vocabularies(inventory)
            server.objects.create(parsed(place), written)
            await until(changed)

        (volcano,) = inventory.vocabularies
        assert volcano.memory == "nvidia.com/gpumem"
        (lost,) = inventory.lost
        found = lost.vocabulary.name, lost.name, lost.key
        assert found == ("hami", "nvidia.com/gpumem", "resourceMemoryName")

    with capture_logs() as logs:
        play(scene)
    (told,) = [line for line in logs if line["event"] == "vocabulary not served"]
    assert 'hami.resourceMemoryName: "nvidia.com/gpumem" is resourceMemoryName' in told["why"]
