"""A node whose ``/usr`` is read-only: what containers have mounted is in another folder."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.cluster.api import wait_for
from tests.cluster.containerd import debian
from tests.cluster.node_agent import GPUS, GpuNode, served
from tests.cluster.node_pods import running, soft
from tests.cluster.node_site import node_site
from tests.cluster.widening import held_to_its_share

pytestmark = pytest.mark.node
HOST_ROOT = "/var/lib/vgpu"


@pytest.fixture(scope="module", params=["with CDI", "without CDI"])
def gpu_node(
    programs: Mapping[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[GpuNode]:
    """Yield a node whose agent and control plane were both given the other folder."""
    runtime = programs if request.param == "with CDI" else debian(programs)
    folder = tmp_path_factory.mktemp("host-root")
    with node_site(runtime, folder) as node:
        settings = f"hostRoot: {HOST_ROOT}"
        node.site.configure(settings)
        wait_for(lambda: all(replica.obeys(settings) for replica in node.site.replicas))
        with served(node, GPUS, f"--host-root={HOST_ROOT}") as found:
            yield found


@pytest.mark.parametrize("injection", ["webhook", "agent"])
def test_a_soft_slice_from_inside(gpu_node: GpuNode, team: str, injection: str) -> None:
    """Limits, library and region are there, whoever mounts them; nothing is in the usual folder."""
    settings = f"hostRoot: {HOST_ROOT}\ninjection: {injection}"
    gpu_node.site.configure(settings)
    wait_for(lambda: all(replica.obeys(settings) for replica in gpu_node.site.replicas))
    gpu_node.site.create(team, soft())

    found = running(gpu_node.site, team)
    held_to_its_share(gpu_node, found)

    folder = gpu_node.node.host.folder
    assert (folder / HOST_ROOT.lstrip("/") / "libvgpu.so").is_file()
    assert not (folder / "usr/local/vgpu").exists()
    paths = [
        volume["hostPath"]["path"]
        for volume in found["spec"].get("volumes", ())
        if "hostPath" in volume
    ]
    assert all(path.startswith(f"{HOST_ROOT}") for path in paths)
    assert bool(paths) is (injection == "webhook")
