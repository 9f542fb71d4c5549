"""Binds of MetaX's shares: their plugin serves the holder of the node's lock, one at a time."""

import asyncio
import json
from dataclasses import replace

import pytest

from allocator.catalog.hami_keys import LOCK_ANNOTATION, PHASE_KEY
from allocator.config.settings import DEFAULTS
from allocator.metax.names import ALLOCATED_KEY
from allocator.model.gpu import Node
from allocator.model.request import METAX, Mode
from allocator.model.units import MiB
from tests.builders.bindings import answered, applied, binding, review, stored
from tests.builders.gpunodes import Json, gpu_node
from tests.builders.model import nodes_of, snapshot
from tests.builders.pods import admitted, container, pod, received
from tests.fakes.kube_clock import FakeClock
from tests.fakes.objects_client import ObjectsClient
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_server import BindingHandler

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/team-a/pods"
GPU_NODES = "/apis/vgpu-admission.io/v1alpha1/gpunodes"
SHARE = pod(
    container(limits={"metax-tech.com/sgpu": 1, "metax-tech.com/vmemory": 40}),
    initContainers=[container("first")],
)
WHOLE = pod(container(limits={"metax-tech.com/gpu": 1}))


def metax_node(mode: Mode) -> Node:
    """Return a node with one GPU of MetaX's."""
    gpus = nodes_of(1).gpus
    slots = 16 if mode is Mode.SGPU else 1
    made = [
        replace(gpu, mode=mode, family=METAX, model="C500", memory=MiB(65536), slots=slots)
        for gpu in gpus
    ]
    return Node(name="n0", gpus=tuple(made))


class Cluster:
    """A node of MetaX's plugin with one GPU, and pods for it."""

    def __init__(self, asking: Json, mode: Mode, *names: str) -> None:
        node = metax_node(mode)
        self.client = ObjectsClient()
        self.clock = FakeClock().clock()
        self.context = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(node))
        self.client.put(NODES, {"metadata": {"name": "n0"}})
        self.client.put(GPU_NODES, gpu_node(node, driver="metax"))
        for name in names:
            admitted_pod = admitted(received(asking), self.context)
            self.client.put(PODS, stored(admitted_pod, name=name, uid=f"uid-{name}"))

    @property
    def lock(self) -> str:
        """Return who holds the lock of the node, with its namespace; empty: nobody."""
        found = self.client.read(f"{NODES}/n0")["metadata"].get("annotations") or {}
        return str(found.get(LOCK_ANNOTATION, "")).partition(",")[2]

    def bind(self, name: str, **request: object) -> Json:
        """Return the answer to a Binding of a pod."""
        handler = BindingHandler(
            calls=self.client,
            context_of=lambda _: self.context,
            nodes_with_entry=lambda _: frozenset(),
            clock=self.clock,
            patience=5,
        )
        body = review(binding(name=name), name=name, **request)
        return answered(asyncio.run(handler.bind(body)))

    def entries(self) -> list[str]:
        """Return the pods that have an entry."""
        spec = self.client.read(f"{GPU_NODES}/n0")["spec"]
        return [entry["pod"]["name"] for entry in spec["entries"]]


def test_a_share_is_bound_under_the_lock() -> None:
    """The pod has it from then on, and its plugin finds the share behind the init container."""
    cluster = Cluster(SHARE, Mode.SGPU, "p")

    answer = cluster.bind("p")

    annotations = applied(binding(name="p"), answer["patch"])["metadata"]["annotations"]
    nothing, (device,) = json.loads(annotations[ALLOCATED_KEY])
    assert (nothing, device) == ([], {"uuid": "GPU-n0-0", "compute": 100, "vRam": 40960})
    assert annotations[PHASE_KEY] == "allocating"
    assert cluster.lock == "team-a,p"
    assert cluster.entries() == ["p"]


def test_two_shares_are_never_between_bind_and_start_at_once() -> None:
    """The plugin could not tell them apart; nothing of the second is written."""
    cluster = Cluster(SHARE, Mode.SGPU, "p", "q")
    cluster.bind("p")

    answer = cluster.bind("q")

    assert (answer["allowed"], answer["status"]["code"]) == (False, 409)
    assert "another pod" in answer["status"]["message"]
    assert cluster.lock == "team-a,p"
    assert cluster.entries() == ["p"]


def test_a_share_that_finds_no_room_leaves_no_lock() -> None:
    """The next pod need not wait for the leader."""
    cluster = Cluster(SHARE, Mode.SGPU, "p", "q")
    cluster.bind("p")
    cluster.client.read(f"{NODES}/n0")["metadata"]["annotations"] = {}

    assert not cluster.bind("q")["allowed"]
    assert cluster.lock == ""
    assert cluster.entries() == ["p"]


@pytest.mark.parametrize(
    ("asking", "mode", "dry"),
    [(SHARE, Mode.SGPU, True), (WHOLE, Mode.NATIVE, False), (WHOLE, Mode.NATIVE, True)],
)
def test_nothing_else_takes_the_lock(asking: Json, mode: Mode, *, dry: bool) -> None:
    """No dry run, nor a pod with whole GPUs: MetaX's plugin chooses those by itself."""
    cluster = Cluster(asking, mode, "p")

    assert cluster.bind("p", dryRun=dry)["allowed"]
    assert cluster.lock == ""
    assert cluster.entries() == ([] if dry else ["p"])
