"""What operators do to a node that serves tenants, and what the tenants notice of it: nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.api import wait_for
from tests.cluster.kubelet import NODES, pods_of
from tests.cluster.node_agent import SERVES_WITHIN, GpuNode
from tests.cluster.node_pods import (
    RUN_WITHIN,
    empty,
    grants_of,
    hard,
    inside,
    phase,
    pod_of,
    running,
    soft,
    team_of,
)
from tests.pods import CORES, MEMORY, NUMBER

pytestmark = pytest.mark.node

VISIBLE = "NVIDIA_VISIBLE_DEVICES"


@pytest.fixture
def team(gpu_node: GpuNode) -> Iterator[str]:
    """Yield a namespace whose pods are gone when the test is over."""
    with team_of(gpu_node) as name:
        yield name


@pytest.fixture
def tenants(gpu_node: GpuNode, team: str) -> dict[str, str]:
    """Return a running pod of each mode, by its name what it sees."""
    gpu_node.site.create(team, soft(name="soft"))
    gpu_node.site.create(team, hard(name="hard"))
    return {
        name: inside(gpu_node.node, running(gpu_node.site, team, name)).env[VISIBLE]
        for name in ("soft", "hard")
    }


def first_life(found: GpuNode, team: str, name: str) -> bool:
    pod = pods_of(found.site, team)[name]
    (status,) = pod["status"]["containerStatuses"]
    return phase(pod) == "Running" and status["restartCount"] == 0


def test_an_upgrade_under_tenants(gpu_node: GpuNode, team: str, tenants: dict[str, str]) -> None:
    """While one agent goes and the next comes, tenants run on and their promises stay held."""
    held = {pods_of(gpu_node.site, team)[name]["metadata"]["uid"] for name in tenants}

    gpu_node.agent.stop()
    assert held <= gpu_node.ledger().held
    assert all(first_life(gpu_node, team, name) for name in tenants)
    gpu_node.start()

    assert held <= gpu_node.ledger().held
    assert all(first_life(gpu_node, team, name) for name in tenants)
    gpu_node.site.create(team, hard(name="after"))
    after = running(gpu_node.site, team, "after")
    assert inside(gpu_node.node, after).env[VISIBLE] not in tenants.values()


def test_a_control_plane_that_is_away(
    gpu_node: GpuNode, team: str, tenants: dict[str, str]
) -> None:
    """Without our webhook nothing new is bound, and nothing that runs or restarts is disturbed."""
    gpu_node.site.stop()
    try:
        gpu_node.agent.stop()
        gpu_node.start()
        gpu_node.node.kubelet.stop()
        gpu_node.node.start()
        gpu_node.wait_until_serving()
        assert all(first_life(gpu_node, team, name) for name in tenants)
    finally:
        for replica in gpu_node.site.replicas:
            replica.start()

    gpu_node.site.create(team, soft(name="after"))
    running(gpu_node.site, team, "after")


def test_pods_bound_while_the_kubelet_is_away(gpu_node: GpuNode, team: str) -> None:
    """A kubelet that starts with pods to admit is told of our slots before it admits them."""
    gpu_node.node.kubelet.stop()
    gpu_node.site.create(team, soft())
    wait_for(lambda: pod_of(gpu_node.site, team)["spec"].get("nodeName"), within=RUN_WITHIN)
    gpu_node.node.start()

    found = running(gpu_node.site, team)

    (grant,) = grants_of(gpu_node, found)
    assert inside(gpu_node.node, found).env[VISIBLE] == grant.gpu


def files(found: GpuNode) -> list[Path]:
    """Return all files of ours on a node's host."""
    places = ("usr/local/vgpu", "var/lib/vgpu-admission", "run/cdi")
    folders = (found.node.host.folder / place for place in places)
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def uninstall(found: GpuNode) -> None:
    """Do what the documentation says, on a node without tenants."""
    found.agent.stop()
    withdrawal = found.program("withdrawal", "--withdraw")
    withdrawal.start(lambda: not files(found), within=SERVES_WITHIN)
    withdrawal.stop()

    def capacities() -> set[str]:
        capacity = found.node.status()["capacity"]
        return {name for name in capacity if name in {MEMORY, CORES}}

    wait_for(lambda: not capacities(), within=RUN_WITHIN)
    wait_for(lambda: found.node.allocatable(NUMBER) in {"", "0"}, within=RUN_WITHIN)


def test_an_uninstalled_agent_leaves_nothing(gpu_node: GpuNode, team: str) -> None:
    """Capacities are gone from the Node and files from the host; installed again, it serves."""
    gpu_node.site.create(team, soft())
    inside(gpu_node.node, running(gpu_node.site, team))
    gpu_node.site.api.delete(f"/api/v1/namespaces/{team}/pods/p", {"gracePeriodSeconds": 1})
    empty(gpu_node)
    assert files(gpu_node)

    uninstall(gpu_node)

    node = gpu_node.site.api.get(f"{NODES}/{gpu_node.node.name}")
    assert "vgpu-admission.io/agent" not in node["metadata"]["labels"]
    assert not files(gpu_node)
    gpu_node.start()
    gpu_node.site.create(team, soft(name="again"))
    running(gpu_node.site, team, "again")
