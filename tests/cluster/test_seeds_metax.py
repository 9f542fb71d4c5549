"""The pods of MetaX's guide, unchanged: real API server and kube-scheduler, its nodes simulated."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.ledger.decode import decode
from allocator.metax.names import CARDS_KEY, GPU, MEMORY_LABEL, MODEL_LABEL, SGPU, VCORE, VMEMORY
from allocator.model.allocation import Grant
from tests.cluster.api import Json, wait_for
from tests.cluster.extender import apply, extender
from tests.cluster.guides import Reader
from tests.cluster.installation import GPU_NODES, PODS, Installation, installation
from tests.cluster.ports import free_port
from tests.cluster.scheduler import kube_scheduler

WITHIN = 60.0
SCHEDULERS = ("default-scheduler", "hami-scheduler")  # the names that the guide's pods ask for
# No node counts the first two among its resources, so only the extender can; docs/metax.md.
MANAGED = [
    {"name": VCORE, "ignoredByScheduler": True},
    {"name": VMEMORY, "ignoredByScheduler": True},
    {"name": SGPU, "ignoredByScheduler": False},
    {"name": GPU, "ignoredByScheduler": False},
]
CARD = {"model": "C500", "totalDevCount": 16, "totalCompute": 100, "totalVRam": 65536}


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield a native node and one whose GPUs are shared, as MetaX's operator announces them."""
    folder, port = tmp_path_factory.mktemp("metax-guide"), free_port()
    with installation(programs, folder, options=[f"--extender=127.0.0.1:{port}"]) as found:
        apply(found, "rbac.yaml")
        labels = {MODEL_LABEL: "MXC500", MEMORY_LABEL: "64GB"}
        add_node(found, "gpu-node", {GPU: "8"}, labels=labels)
        cards = [{**CARD, "uuid": f"GPU-{number}", "healthy": True} for number in range(2)]
        add_node(found, "sgpu-node", {SGPU: "32"}, annotations={CARDS_KEY: json.dumps(cards)})
        wait_for(lambda: all(gpus(found, name) for name in ("gpu-node", "sgpu-node")))
        configuration = extender(port, managedResources=MANAGED)
        scheduler = kube_scheduler(
            programs["kube-scheduler"],
            found.plane,
            extenders=[configuration],
            profiles=[{"schedulerName": name} for name in SCHEDULERS],
        )
        yield found
        scheduler.stop()


def add_node(
    site: Installation, name: str, offered: Mapping[str, str], **metadata: Mapping[str, str]
) -> None:
    site.api.create("/api/v1/nodes", {"metadata": {"name": name, **metadata}})
    site.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": []}})
    room = {"cpu": "8", "memory": "32Gi", "pods": "110", **offered}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    site.api.patch(f"/api/v1/nodes/{name}/status", {"status": status})


def gpus(site: Installation, name: str) -> int:
    return len(decode(site.api.get(f"{GPU_NODES}/{name}")).node.gpus)


def bound(site: Installation, team: str) -> tuple[Json, tuple[Grant, ...]]:
    """Return the sample pod of a namespace once it has a node, and what it was promised."""
    path = f"{PODS.format(team)}/sample-pod"
    wait_for(lambda: site.api.get(path)["spec"].get("nodeName"), within=WITHIN)
    pod: Json = site.api.get(path)
    entries = decode(site.api.get(f"{GPU_NODES}/{pod['spec']['nodeName']}")).entries
    (entry,) = (one for one in entries if one.uid == pod["metadata"]["uid"])
    return pod, entry.containers[0].grants


def test_the_pod_with_two_gpus_runs(site: Installation, programs: Mapping[str, Path]) -> None:
    """On the native node, with two whole GPUs of its own."""
    team = site.namespace()
    Reader(programs["kubectl"], site).create("metax-pod.yaml", team)

    pod, grants = bound(site, team)

    assert pod["spec"]["nodeName"] == "gpu-node"
    assert [(grant.mode, grant.memory, grant.cores) for grant in grants] == [
        ("native", 65536, 100)
    ] * 2
    assert len({grant.gpu for grant in grants}) == 2


def test_the_pod_with_a_share_runs(site: Installation, programs: Mapping[str, Path]) -> None:
    """60 percent and 4 GiB of one GPU, in the words that MetaX's device plugin reads."""
    team = site.namespace()
    Reader(programs["kubectl"], site).create("metax-shared-pod.yaml", team)

    pod, (grant,) = bound(site, team)

    assert pod["spec"]["nodeName"] == "sgpu-node"
    assert (grant.mode, grant.memory, grant.cores) == ("sgpu", 4096, 60)
    told = json.loads(pod["metadata"]["annotations"]["metax-tech.com/gpu-devices-allocated"])
    assert grant.gpu in json.dumps(told)


def test_the_node_modes_of_the_guide_are_obeyed(
    site: Installation, programs: Mapping[str, Path]
) -> None:
    """Its node is closed as long as it gives out whole GPUs, and open once it shares them."""
    site.api.create("/api/v1/namespaces", {"metadata": {"name": "metax-operator"}})
    add_node(site, "sample-node1", {GPU: "8"}, labels={MODEL_LABEL: "MXC500", MEMORY_LABEL: "64GB"})
    wait_for(lambda: gpus(site, "sample-node1") == 8, within=WITHIN)
    path = f"{GPU_NODES}/sample-node1"

    Reader(programs["kubectl"], site).create("metax-device-config.yaml")

    why = wait_for(lambda: site.api.get(path)["status"].get("closed"), within=WITHIN)
    assert "sets its mode to sgpu, but it still offers metax-tech.com/gpu" in why
    card = {**CARD, "uuid": "GPU-9", "healthy": True}
    annotations = {CARDS_KEY: json.dumps([card])}
    site.api.patch("/api/v1/nodes/sample-node1", {"metadata": {"annotations": annotations}})
    offered = {"cpu": "8", "memory": "32Gi", "pods": "110", GPU: "0", SGPU: "16"}
    status = {"status": {"capacity": offered, "allocatable": offered}}
    site.api.patch("/api/v1/nodes/sample-node1/status", status)
    wait_for(lambda: not site.api.get(path)["status"].get("closed"), within=WITHIN)
    assert gpus(site, "sample-node1") == 1
    others = site.api.get(f"{GPU_NODES}/sgpu-node")["status"]
    assert "sets its mode to native" in others["closed"]
    site.api.delete("/api/v1/namespaces/metax-operator/configmaps/metax-device-config")
    wait_for(lambda: gpus(site, "sgpu-node") == 2, within=WITHIN)
