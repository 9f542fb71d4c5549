"""Binds beside HAMi: its plugin finds all that it reads, and its lock serves one pod at a time."""

import asyncio

import msgspec
import pytest

from allocator.catalog.hami_keys import (
    ALLOCATED_KEY,
    BIND_TIME_KEY,
    LOCK_ANNOTATION,
    NODE_KEY,
    PHASE_KEY,
    POD_KEYS,
    TIME_KEY,
    TO_ALLOCATE_KEY,
)
from allocator.config.settings import DEFAULTS, NodeAgent, Settings
from kube.errors import UnreachableError
from tests.builders.bindings import answered, applied, binding, review, stored
from tests.builders.gpunodes import Json, gpu_node
from tests.builders.model import T4, nodes_of, snapshot
from tests.builders.pods import MEMORY, NUMBER, admitted, container, pod, received
from tests.fakes.api_objects import parsed
from tests.fakes.kube_clock import FakeClock
from tests.fakes.objects_client import ObjectsClient
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_server import BindingHandler

NODE = nodes_of(1, T4)
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/team-a/pods"
GPU_NODES = "/apis/vgpu-admission.io/v1alpha1/gpunodes"
HAMI = msgspec.structs.replace(DEFAULTS, node_agent=NodeAgent.HAMI)
OURS = msgspec.structs.replace(DEFAULTS, hami_register=True)
ASKING = pod(
    container("main", limits={NUMBER: 1, MEMORY: 3000}),
    container("side"),
    initContainers=[container("init")],
)
EARLIER = "2026-11-21T17:00:00Z"


class Cluster:
    """A node of HAMi's plugin, and a pod for it."""

    def __init__(self, settings: Settings, asking: Json = ASKING, **metadata: object) -> None:
        self.client = ObjectsClient()
        self.clock = FakeClock().clock()
        self.context = AdmissionContext(settings=settings, snapshot=snapshot(NODE))
        self.client.put(NODES, {"metadata": {"name": "n0"}})
        self.client.put(GPU_NODES, gpu_node(NODE))
        self.add_pod("p", asking, **metadata)

    def add_pod(self, name: str, asking: Json = ASKING, **metadata: object) -> None:
        admitted_pod = admitted(received(asking), self.context)
        self.client.put(PODS, stored(admitted_pod, name=name, **metadata))

    def lock(self, text: str | None) -> None:
        annotations = {} if text is None else {LOCK_ANNOTATION: text}
        self.client.read(f"{NODES}/n0")["metadata"]["annotations"] = annotations

    @property
    def locked(self) -> str:
        node = self.client.read(f"{NODES}/n0")
        return str((node["metadata"].get("annotations") or {}).get(LOCK_ANNOTATION, ""))

    def bind(self, written: Json | None = None, **request: object) -> Json:
        handler = BindingHandler(
            calls=self.client,
            context_of=lambda _: self.context,
            nodes_with_entry=lambda _: frozenset(),
            clock=self.clock,
            patience=5,
        )
        name = (written or binding())["metadata"]["name"]
        body = review(written or binding(), name=name, **request)
        return answered(asyncio.run(handler.bind(body)))

    def bound(self, written: Json | None = None) -> Json:
        """Bind, and return the metadata of the Binding as it goes on."""
        answer = self.bind(written)
        assert answer["allowed"], answer
        metadata: Json = applied(written or binding(), answer["patch"])["metadata"]
        return metadata


def now_text(cluster: Cluster) -> str:
    return f"{cluster.clock.wall():%Y-%m-%dT%H:%M:%SZ}"


def full_cluster() -> Cluster:
    """Return a node that the pod ``p`` fills, without a lock, and ``q``, which wants as much."""
    big = pod(container("main", limits={NUMBER: 1, MEMORY: 15000}))
    cluster = Cluster(HAMI, big)
    cluster.add_pod("q", big, uid="uid-q")
    cluster.bound()
    cluster.lock(None)
    return cluster


