"""gpushare's whole GPUs and shares on one node: the agent's capacity, a real kube-scheduler."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.catalog.vocabularies import GPUSHARE
from tests.builders.pods import GPU_MEM, MEMORY, MODE, NUMBER, container, pod
from tests.cluster.api import MERGE, Json, wait_for
from tests.cluster.installation import PODS, installation
from tests.cluster.scheduler import bound, kube_scheduler, refusals
from tests.cluster.test_simulated_agent import NODE, WITHIN, Node, served_by_kubelet

COUNT = str(GPUSHARE.count)
GPUS = 4  # in software, on the simulated node


@pytest.fixture(scope="module")
def node(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Yield a simulated node that a scheduler without any extender serves."""
    folder = tmp_path_factory.mktemp("linkage")
    (folder / "plane").mkdir()
    with (
        installation(programs, folder / "plane") as site,
        served_by_kubelet(folder / "kubelet"),
    ):
        site.api.create("/api/v1/nodes", {"metadata": {"name": "sim-1"}})
        site.api.patch(NODE, {"spec": {"taints": []}})
        room = {"cpu": "8", "memory": "32Gi", "pods": "110", NUMBER: "40"}  # as kubelet says
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        runtime = {"nodeInfo": {"containerRuntimeVersion": "containerd://2.2.1"}}
        status = {"capacity": room, "allocatable": room, "conditions": [ready], **runtime}
        site.api.request(
            "PATCH", f"{NODE}/status", {"status": status}, headers={"Content-Type": MERGE}
        )
        found = Node(site, folder)
        found.start(found.agent)
        wait_for(lambda: found.accounted and allocatable(found, COUNT) == GPUS, within=WITHIN)
        scheduler = kube_scheduler(programs["kube-scheduler"], site.plane)
        yield found
        scheduler.stop()
        found.agent.stop()


def allocatable(node: Node, name: str) -> int:
    return int(node.object["status"]["allocatable"].get(name, "0"))


def asking(name: str, limits: Json, **annotations: str) -> Json:
    written = pod(container(limits=limits), annotations=annotations)
    return written | {"metadata": {**written["metadata"], "name": name}}


def gpus_of(node: Node, team: str, name: str) -> set[str]:
    uid = node.site.api.get(f"{PODS.format(team)}/{name}")["metadata"]["uid"]
    entry = node.ledger.entry(uid)
    assert entry is not None
    return {grant.gpu for one in entry.containers for grant in one.grants}


def delete(node: Node, team: str, *names: str) -> None:
    for name in names:
        path = f"{PODS.format(team)}/{name}"
        node.site.api.request("DELETE", path, query={"gracePeriodSeconds": "0"})


def test_memory_takes_its_gpu_from_the_count_and_back(node: Node) -> None:
    """In both vocabularies; whole GPUs go to GPUs that nobody shares, and the rest waits."""
    team, spread = node.site.namespace(), {"vgpu-admission.io/gpu-policy": "spread"}
    node.site.create(team, asking("share", {GPU_MEM: 1}))
    wait_for(lambda: allocatable(node, COUNT) == GPUS - 1, within=WITHIN)
    words = {MODE: "hami-core", **spread}
    node.site.create(team, asking("volcano", {NUMBER: 1, MEMORY: 4000}, **words))
    wait_for(lambda: allocatable(node, COUNT) == GPUS - 2, within=WITHIN)
    node.site.create(team, asking("all", {COUNT: GPUS}))
    texts = wait_for(lambda: refusals(node.site, team), within=WITHIN)

    assert f"Insufficient {COUNT}" in texts[0]
    node.site.create(team, asking("two", {COUNT: 2}))
    wait_for(lambda: "two" in bound(node.site, team), within=WITHIN)
    shared = gpus_of(node, team, "share") | gpus_of(node, team, "volcano")
    assert (len(shared), len(gpus_of(node, team, "two"))) == (2, 2)
    assert not shared & gpus_of(node, team, "two")

    delete(node, team, "share", "volcano", "two")
    wait_for(lambda: "all" in bound(node.site, team), within=2 * WITHIN)
    assert allocatable(node, COUNT) == GPUS
    delete(node, team, "all")


def test_a_whole_gpu_takes_its_memory_along(node: Node) -> None:
    """By the cores of Volcano's vocabulary; the memory comes back with the GPU."""
    team = node.site.namespace()
    wait_for(lambda: allocatable(node, COUNT) == GPUS, within=WITHIN)
    whole = allocatable(node, GPU_MEM)
    limits = {NUMBER: 1, "volcano.sh/vgpu-cores": 100}
    node.site.create(team, asking("whole", limits, **{MODE: "hami-core"}))

    # kubelet hears of each resource by itself, and may write one before the other.
    wait_for(lambda: allocatable(node, GPU_MEM) == whole * (GPUS - 1) // GPUS, within=WITHIN)
    wait_for(lambda: allocatable(node, COUNT) == GPUS - 1, within=WITHIN)
    delete(node, team, "whole")
    wait_for(lambda: allocatable(node, GPU_MEM) == whole, within=WITHIN)


def test_a_node_is_labelled_by_the_model_of_its_gpus(node: Node) -> None:
    """A driver's words with dashes, for the selectors of pods."""
    assert (
        node.object["metadata"]["labels"]["vgpu-admission.io/gpu-model"] == "NVIDIA-A100-SXM4-40GB"
    )
