"""The cluster as pages show it, from watches on a real socket."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.cluster.inventory import GPU_NODES, NAMESPACES, NODES
from allocator.ledger import decode
from console.cluster.live_informer import CLIENT_CA, KINDS, LONGEST_SHARED, LiveCluster, slim
from console.cluster.pod import pod_of, request_of, state_of
from console.cluster.snapshot import cluster_view, node_report
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.config import Access
from tests.builders.gpunodes import gpu_node
from tests.fakes.api_objects import parsed
from tests.fakes.api_rules import Json
from tests.fakes.api_server import ApiServer
from tests.fakes.kube_clock import EPOCH
from tests.integration.waiting import until
from tests.unit.console.sites import hard, held_hard, held_soft, soft

KUBE_SYSTEM = "/api/v1/namespaces/kube-system/configmaps"
Scene = Callable[[ApiServer, LiveCluster], Awaitable[None]]


def play(scene: Scene, *before: tuple[str, Json], clock: Clock = SYSTEM) -> None:
    """Run *scene* beside a cluster that is followed; *before* exists already."""

    async def run() -> None:
        async with ApiServer() as server, Client(Access(url=server.url)) as client:
            for path, document in before:
                server.objects.create(parsed(path), document)
            cluster = LiveCluster(client, namespace="system", clock=clock)
            assert cluster.view() is None
            assert cluster.namespaces() is None
            following = asyncio.create_task(cluster.run())
            try:
                await until(lambda: cluster.synced)
                await scene(server, cluster)
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    asyncio.run(run())


def machine(name: str, **spec: object) -> Json:
    return {"metadata": {"name": name}, "spec": spec, "status": {"nodeInfo": {"bootID": "boot-1"}}}


# What a device plugin and variables read, and no page.
UNREAD = {
    "volcano.sh/vgpu-ids-new": "GPU-1,NVIDIA,3000,0:",
    "volcano.sh/bind-phase": "success",
    "vgpu-admission.io/c0.visible": "GPU-1",
    "vgpu-admission.io/i12.memory-0": "3000m",
}


def asking(name: str, *, limits: dict[str, str], namespace: str = "team") -> Json:
    """Return a pod with the limits and the annotations of a real one."""
    noise = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 1000}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "annotations": {**noise, **UNREAD, "vgpu-admission.io/mode": "hami-core"},
        },
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }


VGPU = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000"}


def test_the_view_is_what_the_objects_make() -> None:
    """The same as ``kubectl vgpu`` makes of a list of them."""
    documents = [gpu_node(hard(), held_hard()), gpu_node(soft(), held_soft())]
    machines = [machine("gpu-a"), machine("gpu-b", unschedulable=True)]

    async def scene(server: ApiServer, cluster: LiveCluster) -> None:
        del server
        view = cluster.view()
        assert view is not None
        expected = cluster_view(documents, machines, now=view.now)
        assert list(view.ledgers) == ["gpu-a", "gpu-b"]
        assert [view.ledgers[name].node for name in view.ledgers] == [
            expected.ledgers[name].node for name in view.ledgers
        ]
        assert [ledger.entries for ledger in view.ledgers.values()] == [
            ledger.entries for ledger in expected.ledgers.values()
        ]
        assert view.accounts == expected.accounts
        assert view.machines is not None
        assert view.machines["gpu-b"].closed_reason == "it is cordoned"

    play(
        scene,
        *((GPU_NODES, document) for document in documents),
        *((NODES, document) for document in machines),
    )


def test_the_age_is_that_of_the_most_silent_watch() -> None:
    """One that hangs makes the picture old, though the others go on; those of settings do not."""
    now = [1000.0]

    async def scene(server: ApiServer, cluster: LiveCluster) -> None:
        del server
        assert cluster.age() is not None
        for number, kind in enumerate(KINDS):
            cluster.watches[kind].last_message = now[0] - 10 * (number + 1)
        assert cluster.age() == 40.0  # of the pods
        view = cluster.view()
        assert view is not None
        assert view.now == EPOCH
        now[0] += 100.0
        view = cluster.view()
        assert view is not None
        assert view.now == EPOCH - timedelta(seconds=140)  # when they were last heard of

    play(scene, clock=replace(SYSTEM, monotonic=lambda: now[0], wall=lambda: EPOCH))


def test_before_the_first_list_there_is_no_age() -> None:
    """Pages say then that nothing is known."""

    async def run() -> None:
        async with Client(Access(url="http://127.0.0.1:1")) as client:
            assert LiveCluster(client, namespace="system").age() is None

    asyncio.run(run())


def test_changes_are_seen() -> None:
    """Nodes that come and go, too; what did not change is not made again."""

    async def scene(server: ApiServer, cluster: LiveCluster) -> None:
        first = cluster.view()
        assert first is not None
        assert first.ledgers == {}
        server.objects.create(parsed(GPU_NODES), gpu_node(soft()))
        server.objects.create(parsed(NODES), machine("gpu-b"))
        await until(lambda: shown(cluster) == (["gpu-b"], ["gpu-b"]))
        second, third = cluster.view(), cluster.view()
        assert second is not None
        assert third is not None
        assert second.ledgers is third.ledgers
        server.objects.delete(parsed(f"{GPU_NODES}/gpu-b"))
        await until(lambda: shown(cluster) == ([], ["gpu-b"]))

    play(scene)


def shown(cluster: LiveCluster) -> tuple[list[str], list[str]]:
    view = cluster.view()
    assert view is not None
    return list(view.ledgers), list(view.machines or {})


def test_an_unreadable_ledger_is_named() -> None:
    """The others are shown."""
    odd = gpu_node(hard())
    odd["metadata"]["creationTimestamp"] = "yesterday"

    async def scene(server: ApiServer, cluster: LiveCluster) -> None:
        del server
        view = cluster.view()
        assert view is not None
        assert list(view.ledgers) == ["gpu-b"]
        [problem] = view.unreadable
        assert problem.startswith('GPUNode "gpu-a" cannot be read')

    play(scene, (GPU_NODES, odd), (GPU_NODES, gpu_node(soft())))


def test_pods_that_ask_for_gpus_are_kept() -> None:
    """With the annotations that pages read, and no others."""

    async def scene(server: ApiServer, cluster: LiveCluster) -> None:
        pods = cluster.pods()
        assert [(pod.namespace, pod.metadata.name) for pod in pods] == [
            ("a", "one"),
            ("b", "one-b"),
        ]
        assert pods[0].annotations == {"vgpu-admission.io/mode": "hami-core"}
        assert cluster.pods() is pods
        server.objects.delete(parsed("/api/v1/namespaces/a/pods/one"))
        await until(lambda: len(cluster.pods()) == 1)

    play(
        scene,
        ("/api/v1/namespaces/b/pods", asking("one-b", limits=VGPU, namespace="b")),
        ("/api/v1/namespaces/a/pods", asking("one", limits=VGPU, namespace="a")),
        ("/api/v1/namespaces/a/pods", asking("none", limits={"cpu": "1"}, namespace="a")),
        ("/api/v1/namespaces/a/pods", asking("fpga", limits={"x.io/fpga": "1"}, namespace="a")),
    )


def test_what_pods_ask_for_follows_the_configuration() -> None:
    """A name that a site gives to GPUs counts once the configuration says so."""
    renamed = asking("renamed", limits={"example.com/vgpu": "1"}, namespace="a")
    devices = {
        "metadata": {"name": "volcano-vgpu-device-config"},
        "data": {"device-config.yaml": "nvidia:\n  resourceCountName: example.com/vgpu\n"},
    }

    async def scene(server: ApiServer, cluster: LiveCluster) -> None:
        assert cluster.pods() == ()
        server.objects.create(parsed(KUBE_SYSTEM), devices)
        await until(lambda: [pod.metadata.name for pod in cluster.pods()] == ["renamed"])

    play(scene, ("/api/v1/namespaces/a/pods", renamed))


def test_namespaces_and_the_authority_of_clients_are_followed() -> None:
    """A ConfigMap that is gone means that no certificate is believed."""
    namespace, name, key = CLIENT_CA

    async def scene(server: ApiServer, cluster: LiveCluster) -> None:
        assert cluster.namespaces() == frozenset({"a", "b"})
        assert cluster.client_ca == "pem"
        server.objects.delete(parsed(f"{NAMESPACES}/b"))
        server.objects.delete(parsed(f"/api/v1/namespaces/{namespace}/configmaps/{name}"))
        await until(lambda: cluster.namespaces() == frozenset("a") and not cluster.client_ca)

    play(
        scene,
        (NAMESPACES, {"metadata": {"name": "a"}}),
        (NAMESPACES, {"metadata": {"name": "b"}}),
        (KUBE_SYSTEM, {"metadata": {"name": name}, "data": {key: "pem"}}),
    )


STATUSES: list[Json] = [
    {},
    {"phase": "Pending"},
    {"phase": "Pending", "conditions": [{"type": "PodScheduled"}]},
    {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]},
    {"phase": "Failed", "reason": "Evicted", "message": "too much"},
    {
        "phase": "Pending",
        "containerStatuses": [
            {"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "x"}}}
        ],
    },
]


@pytest.mark.parametrize("status", STATUSES, ids=range(len(STATUSES)))
def test_a_pod_that_is_kept_says_the_same(status: Json) -> None:
    """Its request, its state, and what is in its way."""
    whole = pod_of({**asking("one", limits=VGPU), "status": status})
    kept = slim(whole)

    assert request_of(kept, VOCABULARIES) == request_of(whole, VOCABULARIES)
    assert state_of(kept, promised=False) == state_of(whole, promised=False)
    assert kept.status.troubles == whole.status.troubles
    assert kept.status.is_seen_by_scheduler == whole.status.is_seen_by_scheduler
    assert (kept.status.reason, kept.over) == (whole.status.reason, whole.over)
    assert kept.metadata.uid == whole.metadata.uid
    assert slim(whole).spec.containers is kept.spec.containers


def test_the_node_of_a_pod_is_known_once_it_is_bound() -> None:
    """Nothing is said of a pod that is not there, whatever its uid."""
    bound = asking("bound", limits=VGPU)
    bound["spec"]["nodeName"] = "gpu-b"

    async def scene(_server: ApiServer, cluster: LiveCluster) -> None:
        uids = {pod.metadata.name: pod.metadata.uid for pod in cluster.pods()}
        assert cluster.node_of(uids["bound"]) == "gpu-b"
        assert [cluster.node_of(uid) for uid in (uids["free"], "unknown", "")] == [""] * 3

    path = "/api/v1/namespaces/team/pods"
    play(scene, (path, bound), (path, asking("free", limits=VGPU)))


def test_what_many_pods_say_is_kept_once() -> None:
    """Replicas have equal annotations; a long one is a pod's own, and may be any tenant's."""

    def kept(value: str) -> str:
        document = asking("one", limits=VGPU)
        document["metadata"]["annotations"] = {"vgpu-admission.io/asked": value}
        return slim(pod_of(json.loads(json.dumps(document)))).annotations["vgpu-admission.io/asked"]

    assert kept("x" * LONGEST_SHARED) is kept("x" * LONGEST_SHARED)
    assert kept("x" * (LONGEST_SHARED + 1)) is not kept("x" * (LONGEST_SHARED + 1))


def test_nothing_of_a_ledger_is_kept_beside_its_report() -> None:
    """A console has thousands, and hardly ever reads one again."""
    document = gpu_node(hard())
    name = document["metadata"]["name"]
    assert not isinstance(node_report(document), str)
    assert name not in decode._statuses  # noqa: SLF001 -- nothing else tells
    assert "cannot be read" in str(node_report({"metadata": {"name": name}, "status": 7}))
    assert name not in decode._statuses  # noqa: SLF001 -- likewise