def test_the_plugin_finds_all_that_it_reads() -> None:
    """Each container has its part, init first; the pod is allocating, and the lock is its own."""
    cluster = Cluster(HAMI)

    metadata = cluster.bound()

    written = {key: text for key, text in metadata["annotations"].items() if key in POD_KEYS}
    seconds = str(int(cluster.clock.wall().timestamp()))
    assert written == {
        NODE_KEY: "n0",
        TIME_KEY: seconds,
        TO_ALLOCATE_KEY: ";GPU-n0-0,NVIDIA,3000,0:;;",
        ALLOCATED_KEY: ";GPU-n0-0,NVIDIA,3000,0:;;",
        PHASE_KEY: "allocating",
        BIND_TIME_KEY: seconds,
    }
    assert metadata["labels"] == {NODE_KEY: "n0"}
    assert metadata["annotations"]["vgpu-admission.io/served-by"] == "hami"
    assert not any(key.startswith("volcano.sh/vgpu-ids") for key in metadata["annotations"])
    assert cluster.locked == f"{now_text(cluster)},team-a,p"


def test_labels_of_the_binding_are_kept() -> None:
    """A label that somebody else put there stays."""
    metadata = Cluster(HAMI).bound(binding(labels={"a": "b"}))

    assert metadata["labels"] == {"a": "b", NODE_KEY: "n0"}


def test_a_dry_run_takes_no_lock() -> None:
    """It commits nothing, and locks nothing."""
    cluster = Cluster(HAMI)

    assert cluster.bind(dryRun=True)["allowed"]
    assert cluster.locked == ""


@pytest.mark.parametrize(
    ("spec", "annotations"),
    [({}, {}), ({"nodeName": "n0"}, {PHASE_KEY: "allocating"})],
    ids=["about-to-be-bound", "waits-for-the-plugin"],
)
def test_a_bind_waits_for_the_pod_before_it(spec: Json, annotations: dict[str, str]) -> None:
    """It is refused in a way that schedulers retry, and nothing is committed."""
    cluster = Cluster(HAMI)
    cluster.add_pod("other", annotations=annotations)
    cluster.client.read(f"{PODS}/other")["spec"].update(spec)
    lock = f"{now_text(cluster)},team-a,other"
    cluster.lock(lock)

    answer = cluster.bind()

    assert (answer["allowed"], answer["status"]["code"]) == (False, 409)
    assert "another pod" in answer["status"]["message"]
    assert "team-a/other" not in answer["status"]["message"]
    assert cluster.locked == lock
    assert cluster.client.read(f"{GPU_NODES}/n0")["spec"]["entries"] == []


@pytest.mark.parametrize(
    ("spec", "annotations", "status"),
    [
        ({"nodeName": "n1"}, {PHASE_KEY: "allocating"}, {}),
        ({"nodeName": "n0"}, {PHASE_KEY: "success"}, {}),
        ({"nodeName": "n0"}, {PHASE_KEY: "failed"}, {}),
        ({"nodeName": "n0"}, {PHASE_KEY: "allocating"}, {"phase": "Running"}),
        ({"nodeName": "n0"}, {PHASE_KEY: "allocating"}, {"phase": "Failed"}),
        (
            {"nodeName": "n0"},
            {PHASE_KEY: "allocating"},
            {"phase": "Pending", "initContainerStatuses": [{"state": {"running": {}}}]},
        ),
    ],
)
def test_a_lock_that_protects_nobody_is_taken_over(
    spec: Json, annotations: dict[str, str], status: Json
) -> None:
    """Its pod is served, over, or somewhere else."""
    cluster = Cluster(HAMI)
    cluster.add_pod("other", annotations=annotations)
    other = cluster.client.read(f"{PODS}/other")
    other["spec"].update(spec)
    other["status"] = status
    cluster.lock(f"{now_text(cluster)},team-a,other")

    cluster.bound()

    assert cluster.locked.endswith(",team-a,p")


@pytest.mark.parametrize(
    "text",
    [
        f"{EARLIER},team-a,gone",
        "",
        "soon",
        ",,",
        f"{EARLIER},../../nodes,p",
        f"{EARLIER},team-a,p/../q",
        f"{EARLIER},team-a,p,q",
        "x" * 4096,
        "\x1b[2J",
        "\u202e",
        "null",
        '{"a": 1}',
    ],
)
def test_hostile_locks_block_nobody(text: str) -> None:
    """A lock that no pod can hold is taken over."""
    cluster = Cluster(HAMI)
    cluster.lock(text)

    cluster.bound()

    assert cluster.locked.endswith(",team-a,p")


def test_a_lock_of_its_own_is_renewed() -> None:
    """An earlier attempt's lock would be released before the Binding."""
    cluster = Cluster(HAMI)
    cluster.lock(f"{EARLIER},team-a,p")

    cluster.bound()

    assert cluster.locked == f"{now_text(cluster)},team-a,p"


