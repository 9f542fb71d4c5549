"""Groups of pods on supernodes: a real kube-scheduler keeps each inside one domain."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from manifests.generator.names import CONTROL_PLANE
from tests.builders.model import T4, nodes_of
from tests.builders.pods import CORES, NUMBER, container, pod
from tests.builders.supernodes import node_group
from tests.cluster.api import MERGE, Json, wait_for
from tests.cluster.extender import asked
from tests.cluster.installation import GPU_NODES, PODS, SYSTEM, Installation
from tests.cluster.scheduler import bound, refusals
from tests.cluster.site import Who
from tests.cluster.topo_master import TopoMaster, topo_master

WITHIN = 60.0  # seconds; the scheduler's back-off is ten at most
WHOLE = {NUMBER: 8, CORES: 100, "volcano.sh/vgpu-memory-percentage": 100}
SMALL = {"sb1": {"df1": ("n01", "n02"), "df2": ("n03", "n04")}}
LARGE = {"sb2": {"df3": ("n05", "n06", "n07", "n08"), "df4": ("n09", "n10", "n11", "n12")}}
NODES = [f"n{number:02}" for number in range(1, 13)]


@dataclass(frozen=True, slots=True)
class Supernodes:
    """An installation on supernodes of 4 and of 8 nodes with 8 GPUs each."""

    site: Installation
    topology: TopoMaster


@pytest.fixture(scope="module")
def supernodes(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Supernodes]:
    """Yield both, whose scheduler asks one of two replicas."""
    nodes = [nodes_of(8, T4, name=name) for name in NODES]
    folder = tmp_path_factory.mktemp("groups")
    with (
        topo_master(node_group({**SMALL, **LARGE})) as topology,
        asked(programs, folder, *nodes) as site,
    ):
        room = {NUMBER: "8", CORES: "800", "volcano.sh/vgpu-memory-percentage": "800"}
        for name in NODES:
            sums = {"status": {"capacity": room, "allocatable": room}}
            site.api.patch(f"/api/v1/nodes/{name}/status", sums)
        site.configure(f"nodeGroupURL: {topology.url}\n")
        wait_for(lambda: all(_has_read(replica.lines()) for replica in site.replicas))
        yield Supernodes(site, topology)


def _has_read(lines: list[Json]) -> bool:
    return any(line.get("event") == "tree of supernodes read" for line in lines)


def job(site: Installation, team: str, name: str, *, pods: int, size: int = 0) -> list[str]:
    """Create pods of one controller, of which the first names the size of its group."""
    path = f"/api/v1/namespaces/{team}/configmaps"
    owner = site.api.create(path, {"metadata": {"name": name}}).body["metadata"]
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": name,
        "uid": owner["uid"],
        "controller": True,
    }
    names = [f"{name}-master-0", *(f"{name}-worker-{number}" for number in range(pods - 1))]
    for number, one in enumerate(names):
        written = pod(container(limits=WHOLE))
        metadata = {**written["metadata"], "name": one, "ownerReferences": [reference]}
        if number == 0 and size:
            annotations = metadata.get("annotations", {})
            metadata["annotations"] = {**annotations, "metax-tech.com/gpu-group-size": str(size)}
        site.create(team, {**written, "metadata": metadata})
    return names


def alone(site: Installation, team: str, name: str, *, node: str = "") -> None:
    """Create a pod of no group, for one node if one is named."""
    written = pod(container(limits=WHOLE))
    if node:
        written["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    site.create(team, {**written, "metadata": {**written["metadata"], "name": name}})


def nodes_of_team(site: Installation, team: str) -> dict[str, str]:
    pods = site.api.get(PODS.format(team))["items"]
    return {
        one["metadata"]["name"]: one["spec"]["nodeName"]
        for one in pods
        if one["spec"].get("nodeName")
    }


def clear(site: Installation, *teams: str) -> None:
    """Delete all pods, and wait until the ledgers are empty."""
    for team in teams:
        for one in site.api.get(PODS.format(team))["items"]:
            path = f"{PODS.format(team)}/{one['metadata']['name']}?gracePeriodSeconds=0"
            site.api.request("DELETE", path)
    wait_for(lambda: not any(released(site, name) for name in NODES), within=WITHIN, every=0.5)


def released(site: Installation, name: str) -> list[Json]:
    """Say as the agent of a node that nothing runs there; return what its ledger still has."""
    found = site.api.get(f"{GPU_NODES}/{name}")
    change = {"status": {"observedGeneration": found["metadata"]["generation"], "held": []}}
    headers = {**Who(CONTROL_PLANE).headers, "Content-Type": MERGE}
    site.api.request("PATCH", f"{GPU_NODES}/{name}/status", change, headers=headers)
    entries: list[Json] = found["spec"]["entries"]
    return entries


def test_a_group_goes_to_one_domain_that_has_room_for_all_of_it(supernodes: Supernodes) -> None:
    """The smaller supernode has free nodes first by name, and too few of them."""
    site, team = supernodes.site, supernodes.site.namespace()
    names = job(site, team, "demo", pods=8, size=64)
    wait_for(lambda: len(bound(site, team)) == len(names), within=WITHIN)
    assert set(nodes_of_team(site, team).values()) == set(NODES[4:])
    clear(site, team)


def test_two_groups_at_once_each_get_a_domain(supernodes: Supernodes) -> None:
    """And pods of no group get what is left, never what a group still needs."""
    site, team = supernodes.site, supernodes.site.namespace()
    for name in ("a", "b"):
        job(site, team, name, pods=4, size=32)
    for number in range(4):
        alone(site, team, f"single-{number}")
    wait_for(lambda: len(bound(site, team)) == 12, within=WITHIN)
    where = nodes_of_team(site, team)
    flies = [set(NODES[0:4]), set(NODES[4:8]), set(NODES[8:12])]
    for name in ("a", "b"):
        domain = {node for one, node in where.items() if one.startswith(f"{name}-")}
        assert domain in flies, where
    clear(site, team)


def test_a_group_without_room_waits_and_says_how_much_it_lacks(supernodes: Supernodes) -> None:
    """It takes nothing meanwhile, and comes in as soon as a pod in its way is gone."""
    site, team = supernodes.site, supernodes.site.namespace()
    for node in ("n01", "n06"):
        site.api.patch(
            f"/api/v1/nodes/{node}", {"metadata": {"labels": {"kubernetes.io/hostname": node}}}
        )
        alone(site, team, f"on-{node}", node=node)
    wait_for(lambda: len(bound(site, team)) == 2, within=WITHIN)
    job(site, team, "demo", pods=8, size=64)

    def told() -> bool:
        return any("needs 64 GPUs for 8 pods" in text for text in refusals(site, team))

    wait_for(told, within=WITHIN)
    assert any("the most free and not reserved is 56, in" in one for one in refusals(site, team))
    assert len(bound(site, team)) == 2
    site.api.request("DELETE", f"{PODS.format(team)}/on-n06?gracePeriodSeconds=0")
    wait_for(lambda: not released(site, "n06"), within=WITHIN, every=0.5)
    wait_for(lambda: len(bound(site, team)) == 9, within=WITHIN)
    where = nodes_of_team(site, team)
    assert {node for one, node in where.items() if one.startswith("demo")} == set(NODES[4:])
    clear(site, team)


def test_without_a_tree_only_groups_wait(supernodes: Supernodes) -> None:
    """The settings get an Event that says why; a tree that was read before stays in force."""
    site, team = supernodes.site, supernodes.site.namespace()
    topology = supernodes.topology
    tree, topology.tree = topology.tree, None

    def told() -> bool:
        events = site.api.get(f"/apis/events.k8s.io/v1/namespaces/{SYSTEM}/events")["items"]
        return any("it answers 503" in event.get("note", "") for event in events)

    try:
        wait_for(told, within=WITHIN)
        job(site, team, "demo", pods=4, size=32)
        wait_for(lambda: len(bound(site, team)) == 4, within=WITHIN)
        site.configure(f"nodeGroupURL: {topology.url}?other\n")
        other = site.namespace()
        alone(site, other, "single")
        wait_for(lambda: bound(site, other), within=WITHIN)
        job(site, other, "waits", pods=2, size=16)

        def waits() -> bool:
            texts = refusals(site, other)
            return any("tree of dragonflies and switchboxes is not known" in one for one in texts)

        wait_for(waits, within=WITHIN)
        assert len(bound(site, other)) == 1
    finally:
        topology.tree = tree
        site.configure(f"nodeGroupURL: {topology.url}\n")
    wait_for(lambda: len(bound(site, other)) == 3, within=WITHIN)
    clear(site, team, other)
