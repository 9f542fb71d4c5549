"""Supernodes under Volcano: real vc-scheduler and controllers; MetaX's nodes are simulated."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.builders.supernodes import node_group
from tests.cluster.api import Json, wait_for
from tests.cluster.guides import Reader
from tests.cluster.supernode_site import SupernodeRig, supernode_site

BOXES = {
    "sb-full": {"df-a": ("a1", "a2", "a3", "a4"), "df-b": ("b1", "b2", "b3", "b4")},
    "sb-free": {"df-c": ("c1", "c2", "c3", "c4"), "df-d": ("d1", "d2", "d3", "d4")},
}
FREE = {node for nodes in BOXES["sb-free"].values() for node in nodes}
FULL = {node for nodes in BOXES["sb-full"].values() for node in nodes}
WITHIN = 60.0
TOPOLOGY = {"mode": "hard", "highestTierAllowed": 2}


@pytest.fixture(scope="module")
def supernodes(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SupernodeRig]:
    """Yield a site with two supernodes of 8 nodes with 8 GPUs each."""
    with supernode_site(programs, tmp_path_factory.mktemp("supernodes"), BOXES) as found:
        yield found


def whole(node: str = "") -> Json:
    """Write a pod that asks for all GPUs of a node, of *node* if one is named."""
    container = {
        "name": "main",
        "image": "alpine:3.19",
        "resources": {"limits": {"metax-tech.com/gpu": 8}},
    }
    selector = {"nodeSelector": {"pool": node}} if node else {}
    return {"containers": [container], "restartPolicy": "Never", **selector}


def filled(supernodes: SupernodeRig, team: str, nodes: set[str]) -> None:
    """Fill *nodes* with pods of no group."""
    for node in sorted(nodes):
        metadata = {"name": f"fills-{node}"}
        spec = {**whole(node), "schedulerName": "volcano"}
        supernodes.site.create(
            team, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )
    supernodes.wait_for_nodes(team, "fills-", len(nodes), within=WITHIN)


def test_hyper_nodes_are_as_the_tree_has_them(supernodes: SupernodeRig) -> None:
    """Dragonflies hold nodes, switchboxes dragonflies; all follow a tree that changes."""
    wanted = {
        **{fly: (1, frozenset(nodes)) for box in BOXES.values() for fly, nodes in box.items()},
        **{box: (2, frozenset(flies)) for box, flies in BOXES.items()},
    }
    wait_for(lambda: supernodes.hyper_nodes() == wanted, within=WITHIN)
    tree = supernodes.topology.tree
    supernodes.topology.tree = node_group({**BOXES, "sb-full": {"df-a": ("a1", "a2")}})
    changed = {
        **{name: found for name, found in wanted.items() if name != "df-b"},
        "df-a": (1, frozenset({"a1", "a2"})),
        "sb-full": (2, frozenset({"df-a"})),
    }
    try:
        wait_for(lambda: supernodes.hyper_nodes() == changed, within=WITHIN)
    finally:
        supernodes.topology.tree = tree
    wait_for(lambda: supernodes.hyper_nodes() == wanted, within=WITHIN)


@pytest.mark.parametrize("filled_nodes", [FULL, {"a1"}, {"a1", "b4"}], ids=len)
def test_the_pytorch_job_of_the_guide_runs_on_the_free_supernode(
    supernodes: SupernodeRig, programs: Mapping[str, Path], filled_nodes: set[str]
) -> None:
    """Unchanged, beside a supernode that is full, or in which a single node is taken."""
    team, others = supernodes.site.namespace(), supernodes.site.namespace()
    wait_for(lambda: len(supernodes.hyper_nodes()) == 6, within=WITHIN)
    filled(supernodes, others, filled_nodes)

    Reader(programs["kubectl"], supernodes.site).create("metax-supernode-job.yaml", team)

    nodes = supernodes.wait_for_nodes(team, "pytorch-demo-", 8, within=WITHIN)
    assert set(nodes.values()) == FREE
    wait_for(lambda: supernodes.rig.jobs(team) == {"pytorch-demo": "Running"}, within=WITHIN)
    assert supernodes.pod_group(team)["spec"]["networkTopology"] == TOPOLOGY
    supernodes.clear(team, others)
