"""The plugin of a simulated MetaX node: what it offers, and what a container gets."""

import asyncio
import json
from collections.abc import Mapping

import pytest

from agent.deviceplugin.grpc_client import CallError
from agent.metax.machine import MetaxMachine
from agent.metax.node_client import MetaxNodeClient
from agent.metax.plugin_server import VISIBLE, MetaxPlugin
from agent.proto import deviceplugin_pb2 as pb
from allocator.catalog.hami_keys import LOCK_ANNOTATION
from allocator.metax.names import ALLOCATED_KEY
from tests.fakes.api_objects import parsed
from tests.fakes.objects_client import ObjectsClient
from tests.unit.agent.metax.test_machine import FLEET, machine

NODE = "/api/v1/nodes/n"
TIME = "2026-11-25T12:00:00Z"
SHARED, WHOLE = machine(node="n"), machine(node="whole")
A, B = (card.uuid for card in SHARED.cards)


class Cluster:
    """A Node and the plugin that serves it."""

    def __init__(self, found: MetaxMachine = SHARED) -> None:
        self.client = ObjectsClient()
        self.client.put(NODE, {"metadata": {"annotations": {"other": "1"}}})
        self.plugin = MetaxPlugin(found, MetaxNodeClient(self.client, "n"))

    @property
    def annotations(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.client.read(NODE)["metadata"]["annotations"]
        return found

    def lock(self, text: str) -> None:
        """Write the lock of the node."""
        patch = {"metadata": {"annotations": {LOCK_ANNOTATION: text}}}
        asyncio.run(self.client.merge_patch(NODE, patch))

    def bind(self, name: str, *containers: list[str], node: str = "n") -> None:
        """Bind a pod whose *containers* were given these GPUs, and let it have the lock."""
        given = json.dumps([[{"uuid": uuid} for uuid in uuids] for uuids in containers])
        path = f"/api/v1/namespaces/t/pods/{name}"
        written = {"metadata": {"name": name, "annotations": {ALLOCATED_KEY: given}}}
        self.client.put(path, {**written, "spec": {"nodeName": node}})
        self.lock(f"{TIME},t,{name}")

    def allocate(self, *ids: str) -> str:
        """Ask as kubelet does for one container; return what it sees."""
        container = pb.ContainerAllocateRequest(devices_ids=ids)
        request = pb.AllocateRequest(container_requests=[container])
        (answer,) = asyncio.run(self.plugin.allocate(request)).container_responses
        return answer.envs[VISIBLE]

    def devices(self) -> list[tuple[str, str]]:
        """Return what kubelet is told that there is."""

        async def first() -> pb.ListAndWatchResponse:
            return await anext(self.plugin.streams.watch(pb.Empty()))

        return [(device.ID, device.health) for device in asyncio.run(first()).devices]


def test_a_shared_node_offers_numbered_shares() -> None:
    """As many as its cards can be divided into, those of a broken card unhealthy."""
    broken = machine(FLEET.replace("slots: 16", "slots: 2, unhealthy: [1]"), node="n")

    assert Cluster(broken).devices() == [
        ("sgpu-00000", "Healthy"),
        ("sgpu-00001", "Healthy"),
        ("sgpu-00002", "Unhealthy"),
        ("sgpu-00003", "Unhealthy"),
    ]


def test_the_largest_node_fits_in_one_message() -> None:
    """Kubelet takes 4 MiB."""
    largest = "gpus: 64, mode: sgpu, slots: 1000"
    found = Cluster(machine(FLEET.replace("gpus: 2, mode: sgpu, slots: 16", largest), node="n"))
    devices = [pb.Device(ID=name, health="Unhealthy") for name, _ in found.devices()]

    assert len(devices) == len({device.ID for device in devices}) == 64_000
    assert pb.ListAndWatchResponse(devices=devices).ByteSize() < 4 << 20


def test_a_native_node_offers_its_gpus_and_gives_those_that_kubelet_chose() -> None:
    """MetaX's plugin needs no lock for whole GPUs, and no annotation."""
    found = Cluster(WHOLE)
    uuids = [card.uuid for card in WHOLE.cards]

    assert [name for name, _ in found.devices()] == uuids
    assert found.allocate(uuids[3], uuids[1]) == ",".join(sorted((uuids[1], uuids[3])))
    with pytest.raises(CallError, match="unknown GPU GPU-x"):
        found.allocate("GPU-x")


def test_the_lock_goes_with_the_last_container() -> None:
    """Until then the next container of the same pod is served; other annotations stay."""
    found = Cluster()
    found.bind("p", [B], [], [A, B])

    assert found.allocate("sgpu-00007") == B
    assert LOCK_ANNOTATION in found.annotations
    assert found.allocate("sgpu-00001", "sgpu-00002") == f"{A},{B}"
    assert dict(found.annotations) == {"other": "1"}


def test_the_next_pod_begins_with_its_own_first_container() -> None:
    """Also where the pod before it ended between two of its containers."""
    found = Cluster()
    found.bind("first", [A], [A])
    assert found.allocate("sgpu-00000") == A
    found.bind("second", [B], [A])

    assert found.allocate("sgpu-00001") == B
    assert found.allocate("sgpu-00002") == A
    assert LOCK_ANNOTATION not in found.annotations


def test_a_refused_container_takes_no_turn() -> None:
    """The pod that has the lock is served when kubelet asks for the right number."""
    found = Cluster()
    found.bind("p", [A])

    with pytest.raises(CallError, match="device number not matched: 2 asked for, 1 given"):
        found.allocate("sgpu-00000", "sgpu-00001")
    assert found.allocate("sgpu-00000") == A


def test_a_lock_that_somebody_took_meanwhile_stays() -> None:
    """The leader removed ours as stale, and the next bind has its own."""
    found = Cluster()
    found.bind("p", [A])
    mine = f"{TIME},t,other"

    def overtake(_: str) -> None:
        found.client.before_write = lambda _: None
        patch = json.dumps({"metadata": {"annotations": {LOCK_ANNOTATION: mine}}})
        found.client.objects.patch(parsed(NODE), "application/merge-patch+json", patch.encode())

    found.client.before_write = overtake

    assert found.allocate("sgpu-00000") == A
    assert found.annotations[LOCK_ANNOTATION] == mine


@pytest.mark.parametrize(
    "lock",
    [
        "",
        TIME,
        f"{TIME},t",
        f"{TIME},t,p,x",
        f"{TIME},,p",
        f"{TIME},t,",
        f"{TIME},../../secrets,p",
        f"{TIME},t,p/binding",
        f"{TIME},t,p?watch=1",
        f"{TIME},t,p\n",
        "yesterday,t,p",
        f"{TIME},t," + "p" * 600,
    ],
)
def test_a_lock_that_names_no_pod_serves_nobody(lock: str) -> None:
    """Anybody who may write the Node may write anything there; nothing of it becomes a path."""
    found = Cluster()
    found.bind("p", [A])
    found.lock(lock)

    with pytest.raises(CallError, match="the lock of the node names no pod"):
        found.allocate("sgpu-00000")


def test_a_container_without_a_pod_behind_it_is_refused() -> None:
    """There is no lock, its pod is gone or elsewhere, or it was given a GPU of another node."""
    found = Cluster()
    with pytest.raises(CallError, match="no pod holds the lock"):
        found.allocate("sgpu-00000")
    found.lock(f"{TIME},t,gone")
    with pytest.raises(CallError, match="t/gone, which holds the lock of the node, is gone"):
        found.allocate("sgpu-00000")
    found.bind("elsewhere", [A], node="m")
    with pytest.raises(CallError, match="bound to m"):
        found.allocate("sgpu-00000")
    found.bind("strange", ["GPU-of-another-node"])
    with pytest.raises(CallError, match="GPU-of-another-node, which is not here"):
        found.allocate("sgpu-00000")
    assert LOCK_ANNOTATION in found.annotations
