"""The pods of Volcano's guides as they are: its scheduler, our hooks, real nodes of ours."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.builders.pods import CORES, MEMORY, MODE, NUMBER, container
from tests.cluster.api import Json, wait_for
from tests.cluster.node_agent import GpuNode, served
from tests.cluster.node_pods import device_of, grants_of, hard, running, soft, team_of
from tests.cluster.node_site import IMAGES, node_of
from tests.cluster.volcano_site import SERVED_WITHIN, volcano_site

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def nodes(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, GpuNode]]:
    """Yield a node in each mode by name, which Volcano's scheduler serves, and nobody else.

    It takes all GPUs of a node to be in one mode.
    """
    folder = tmp_path_factory.mktemp("volcano-nodes")
    (folder / "plane").mkdir()
    with contextlib.ExitStack() as stack:
        rig = stack.enter_context(volcano_site(programs, folder / "plane", real=True))
        found = {}
        for name, gpus in (("soft", (False, False)), ("hard", (True, True))):
            node = stack.enter_context(node_of(rig.site, programs, folder / name, images=IMAGES))
            found[name] = stack.enter_context(served(node, gpus))
            wait_for(lambda name=name: rig.register(name), within=SERVED_WITHIN)  # type: ignore[misc]
        yield found


@pytest.fixture
def team(nodes: Mapping[str, GpuNode]) -> Iterator[str]:
    """Yield a namespace whose pods are gone when the test is over."""
    with team_of(nodes["soft"]) as name:
        yield name


# How a pod for the node of that name is written.
WRITE: Mapping[str, Callable[..., Json]] = {"soft": soft, "hard": hard}
# Names, annotations and limits of the guides.
GUIDES: Mapping[str, tuple[dict[str, str], dict[str, object]]] = {
    "hami-pod": ({MODE: "hami-core"}, {NUMBER: 1, CORES: 50, MEMORY: 3000}),
    "mig-pod": ({MODE: "mig"}, {NUMBER: 1, MEMORY: 3000}),
    "gpu-pod": ({MODE: "hami-core"}, {NUMBER: 1, MEMORY: 1000, CORES: 10}),
    "gpu-pod1": ({}, {NUMBER: 2, MEMORY: 3000, CORES: 50}),
}


@pytest.mark.parametrize("name", GUIDES)
def test_a_pod_of_the_guides_runs(nodes: Mapping[str, GpuNode], team: str, name: str) -> None:
    """It is bound by vc-scheduler, and its containers run with devices of its own promise."""
    annotations, limits = GUIDES[name]
    image = "nvidia/cuda:9.0-devel"
    one = container("cuda-container", limits, image=image, command=["sleep"], args=["100000"])
    metadata = {"name": name, "annotations": annotations}
    spec = {"schedulerName": "volcano", "containers": [one]}
    site = nodes["soft"].site
    site.create(team, {"metadata": metadata, "spec": spec})

    found = running(site, team, name)

    grants = grants_of(nodes[found["spec"]["nodeName"]], found, "cuda-container")
    assert len(grants) == limits[NUMBER]


@pytest.mark.parametrize("mode", WRITE)
def test_what_a_container_sees(nodes: Mapping[str, GpuNode], team: str, mode: str) -> None:
    """It is what the ledger says, whichever device vc-scheduler had in mind."""
    there = nodes[mode]
    there.site.create(team, WRITE[mode](schedulerName="volcano"))

    assert device_of(there, running(there.site, team))
