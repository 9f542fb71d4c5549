"""The same on Debian's containerd, without CDI: shares arrive by Allocate and annotations."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.cluster.containerd import debian
from tests.cluster.node_agent import GpuNode, served
from tests.cluster.node_pods import (
    CACHE,
    LIBRARY,
    PRELOAD,
    grants_of,
    hard,
    inside,
    running,
    soft,
    team_of,
)
from tests.cluster.node_site import node_site

pytestmark = pytest.mark.node

VISIBLE = "NVIDIA_VISIBLE_DEVICES"


@pytest.fixture(scope="module")
def old_node(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GpuNode]:
    """Yield a node with GPUs whose runtime is the distribution's."""
    folder = tmp_path_factory.mktemp("old")
    with node_site(debian(programs), folder) as node, served(node) as found:
        yield found


@pytest.fixture
def team(old_node: GpuNode) -> Iterator[str]:
    """Yield a namespace whose pods are gone when the test is over."""
    with team_of(old_node) as name:
        yield name


def test_the_runtime_is_the_old_one(old_node: GpuNode) -> None:
    """The tests here mean what they say."""
    assert old_node.node.status()["nodeInfo"]["containerRuntimeVersion"].startswith(
        "containerd://1.6."
    )


def test_a_soft_slice_from_inside(old_node: GpuNode, team: str) -> None:
    """Limits, library and region are there as with CDI."""
    old_node.site.create(team, soft())

    found = running(old_node.site, team)
    seen = inside(old_node.node, found)

    (grant,) = grants_of(old_node, found)
    assert seen.env[VISIBLE] == grant.gpu
    assert seen.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
    assert seen.told(f"read {PRELOAD}:") == [LIBRARY]
    assert seen.told(f"write {PRELOAD}:") == ["Read-only file system"]
    ((size, magic),) = (line.split() for line in seen.told(f"bytes {CACHE}:"))
    assert int(size) > 1_000_000
    assert magic.startswith("4ef72f01")


def test_a_mig_instance_from_inside(old_node: GpuNode, team: str) -> None:
    """The instance is made after the Binding, and its UUID arrives with the first start."""
    old_node.site.create(team, hard())

    found = running(old_node.site, team)
    seen = inside(old_node.node, found)

    (grant,) = grants_of(old_node, found)
    assert grant.placed is not None
    assert old_node.instances()[seen.env[VISIBLE]] == (grant.gpu, grant.placed.start)
    assert seen.told(f"read {PRELOAD}:") == []  # nothing is loaded into it


def test_a_kubelet_restart(old_node: GpuNode, team: str) -> None:
    """Tenants run on, and pods start as before."""
    old_node.site.create(team, soft(name="before"))
    before = running(old_node.site, team, "before")

    old_node.node.kubelet.stop()
    old_node.node.start()
    old_node.wait_until_serving()
    old_node.site.create(team, hard(name="after"))

    running(old_node.site, team, "after")
    (status,) = running(old_node.site, team, "before")["status"]["containerStatuses"]
    assert status["restartCount"] == 0
    assert before["metadata"]["uid"] in old_node.ledger().held
