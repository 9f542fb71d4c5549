"""Another device plugin on the node: ours keeps off, and takes over without harm to its tenants."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.builders.pods import MEMORY, NUMBER, container, pod
from tests.cluster.api import wait_for
from tests.cluster.image.archive import PROBE
from tests.cluster.kubelet import Node
from tests.cluster.node_agent import SERVES_WITHIN, gpus_on
from tests.cluster.node_pods import LOOK, STAY, inside, pod_of, running
from tests.cluster.node_site import node_site
from tests.cluster.site import MANIFESTS
from tests.cluster.volcano import http_get

pytestmark = pytest.mark.node


@pytest.fixture
def their_node(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    """Yield a node of this test's own: kubelet remembers a plugin's resources for five minutes."""
    with node_site(programs, tmp_path_factory.mktemp("theirs")) as found:
        yield found


@pytest.mark.parametrize(
    "resources",
    [pytest.param((NUMBER, MEMORY), id="slots-and-memory"), pytest.param((NUMBER,), id="slots")],
)
def test_a_plugin_of_others_is_replaced(their_node: Node, resources: tuple[str, ...]) -> None:
    """Ours serves nothing beside another; when that is gone it takes over, and tenants run on."""
    site, host = their_node.site, their_node.host
    found = gpus_on(their_node)
    other = host.process(
        "other",
        [sys.executable, "-m", "tests.cluster.other_plugin", found.uuids[0], *resources],
        PYTHONPATH=str(MANIFESTS.parent),
    )
    other.start(lambda: their_node.allocatable(resources[-1]) == "10", within=SERVES_WITHIN)
    team = site.namespace({})
    theirs = container(limits={NUMBER: 1}, image=PROBE, command=["/probe", *LOOK, *STAY])
    site.create(team, pod(theirs))
    tenant = running(site, team)
    assert inside(their_node, tenant).env["NVIDIA_VISIBLE_DEVICES"] == found.uuids[0]

    found.agent.start(lambda: bool(http_get(found.port, "/healthz")), within=SERVES_WITHIN)
    wait_for(lambda: "competing device plugin" in found.agent.tail(), within=SERVES_WITHIN)
    assert their_node.allocatable(NUMBER) == "10"
    assert not http_get(found.port, "/readyz")
    other.stop()
    found.wait_until_serving()

    (status,) = pod_of(site, team)["status"]["containerStatuses"]
    assert status["restartCount"] == 0
    assert status["containerID"] == tenant["status"]["containerStatuses"][0]["containerID"]
