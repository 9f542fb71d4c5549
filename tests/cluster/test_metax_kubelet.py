"""Pods with shares of MetaX's GPUs start on a real kubelet, each on its own GPU."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.catalog.hami_keys import LOCK_ANNOTATION
from allocator.ledger.decode import decode
from allocator.metax.names import SGPU, VCORE, VMEMORY
from tests.builders.pods import pod
from tests.cluster.api import ApiError, wait_for
from tests.cluster.installation import GPU_NODES, PODS, Installation
from tests.cluster.kubelet import NODES, Node
from tests.cluster.metax_plugin import VISIBLE
from tests.cluster.node_pods import inside, looking, running
from tests.cluster.node_site import node_site
from tests.cluster.site import MANIFESTS

pytestmark = pytest.mark.node

WITHIN = 30.0


@pytest.fixture(scope="module")
def metax_node(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    """Yield a node that a stand-in for MetaX's device plugin serves."""
    with node_site(programs, tmp_path_factory.mktemp("metax")) as found:
        plane = found.site.plane
        plugin = found.host.process(
            "metax-plugin",
            [
                *(sys.executable, "-m", "tests.cluster.metax_plugin"),
                *(found.name, plane.url, plane.ca_file),
            ],
            PYTHONPATH=str(MANIFESTS.parent),
            TOKEN=plane.token,
        )
        plugin.start(lambda: found.allocatable(SGPU) == "32", within=WITHIN)
        wait_for(lambda: knows(found), within=WITHIN)
        yield found
        plugin.stop()


def knows(node: Node) -> bool:
    """Say whether the GPUNode has the node's cards."""
    try:
        return len(decode(node.site.api.get(f"{GPU_NODES}/{node.name}")).node.gpus) == 2
    except ApiError:
        return False


def bound(site: Installation, team: str, name: str, *, node: str) -> str:
    """Post a Binding as a scheduler does; return why it is refused, if it is."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    try:
        site.api.create(f"{PODS.format(team)}/{name}/binding", body)
    except ApiError as error:
        return error.message
    return ""


def test_each_pod_starts_with_the_gpus_that_it_was_given(metax_node: Node) -> None:
    """Kubelet asks without naming a pod; the lock says which one it means."""
    site, team = metax_node.site, metax_node.site.namespace()
    limits = {SGPU: 1, VCORE: 60, VMEMORY: 4}
    for name in ("one", "two"):
        written = pod(looking(limits=limits), schedulerName="by-hand")
        site.create(team, {**written, "metadata": {**written["metadata"], "name": name}})

    for name in ("one", "two"):
        wait_for(lambda name=name: not bound(site, team, name, node=metax_node.name), within=WITHIN)  # type: ignore[misc]

    entries = {e.pod: e for e in decode(site.api.get(f"{GPU_NODES}/{metax_node.name}")).entries}
    promised = {name: e.containers[0].grants[0].gpu for name, e in entries.items()}
    seen = {name: inside(metax_node, running(site, team, name)).env for name in ("one", "two")}
    assert {name: env[VISIBLE] for name, env in seen.items()} == promised
    assert set(promised.values()) == {"GPU-a", "GPU-b"}  # 60 percent twice is more than one GPU
    assert {env["NVIDIA_VISIBLE_DEVICES"] for env in seen.values()} == {"void"}
    notes = site.api.get(f"{NODES}/{metax_node.name}")["metadata"]["annotations"]
    assert LOCK_ANNOTATION not in notes
