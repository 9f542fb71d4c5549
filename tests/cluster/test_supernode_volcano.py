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


def job(
    name: str,
    tasks: Mapping[str, int],
    *,
    size: int = 0,
    partition: Json | None = None,
    **spec: Json,
) -> Json:
    """Write a Volcano Job of whole nodes; its first task names the *size* of a group."""
    metadata = {"annotations": {"metax-tech.com/gpu-group-size": str(size)}} if size else {}
    split = {"partitionPolicy": partition} if partition else {}
    written: list[Json] = []
    for task, count in tasks.items():
        template = {"metadata": {} if written else metadata, "spec": whole()}
        written.append({"name": task, "replicas": count, "template": template, **split})
    body = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name}}
    return {**body, "spec": {"schedulerName": "volcano", "tasks": written, **spec}}


def sentences(supernodes: SupernodeRig, team: str) -> str:
    """Return what ``kubectl describe`` says about the objects of a namespace."""
    path = f"/apis/events.k8s.io/v1/namespaces/{team}/events"
    return "\n".join(
        f"{event['regarding']['kind']}: {event.get('note', '')}"
        for event in supernodes.site.api.get(path)["items"]
    )


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


def test_a_job_with_a_topology_of_its_own_waits_for_one_dragonfly(supernodes: SupernodeRig) -> None:
    """Its Job says where there is no room; it runs as soon as there is."""
    team, others = supernodes.site.namespace(), supernodes.site.namespace()
    wait_for(lambda: len(supernodes.hyper_nodes()) == 6, within=WITHIN)
    filled(supernodes, others, {"a1", "b1", "c1", "d1"})

    near = {"mode": "hard", "highestTierAllowed": 1}
    supernodes.rig.job(team, job("near", {"worker": 4}, networkTopology=near))

    text = "Job: PodGroup {}:near unschedulable, reason: 1/4 tasks in gang unschedulable"
    wait_for(lambda: text.format(team) in sentences(supernodes, team), within=WITHIN)
    assert "0/4 nodes are unavailable: 4 Insufficient metax-tech.com/gpu" in sentences(
        supernodes, team
    )
    assert not supernodes.nodes(team)
    supernodes.delete_pod(others, "fills-d1")
    nodes = supernodes.wait_for_nodes(team, "near-", 4, within=WITHIN)
    assert set(nodes.values()) == {"d1", "d2", "d3", "d4"}
    assert supernodes.pod_group(team)["spec"]["networkTopology"] == near
    supernodes.clear(team, others)


def test_a_group_that_fits_no_switchbox_waits(supernodes: SupernodeRig) -> None:
    """None of its pods is bound meanwhile, and the Job says which HyperNode lacks room."""
    team, others = supernodes.site.namespace(), supernodes.site.namespace()
    wait_for(lambda: len(supernodes.hyper_nodes()) == 6, within=WITHIN)
    filled(supernodes, others, {"a1", "c1"})

    supernodes.rig.job(team, job("demo", {"master": 1, "worker": 7}, size=64))

    told = "In hyperNode sb-f"
    wait_for(lambda: told in sentences(supernodes, team), within=WITHIN)
    assert not supernodes.nodes(team)
    supernodes.delete_pod(others, "fills-a1")
    nodes = supernodes.wait_for_nodes(team, "demo-", 8, within=WITHIN)
    assert set(nodes.values()) == FULL
    supernodes.clear(team, others)


def test_each_of_two_groups_gets_a_domain(supernodes: SupernodeRig) -> None:
    """Each has room in one switchbox only; the one with the master has pods of two tasks."""
    team, others = supernodes.site.namespace(), supernodes.site.namespace()
    wait_for(lambda: len(supernodes.hyper_nodes()) == 6, within=WITHIN)
    filled(supernodes, others, {"a1", "b1", "b2", "c1", "c2", "d1"})

    supernodes.rig.job(team, job("demo", {"master": 1, "worker": 7}, size=32))

    nodes = supernodes.wait_for_nodes(team, "demo-", 8, within=WITHIN)
    first = {"demo-master-0", "demo-worker-0", "demo-worker-1", "demo-worker-2"}
    for group in (first, nodes.keys() - first):
        where = {nodes[name] for name in group}
        assert where <= FREE or where <= FULL, nodes
    (policy,) = supernodes.pod_group(team)["spec"]["subGroupPolicy"]
    assert (policy["subGroupSize"], policy["networkTopology"]) == (4, TOPOLOGY)
    supernodes.clear(team, others)


def test_two_groups_that_need_every_node_get_one_switchbox_each(supernodes: SupernodeRig) -> None:
    """No bind is refused for lack of room: vc-scheduler knows the groups before it begins."""
    team = supernodes.site.namespace()

    supernodes.rig.job(team, job("all", {"master": 1, "worker": 15}, size=64))

    nodes = supernodes.wait_for_nodes(team, "all-", 16, within=WITHIN)
    first = {"all-master-0", *(f"all-worker-{number}" for number in range(7))}
    groups = [{nodes[name] for name in names} for names in (first, nodes.keys() - first)]
    assert sorted(map(sorted, groups)) == [sorted(FULL), sorted(FREE)]
    supernodes.clear(team)


def test_partitions_of_a_task_are_groups_without_refused_binds(supernodes: SupernodeRig) -> None:
    """Where each group is a partition, vc-scheduler places both at once."""
    team, others = supernodes.site.namespace(), supernodes.site.namespace()
    wait_for(lambda: len(supernodes.hyper_nodes()) == 6, within=WITHIN)
    filled(supernodes, others, {"a1", "c1"})
    partition = {
        "totalPartitions": 2,
        "partitionSize": 4,
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }

    supernodes.rig.job(team, job("parts", {"worker": 8}, size=32, partition=partition))

    nodes = supernodes.wait_for_nodes(team, "parts-", 8, within=WITHIN)
    groups = [{nodes[f"parts-worker-{n}"][0] for n in part} for part in (range(4), range(4, 8))]
    assert sorted(map(sorted, groups)) == [["b"], ["d"]]
    assert "denied" not in sentences(supernodes, team)
    supernodes.clear(team, others)
