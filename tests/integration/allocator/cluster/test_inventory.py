"""The cluster as decisions see it, from watches on a real socket."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from allocator.cluster.inventory import GPU_NODES, NAMESPACES, NODES, Inventory
from allocator.config.settings import FleetScope
from allocator.mig.fleet_shapes import MOST_AT_ONCE
from allocator.mig.slot_policy import board_facts
from allocator.model.request import Mode
from allocator.volcano.register import REGISTER_ANNOTATION
from kube.client import Client
from kube.clock import Clock
from kube.config import Access
from tests.builders.model import ask, pod
from tests.fakes.api_objects import parsed
from tests.fakes.api_rules import Json
from tests.fakes.api_server import ApiServer

SYSTEM = "/api/v1/namespaces/system/configmaps"
KUBE_SYSTEM = "/api/v1/namespaces/kube-system/configmaps"
T4 = "GPU-4,10,15360,NVIDIA-Tesla T4,true,hami-core:"
GPU_NODE: Json = {
    "apiVersion": "vgpu-admission.io/v1alpha1",
    "kind": "GPUNode",
    "metadata": {"name": "a"},
    "spec": {"entries": []},
    "status": {
        "bootID": "b",
        "boards": [],
        "gpus": [
            {
                "uuid": "GPU-1",
                "index": 0,
                "model": "NVIDIA L4",
                "memoryMiB": 23034,
                "mode": "hami-core",
                "healthy": True,
                "slots": 10,
            }
        ],
    },
}

Scene = Callable[[ApiServer, Inventory], Awaitable[None]]


def play(scene: Scene, *, now: Callable[[], float] | None = None) -> None:
    """Run *scene* beside an inventory that follows a server."""

    async def run() -> None:
        async with ApiServer() as server, Client(Access(url=server.url)) as client:
            clock = Clock() if now is None else Clock(monotonic=now)
            inventory = Inventory(client, namespace="system", clock=clock)
            following = asyncio.create_task(inventory.run())
            try:
                await until(lambda: inventory.synced)
                await scene(server, inventory)
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    asyncio.run(run())


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110 -- what it waits for has no event of its own
            await asyncio.sleep(0.01)


def node(name: str, register: str = "") -> Json:
    annotations = {REGISTER_ANNOTATION: register} if register else {}
    return {"metadata": {"name": name, "annotations": annotations}}


def config(name: str, key: str, text: str) -> Json:
    return {"metadata": {"name": name}, "data": {key: text}}


def test_the_register_annotation_serves_where_no_agent_of_ours_does() -> None:
    """A Node is enough for clusters that run the upstream plugin."""

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        server.objects.create(parsed(NODES), node("a", T4))
        await until(lambda: inventory.snapshot().nodes)

        (gpu,) = inventory.snapshot().nodes["a"].gpus
        assert (gpu.model, gpu.mode) == ("Tesla T4", Mode.HAMI_CORE)

    play(scene)


def test_an_agents_inventory_beats_the_annotation() -> None:
    """What the driver said counts for more than five fields of text."""

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        server.objects.create(parsed(NODES), node("a", T4))
        server.objects.create(parsed(GPU_NODES), GPU_NODE)
        await until(lambda: [o.model for o in inventory.snapshot().offers] == ["NVIDIA L4"])

    play(scene)


def test_a_register_is_forgotten_with_its_node() -> None:
    """Names of nodes come and go without end; one that comes back is read anew."""

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        server.objects.create(parsed(NODES), node("a", T4))
        await until(lambda: inventory.snapshot().nodes)
        before = inventory.snapshot().nodes["a"]
        server.objects.delete(parsed(f"{NODES}/a"))
        await until(lambda: not inventory.snapshot().nodes)
        server.objects.create(parsed(NODES), node("a", T4))
        await until(lambda: inventory.snapshot().nodes)

        assert inventory.snapshot().nodes["a"] == before
        assert inventory.snapshot().nodes["a"] is not before

    play(scene)


def test_a_node_that_goes_takes_its_gpus_along() -> None:
    """A GPUNode may outlive its Node, but offers nothing then."""

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        server.objects.create(parsed(NODES), node("a"))
        server.objects.create(parsed(GPU_NODES), GPU_NODE)
        await until(lambda: inventory.snapshot().offers)
        server.objects.delete(parsed(f"{NODES}/a"))
        await until(lambda: not inventory.snapshot().offers)

    play(scene)


@pytest.mark.parametrize(
    "bad", ["fleet: [open", "fleet: open\nflet: open"], ids=["no-yaml", "unknown-key"]
)
def test_settings_are_taken_up_while_running_and_broken_ones_are_not(bad: str) -> None:
    """The last good settings stay in force."""

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        name = "vgpu-admission-settings"
        server.objects.create(parsed(SYSTEM), config(name, "settings.yaml", "fleet: closed"))
        await until(lambda: inventory.settings.fleet is FleetScope.CLOSED)
        digest = inventory.settings_digest
        place = parsed(f"{SYSTEM}/{name}")
        broken = server.objects.read(place) | {"data": {"settings.yaml": bad}}
        server.objects.replace(place, broken)
        mended = server.objects.read(place) | {"data": {"settings.yaml": "prefer: isolation"}}
        seen = inventory.watches["settings"].last_message
        await until(lambda: inventory.watches["settings"].last_message != seen)

        assert (inventory.settings.fleet, inventory.settings_digest) == (FleetScope.CLOSED, digest)
        server.objects.replace(place, mended)
        await until(lambda: inventory.settings.fleet is FleetScope.OPEN)

    play(scene)


def test_the_plugins_configuration_changes_the_words_we_understand() -> None:
    """GpuMemoryFactor and renamed resources, as the device plugin reads them."""

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        text = "nvidia:\n  resourceCountName: volcano.sh/my-gpu\n  gpuMemoryFactor: 10\n"
        name = "volcano-vgpu-device-config"
        server.objects.create(parsed(KUBE_SYSTEM), config(name, "device-config.yaml", text))
        await until(lambda: inventory.vocabularies[0].memory_factor == 10)

        assert inventory.vocabularies[0].count == "volcano.sh/my-gpu"
        assert inventory.vocabularies[1].slot == "volcano.sh/my-gpu"

    play(scene)


def test_gpus_that_the_plugin_leaves_alone_are_not_offered() -> None:
    """Filterdevices counts at once, and a broken node configuration changes nothing."""

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        server.objects.create(parsed(NODES), node("a", T4 + T4.replace("GPU-4", "GPU-5")))
        await until(lambda: len(inventory.snapshot().nodes) == 1)
        name = "volcano-vgpu-node-config"
        text = '{"nodeconfig":[{"name":"a","filterdevices":{"uuid":["GPU-4"],"index":[]}}]}'
        server.objects.create(parsed(KUBE_SYSTEM), config(name, "config.json", text))
        await until(lambda: [g.uuid for g in inventory.snapshot().nodes["a"].gpus] == ["GPU-5"])
        broken = server.objects.read(parsed(f"{KUBE_SYSTEM}/{name}")) | {
            "data": {"config.json": "["}
        }
        seen = inventory.watches["nodeconfig"].last_message
        server.objects.replace(parsed(f"{KUBE_SYSTEM}/{name}"), broken)
        await until(lambda: inventory.watches["nodeconfig"].last_message != seen)

        assert list(inventory.node_configs) == ["a"]

    play(scene)


def test_a_namespace_says_what_pod_security_admits() -> None:
    """Baseline and restricted refuse hostPath; an unknown namespace is unknown."""

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        labels = {"pod-security.kubernetes.io/enforce": "baseline"}
        server.objects.create(parsed(NAMESPACES), {"metadata": {"name": "tight", "labels": labels}})
        server.objects.create(parsed(NAMESPACES), {"metadata": {"name": "loose"}})
        await until(lambda: inventory.namespace("loose") and inventory.namespace("tight"))

        admits = [
            found.allows_host_paths
            for name in ("tight", "loose")
            if (found := inventory.namespace(name)) is not None
        ]
        assert admits == [False, True]
        assert inventory.namespace("unknown") is None

    play(scene)


def test_an_old_picture_refuses_nothing() -> None:
    """Without news for too long a snapshot calls itself incomplete."""
    late = [0.0]

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        server.objects.create(parsed(NODES), node("a", T4))

        def folded() -> object:
            late[0] += 1.0
            return inventory.snapshot().nodes

        await until(folded)
        assert inventory.snapshot().complete

        late[0] += inventory.settings.stale_after_seconds + 10
        assert not inventory.snapshot().complete

    play(scene, now=lambda: late[0])


def test_demand_is_learned_once_per_pod_and_outlives_a_new_fold() -> None:
    """A retried bind is no new demand, and a changed node does not forget what was learned."""
    a100 = "GPU-9,7,40536,NVIDIA-NVIDIA A100-SXM4-40GB,true,mig:"

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        server.objects.create(parsed(NODES), node("a", a100))
        await until(lambda: inventory.snapshot().offers)
        for uid in ("u", "u", "v"):
            inventory.learn_arrival(uid, pod(ask(3000)), uid == "v")
        server.objects.create(parsed(NODES), node("b", T4))
        await until(lambda: len(inventory.snapshot().nodes) == 2)

        (learned,) = inventory.snapshot().demand.boards.values()
        assert round(learned.arrivals, 1) == 2.0
        assert learned.failures > 0

    play(scene)


def test_the_index_knows_what_the_hook_would_refuse_and_who_has_promises() -> None:
    """A ledger whose agent has not reported is closed until it does."""
    containers = [{"name": "main", "devices": []}]
    promise = {
        "pod": {"namespace": "t", "name": "p", "uid": "u"},
        "since": "2026-11-21T12:00:00Z",
        "containers": containers,
    }

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        server.objects.create(parsed(NODES), node("a"))
        server.objects.create(parsed(GPU_NODES), GPU_NODE | {"spec": {"entries": [promise]}})
        await until(lambda: inventory.index().node_infos)
        assert inventory.index().node_infos["a"].closed
        assert list(inventory.index().entries("a")) == ["u"]
        assert inventory.nodes_with_entry("u") == {"a"}

        place = parsed(f"{GPU_NODES}/a")
        found = server.objects.read(place)
        reported = {**found["status"], "inventory": "sha256:1"}
        server.objects.replace(place, found | {"status": reported, "spec": {"entries": []}})
        await until(lambda: not inventory.index().node_infos["a"].closed)
        assert inventory.nodes_with_entry("u") == frozenset()
        assert inventory.index().all_nodes_known

    play(scene)


def test_a_node_that_is_known_to_be_gone_takes_nothing() -> None:
    """Its GPUNode may not be shut yet; before anybody has heard of Nodes it is no proof."""
    status = {**GPU_NODE["status"], "inventory": "sha256:1"}

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        server.objects.create(parsed(NODES), node("a"))
        server.objects.create(parsed(GPU_NODES), GPU_NODE | {"status": status})
        await until(lambda: inventory.ledger("a") is not None)
        await until(lambda: inventory.nodes() != {})
        ledger = inventory.ledger("a")
        assert ledger is not None
        assert inventory.is_current(ledger)

        server.objects.delete(parsed(f"{NODES}/a"))
        await until(lambda: inventory.nodes() == {})
        assert not inventory.is_current(ledger)

        inventory.watches["nodes"].synced = False
        assert inventory.is_current(ledger)

    play(scene)


def test_what_a_register_told_stands_only_while_its_plugin_is_to_serve() -> None:
    """From the change of the settings on, not from when somebody has shut the GPUNode."""

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        name = "vgpu-admission-settings"
        upstream = config(name, "settings.yaml", "nodeAgent: upstream")
        server.objects.create(parsed(SYSTEM), upstream)
        server.objects.create(parsed(NODES), node("a"))
        status = {**GPU_NODE["status"], "inventory": "sha256:1", "driver": "upstream"}
        server.objects.create(parsed(GPU_NODES), GPU_NODE | {"status": status})
        await until(lambda: inventory.index().node_infos)
        await until(lambda: not inventory.index().node_infos["a"].closed)

        place = parsed(f"{SYSTEM}/{name}")
        ours = server.objects.read(place) | {"data": {"settings.yaml": "nodeAgent: vgpu-admission"}}
        server.objects.replace(place, ours)
        await until(lambda: inventory.index().node_infos["a"].closed)

    play(scene)


def cut_node(number: int) -> Json:
    """Build a GPUNode with four boards of shapes that no other one has."""
    boards = [
        {
            "name": f"B{number}-{board}",
            "slots": 8,
            "profiles": [
                {"name": "1g.1gb", "id": 0, "memoryMiB": 1000, "sms": 1, "size": 1, "starts": [0]}
                | {"starts": [s for s in range(8) if (4 * number + board + 1) >> s & 1]},
                {"name": "2g.1gb", "id": 1, "memoryMiB": 1000, "sms": 1, "size": 1, "starts": [0]},
            ],
        }
        for board in range(4)
    ]
    gpus = [
        {"uuid": f"GPU-{number}-{board}", "index": board, "board": board, "memoryMiB": 1000}
        | {"mode": "mig", "healthy": True, "slots": 7}
        for board in range(4)
    ]
    status = {**GPU_NODE["status"], "inventory": "x", "boards": boards, "gpus": gpus}
    return {**GPU_NODE, "metadata": {"name": f"n{number}"}, "status": status}


def test_many_nodes_with_boards_of_their_own_are_taken_up_little_by_little() -> None:
    """No answer builds the tables of all; whoever waits is closed, and taken up a second later."""
    now = [0.0]

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        for number in range(12):
            server.objects.create(parsed(NODES), node(f"n{number}"))
            server.objects.create(parsed(GPU_NODES), cut_node(number))
        await until(lambda: len(inventory.nodes() or ()) == len(inventory.ledgers() or ()) == 12)
        built = [board_facts.cache_info().misses]
        open_nodes = []
        for _ in range(4):
            index = inventory.index()
            built.append(board_facts.cache_info().misses)
            open_nodes.append(sum(not one.closed for one in index.node_infos.values()))
            assert len(index.node_infos) == 12
            assert index.snapshot.complete == (open_nodes[-1] == 12)
            assert inventory.index() is index
            now[0] += 2

        assert open_nodes == [4, 8, 12, 12]
        assert max(after - before for before, after in pairwise(built)) <= MOST_AT_ONCE

    play(scene, now=lambda: now[0])


def test_a_node_that_reports_too_much_is_closed_and_no_pod_is_refused_for_it() -> None:
    """Its GPUs are not known, but it has some."""

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        server.objects.create(parsed(NODES), node("a"))
        status = {**GPU_NODE["status"], "inventory": "x", "boards": [{}] * 9}
        server.objects.create(parsed(GPU_NODES), {**GPU_NODE, "status": status})
        await until(lambda: inventory.index().node_infos)

        assert inventory.index().node_infos["a"].closed
        assert not inventory.snapshot().complete
        assert not inventory.snapshot().offers

    play(scene)
