"""The same on Debian's containerd, without CDI: shares arrive by Allocate and annotations."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.cluster.api import wait_for
from tests.cluster.containerd import debian
from tests.cluster.node_agent import GpuNode, served
from tests.cluster.node_pods import (
    PRELOAD,
    RUN_WITHIN,
    ask_again,
    delete,
    device_of,
    hard,
    inside,
    pod_of,
    running,
    soft,
    undisturbed,
    waiting,
)
from tests.cluster.node_site import node_site
from tests.cluster.widening import by_config_map, by_variables, held_to_its_share

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def gpu_node(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GpuNode]:
    """Yield a node with GPUs whose runtime is the distribution's."""
    folder = tmp_path_factory.mktemp("old")
    with node_site(debian(programs), folder) as node, served(node) as found:
        yield found


def test_the_runtime_is_the_old_one(gpu_node: GpuNode) -> None:
    """The tests here mean what they say."""
    assert gpu_node.node.status()["nodeInfo"]["containerRuntimeVersion"].startswith(
        "containerd://1.6."
    )


def test_a_soft_slice_from_inside(gpu_node: GpuNode, team: str) -> None:
    """Limits, library and region are there as with CDI."""
    gpu_node.site.create(team, soft())

    held_to_its_share(gpu_node, running(gpu_node.site, team))


def test_what_a_config_map_brings_loses(gpu_node: GpuNode, team: str) -> None:
    """The pod's own variables, which admission wrote, beat those of envFrom."""
    gpu_node.site.create(team, by_config_map(gpu_node.site, team))

    held_to_its_share(gpu_node, running(gpu_node.site, team))


def test_a_pod_that_passed_the_webhook_by(gpu_node: GpuNode) -> None:
    """Nothing beats what its tenant wrote, so it does not start, and says why."""
    site = gpu_node.site
    team = site.unlabelled_namespace()
    site.create(team, by_variables())
    try:
        uid = pod_of(site, team)["metadata"]["uid"]
        wait_for(lambda: uid in gpu_node.promised(), within=RUN_WITHIN)
        ask_again(site, team)
        refusal = "was not admitted by vgpu-admission"
        wait_for(lambda: refusal in waiting(pod_of(site, team)), within=RUN_WITHIN)
    finally:
        delete(site, team, grace=0)


def test_a_mig_instance_from_inside(gpu_node: GpuNode, team: str) -> None:
    """The instance is made after the Binding, and its UUID arrives with the first start."""
    gpu_node.site.create(team, hard())

    found = running(gpu_node.site, team)
    seen = inside(gpu_node.node, found)

    assert device_of(gpu_node, found).startswith("MIG-")
    assert seen.told(f"read {PRELOAD}:") == []  # nothing is loaded into it


def test_a_kubelet_restart(gpu_node: GpuNode, team: str) -> None:
    """Tenants run on, and pods start as before."""
    gpu_node.site.create(team, soft(name="before"))
    running(gpu_node.site, team, "before")

    gpu_node.node.kubelet.stop()
    gpu_node.node.start()
    gpu_node.wait_until_serving()
    gpu_node.site.create(team, hard(name="after"))

    running(gpu_node.site, team, "after")
    undisturbed(gpu_node, team, ("before",))
