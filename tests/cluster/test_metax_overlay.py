"""The two MetaX nodes of the overlay ``simulated``, each on a kubelet of its own."""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from agent.metax.plugin_server import VISIBLE
from allocator.metax.names import GPU, SGPU, VCORE, VMEMORY
from tests.builders.pods import pod
from tests.cluster.api import Json, wait_for
from tests.cluster.extender import add_extender, apply, extender
from tests.cluster.installation import Installation, installation
from tests.cluster.kubelet import Node
from tests.cluster.node_agent import gpus_on
from tests.cluster.node_pods import inside, looking, running
from tests.cluster.node_site import node_of
from tests.cluster.scheduler import kube_scheduler
from tests.cluster.site import MANIFESTS
from tests.cluster.test_metax_kubelet import WITHIN, allow_simulation, gpus, named, promised
from tests.cluster.volcano import http_get

pytestmark = pytest.mark.node

FLEET = MANIFESTS / "components" / "simulated" / "fleet.yaml"


@dataclass(frozen=True, slots=True)
class Pair:
    """The cluster and its nodes: one gives GPUs out in shares, the other whole."""

    site: Installation
    shared: Node
    whole: Node


@pytest.fixture(scope="module")
def pair(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Yield both nodes under the names of the overlay; kube-scheduler asks as the docs say."""
    folder = tmp_path_factory.mktemp("overlay")
    overlay = MANIFESTS / "overlays" / "kube-scheduler" / "configuration.yaml"
    (written,) = yaml.safe_load(overlay.read_text())["extenders"]
    with installation(programs, folder) as site, contextlib.ExitStack() as stack:
        allow_simulation(site, programs["kubectl"])
        apply(site, "rbac.yaml")
        asked = extender(add_extender(site)[1], managedResources=written["managedResources"])
        scheduler = kube_scheduler(programs["kube-scheduler"], site.plane, extenders=[asked])
        stack.callback(scheduler.stop)
        nodes = [
            stack.enter_context(node_of(site, programs, folder / name))
            for name in ("metax-shared", "metax-whole")
        ]
        for node in nodes:
            stack.enter_context(simulating(node))
        for node in nodes:
            wait_for(lambda node=node: len(gpus(node)) == 8, within=WITHIN)  # type: ignore[misc]
        yield Pair(site, *nodes)


@contextlib.contextmanager
def simulating(node: Node) -> Iterator[None]:
    """Run agent and relay on *node* as the overlay does, until the agent says that it is ready."""
    sockets = f"--relay-dir={node.host.folder / 'relay'}"
    options = ("--driver=simulated", f"--fleet={FLEET}", sockets)
    found = replace(gpus_on(node, ()), options=options)
    command: list[str | Path] = [
        *(sys.executable, MANIFESTS.parent / "vgpu.py", "relay", sockets),
        *(f"--node-name={node.name}", f"--kubeconfig={found.kubeconfig}"),
    ]
    relay = node.host.process("relay", command)
    relay.start((node.host.folder / "relay/kubelet.sock").exists, within=WITHIN)
    found.agent.start(lambda: bool(http_get(found.port, "/readyz")), within=WITHIN)
    try:
        yield
    finally:
        found.agent.stop()
        relay.stop()


def started(pair: Pair, team: str, name: str, *, limits: Json) -> Json:
    """Create a pod, and return it once it runs."""
    pair.site.create(team, named(name, pod(looking(limits=limits))))
    return running(pair.site, team, name)


def test_pods_find_the_node_of_their_kind(pair: Pair) -> None:
    """From creation to the start with nobody's help, also those that no node has vcore for."""
    team = pair.site.namespace()

    share = started(pair, team, "share", limits={SGPU: 2, VCORE: 60, VMEMORY: 4})
    whole = started(pair, team, "whole", limits={GPU: 4})

    for node in (pair.shared, pair.whole):  # the relay has no agent to pass calls to
        assert {n for n in node.status()["capacity"] if "/" in n} <= {GPU, SGPU}
    assert [found["spec"]["nodeName"] for found in (share, whole)] == [
        "metax-shared",
        "metax-whole",
    ]
    ((given,),) = promised(pair.shared).values()
    assert inside(pair.shared, share).env[VISIBLE] == ",".join(given)
    assert len(inside(pair.whole, whole).env[VISIBLE].split(",")) == 4