def test_a_bind_that_fails_releases_its_lock() -> None:
    """A node without room is free for the next pod at once."""
    cluster = full_cluster()

    assert not cluster.bind(binding(name="q"))["allowed"]
    assert cluster.locked == ""


def test_another_replica_may_be_faster() -> None:
    """Of two that take the lock at once one gets it."""
    cluster = Cluster(HAMI)
    cluster.add_pod("other")
    theirs = f"{now_text(cluster)},team-a,other"

    def write_first(path: str) -> None:
        if path == f"{NODES}/n0" and not cluster.locked:
            node = cluster.client.read(path)
            node["metadata"]["annotations"] = {LOCK_ANNOTATION: theirs}
            node["metadata"]["resourceVersion"] = "999"

    cluster.client.before_write = write_first

    assert not cluster.bind()["allowed"]
    assert cluster.locked == theirs


def test_on_our_nodes_hamis_scheduler_is_told() -> None:
    """Nothing is left to allocate there, no lock is taken, and Volcano's names stay."""
    cluster = Cluster(OURS)

    annotations = cluster.bound()["annotations"]

    assert annotations[ALLOCATED_KEY] == ";GPU-n0-0,NVIDIA,3000,0:;;"
    assert annotations[TO_ALLOCATE_KEY] == ";;;"
    assert annotations[PHASE_KEY] == "success"
    assert annotations["volcano.sh/vgpu-ids-new"] == "GPU-n0-0,NVIDIA,3000,0:;"
    assert annotations["vgpu-admission.io/served-by"] == "vgpu-admission"
    assert cluster.locked == ""


def test_without_the_setting_nothing_of_hami_is_written() -> None:
    """A cluster without HAMi sees none of its keys."""
    metadata = Cluster(DEFAULTS).bound()

    assert POD_KEYS.isdisjoint(metadata["annotations"])
    assert "labels" not in metadata


@pytest.mark.parametrize("settings", [HAMI, OURS], ids=["hami", "ours"])
@pytest.mark.parametrize("on", ["n0", "n1"])
def test_what_hamis_scheduler_picked_is_a_wish(settings: Settings, on: str) -> None:
    """It is taken if it was picked for this node, else the best fit counts."""
    written = {NODE_KEY: on, ALLOCATED_KEY: ";GPU-n0-1,NVIDIA,3000,0:;;"}
    cluster = Cluster(settings, pod(container("main", limits={NUMBER: 1, MEMORY: 3000})))
    two = nodes_of(2, T4)
    cluster.client.read(f"{GPU_NODES}/n0")["status"] = gpu_node(two)["status"]
    cluster.client.read(f"{PODS}/p")["metadata"]["annotations"].update(written)

    got = cluster.bound()["annotations"][ALLOCATED_KEY]

    assert got.startswith("GPU-n0-1," if on == "n0" else "GPU-n0-0,")


def test_forged_keys_on_the_binding_are_removed() -> None:
    """A scheduler cannot hand a MIG reservation to HAMi's plugin past the ledger."""
    forged = {"hami.io/vgpu-mig-allocations": "[]", ALLOCATED_KEY: "GPU-x,NVIDIA,1,1:;"}
    written = binding(annotations=forged)

    annotations = Cluster(HAMI).bound(written)["annotations"]

    assert "hami.io/vgpu-mig-allocations" not in annotations
    assert annotations[ALLOCATED_KEY] == ";GPU-n0-0,NVIDIA,3000,0:;;"


def test_an_api_server_that_is_away_keeps_no_answer_back() -> None:
    """The refusal is told; the lock that could not be released is the leader's to release."""
    cluster = full_cluster()

    def fail_to_release(path: str) -> None:
        if path == f"{NODES}/n0" and cluster.locked:
            raise UnreachableError("down", sent=False)

    cluster.client.before_write = fail_to_release
    answer = cluster.bind(binding(name="q"))

    assert (answer["allowed"], answer["status"]["code"]) == (False, 409)
    assert cluster.locked.endswith(",team-a,q")


def test_a_node_that_is_gone_is_no_node_to_lock() -> None:
    """Its GPUNode may be there a moment longer; the scheduler is told at once."""
    cluster = Cluster(HAMI)
    del cluster.client.objects.kept[parsed(f"{NODES}/n0")]

    answer = cluster.bind()

    assert (answer["allowed"], answer["status"]["code"]) == (False, 403)
    assert 'node "n0" does not exist' in answer["status"]["message"]
    assert cluster.client.read(f"{GPU_NODES}/n0")["spec"]["entries"] == []
