"""What operators do to a node that serves tenants, and what the tenants notice of it: nothing."""

import os
import time
from pathlib import Path

import pytest

from tests.builders.pods import CORES, MEMORY, NUMBER
from tests.cluster.api import wait_for
from tests.cluster.kubelet import NODES
from tests.cluster.node_agent import SERVES_WITHIN, GpuNode
from tests.cluster.node_pods import (
    RUN_WITHIN,
    container_id,
    device_of,
    empty,
    hard,
    inside,
    phase,
    pod_of,
    running,
    soft,
    undisturbed,
)

pytestmark = pytest.mark.node


def test_an_upgrade_under_tenants(gpu_node: GpuNode, team: str, tenants: dict[str, str]) -> None:
    """While one agent goes and the next comes, tenants run on and their promises stay held."""
    gpu_node.agent.stop()
    undisturbed(gpu_node, team, tenants)
    gpu_node.start()

    undisturbed(gpu_node, team, tenants)
    gpu_node.site.create(team, hard(name="after"))
    after = running(gpu_node.site, team, "after")
    assert device_of(gpu_node, after) not in tenants.values()


def test_pods_bound_while_the_kubelet_is_away(gpu_node: GpuNode, team: str) -> None:
    """A kubelet that starts with pods to admit is told of our slots before it admits them.

    It hangs at first: of one that has ended, the agent knows, and its node takes no pod.
    """
    gpu_node.node.kubelet.pause()
    gpu_node.site.create(team, soft())
    wait_for(lambda: pod_of(gpu_node.site, team)["spec"].get("nodeName"), within=RUN_WITHIN)
    gpu_node.node.kubelet.kill()
    gpu_node.node.start()

    assert device_of(gpu_node, running(gpu_node.site, team))


def files(found: GpuNode) -> list[Path]:
    """Return all files of ours on a node's host, whatever is being removed meanwhile."""
    places = ("usr/local/vgpu", "var/lib/vgpu-admission", "run/cdi")
    walks = (os.walk(found.node.host.folder / place) for place in places)
    return [Path(folder, name) for walk in walks for folder, _, names in walk for name in names]


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


def label(found: GpuNode, value: str | None) -> None:
    """Set the label of the DaemonSet on the Node, or remove it."""
    change = {"metadata": {"labels": {"vgpu-admission.io/node": value}}}
    found.site.api.patch(f"{NODES}/{found.node.name}", change)


def test_tenants_outlive_an_agent_whose_node_lost_its_label(
    gpu_node: GpuNode, team: str, tenants: dict[str, str]
) -> None:
    """Also a kubelet that starts anew and admits them once more, without plugin and capacity."""
    containers = {name: container_id(pod_of(gpu_node.site, team, name)) for name in tenants}
    label(gpu_node, "enabled")
    gpu_node.agent.stop()
    gpu_node.start()  # it has seen the label
    label(gpu_node, None)
    gpu_node.agent.stop()

    node = gpu_node.site.api.get(f"{NODES}/{gpu_node.node.name}")
    assert "vgpu-admission.io/agent" not in node["metadata"]["labels"]
    assert MEMORY not in node["status"]["capacity"]
    assert files(gpu_node)
    gpu_node.node.kubelet.stop()
    gpu_node.node.start()
    wait_for(lambda: gpu_node.node.allocatable(NUMBER) in {"", "0"}, within=RUN_WITHIN)
    time.sleep(15)  # within that time kubelet has judged and reported every pod
    for name, container in containers.items():
        assert phase(pod_of(gpu_node.site, team, name)) == "Running"
        assert container_id(pod_of(gpu_node.site, team, name)) == container

    gpu_node.start()  # installed again, it accounts for them
    undisturbed(gpu_node, team, tenants)


def test_an_uninstalled_agent_leaves_nothing(gpu_node: GpuNode, team: str) -> None:
    """Capacities are gone from the Node and files from the host; installed again, it serves.

    Instances are left to the operator, who removes them.
    """
    gpu_node.site.create(team, soft())
    inside(gpu_node.node, running(gpu_node.site, team))
    gpu_node.site.api.delete(f"/api/v1/namespaces/{team}/pods/p", {"gracePeriodSeconds": 1})
    empty(gpu_node)
    assert files(gpu_node)

    uninstall(gpu_node)

    node = gpu_node.site.api.get(f"{NODES}/{gpu_node.node.name}")
    assert "vgpu-admission.io/agent" not in node["metadata"]["labels"]
    assert not files(gpu_node)
    gpu_node.machine.clear()
    gpu_node.start()
    gpu_node.site.create(team, soft(name="again"))
    running(gpu_node.site, team, "again")
