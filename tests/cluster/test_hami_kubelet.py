"""Pods in HAMi's words on a real kubelet: they start with the limits that they asked for.

One of our agents serves the node. A second plugin for ``nvidia.com/gpu`` is a stand-in of HAMi's or
NVIDIA's, which tells kubelet of it and gives every container the same GPU.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agent.region.decode import Region
from agent.region.safe_files import read
from allocator.catalog.injection import REGION_FILE, REGIONS_FOLDER
from tests.builders.pods import NUMBER, pod
from tests.cluster.api import Json, wait_for
from tests.cluster.hami_site import serve_hami
from tests.cluster.installation import Installation
from tests.cluster.kubelet import Node
from tests.cluster.node_agent import SERVES_WITHIN, GpuNode, gpus_on, log_lines, served
from tests.cluster.node_pods import (
    CACHE,
    LIBRARY,
    PRELOAD,
    delete,
    device_of,
    grants_of,
    inside,
    looking,
    pod_of,
    running,
    team_of,
    told,
    undisturbed,
)
from tests.cluster.node_site import node_site
from tests.cluster.process import Process
from tests.cluster.site import MANIFESTS
from tests.cluster.test_hami_pods import CORES, GPU, MEM, MODES, PERCENT, PRIORITY, SETTINGS
from tests.cluster.volcano import http_get

pytestmark = pytest.mark.node

SHARE = {GPU: 1, MEM: 3000, CORES: 30}
OFFERED = (GPU, MEM, PERCENT, CORES, PRIORITY)
MIB = 1 << 20
EVENT_WITHIN = 90.0  # seconds; a node is told of once it has been closed for 30
SOFT_ONLY = (False, False)  # two GPUs, neither in MIG mode


def serving_hami(site: Installation) -> None:
    """Turn the vocabulary on as docs/hami.md says."""
    serve_hami(site, SETTINGS)
    wait_for(lambda: site.first.obeys(SETTINGS))


@pytest.fixture(scope="module")
def hami_node(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GpuNode]:
    """Yield a node whose agent offers HAMi's resources."""
    with node_site(programs, tmp_path_factory.mktemp("hami-kubelet")) as node:
        serving_hami(node.site)
        with served(node) as found:
            wait_for(lambda: node.allocatable(GPU) not in {"", "0"}, within=SERVES_WITHIN)
            yield found


@pytest.fixture
def hami_team(hami_node: GpuNode) -> Iterator[str]:
    """Yield a namespace whose pods are gone when the test is over."""
    with team_of(hami_node) as name:
        yield name


def region_of(found: GpuNode, what: Json, name: str = "main") -> Region:
    """Return the shared region of a container, which the library reads its limits from."""
    owner = f"{what['metadata']['uid']}_{name}"
    folder = found.node.host.folder / "usr/local/vgpu" / REGIONS_FOLDER / owner
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        region = read(REGION_FILE, descriptor)
    finally:
        os.close(descriptor)
    assert isinstance(region, Region), region
    return region


def asking(*containers: Json, name: str = "p", **annotations: str) -> Json:
    """Return a pod that accepts slices in software alone."""
    written = pod(*containers, annotations={MODES: "hami-core", **annotations})
    return {**written, "metadata": {**written["metadata"], "name": name}}


def test_a_share_from_inside(hami_node: GpuNode, hami_team: str) -> None:
    """One GPU with 3000 MiB and 30 percent, in the variables and in the region."""
    hami_node.site.create(hami_team, asking(looking(limits=SHARE)))

    found = running(hami_node.site, hami_team)
    seen, region = inside(hami_node.node, found), region_of(hami_node, found)

    device = device_of(hami_node, found)
    assert seen.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
    assert seen.env["CUDA_DEVICE_SM_LIMIT_0"] == "30"
    assert seen.env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] == CACHE
    assert seen.told(f"read {PRELOAD}:") == [LIBRARY]
    assert (region.limits[0], region.cores[0]) == (3000 * MIB, 30)
    assert region.priority == 1
    (grant,) = grants_of(hami_node, found)
    assert (grant.gpu, grant.memory, grant.cores) == (device, 3000, 30)
    limits = found["spec"]["containers"][0]["resources"]["limits"]
    assert {key: limits[key] for key in (*SHARE, NUMBER)} == {
        GPU: "1", MEM: "3k", CORES: "30", NUMBER: "1",
    }  # fmt: skip


@pytest.mark.parametrize("percent", [1, 25, 50])
def test_a_percentage_is_of_the_gpu_that_is_found(
    hami_node: GpuNode, hami_team: str, percent: int
) -> None:
    """In whole MiB, rounded down, wherever the limit stands."""
    limits = {GPU: 1, PERCENT: percent, CORES: 10}
    hami_node.site.create(hami_team, asking(looking(limits=limits)))

    found = running(hami_node.site, hami_team)

    (grant,) = grants_of(hami_node, found)
    total = next(gpu.memory for gpu in hami_node.ledger().node.gpus if gpu.uuid == grant.gpu)
    memory = total * percent // 100
    assert grant.memory == memory
    assert inside(hami_node.node, found).env["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{memory}m"
    assert region_of(hami_node, found).limits[0] == memory * MIB


def test_a_priority_reaches_the_library(hami_node: GpuNode, hami_team: str) -> None:
    """0 goes first where the namespace allows it, and is refused where it does not."""
    urgent = asking(looking(limits={**SHARE, PRIORITY: 0}), name="urgent")
    assert "PriorityNotAllowed" in hami_node.site.refusal(hami_team, urgent)
    allowed = {"metadata": {"annotations": {"vgpu-admission.io/high-priority": "allow"}}}
    hami_node.site.api.patch(f"/api/v1/namespaces/{hami_team}", allowed)
    wait_for(lambda: not hami_node.site.refusal(hami_team, urgent))
    hami_node.site.create(hami_team, urgent)
    patient = asking(looking(limits={**SHARE, PRIORITY: 1}), name="patient")
    hami_node.site.create(hami_team, patient)

    for name, priority in (("urgent", "0"), ("patient", "1")):
        found = running(hami_node.site, hami_team, name)
        assert inside(hami_node.node, found).env["CUDA_TASK_PRIORITY"] == priority
        assert region_of(hami_node, found).priority == int(priority)


def test_two_containers_have_limits_of_their_own(hami_node: GpuNode, hami_team: str) -> None:
    """One names no number, and asks in percent; a third one asks for nothing and sees no GPU."""
    two = looking("two", {PERCENT: 10, CORES: 20})
    hami_node.site.create(hami_team, asking(looking("one", SHARE), two, looking("none")))

    found = running(hami_node.site, hami_team)

    regions = {name: region_of(hami_node, found, name) for name in ("one", "two")}
    (grant,) = grants_of(hami_node, found, "two")
    assert regions["one"].limits[0] == 3000 * MIB
    assert regions["two"].limits[0] == grant.memory * MIB
    assert [regions[name].cores[0] for name in ("one", "two")] == [30, 20]
    for name in ("one", "two"):
        assert inside(hami_node.node, found, name).env["NVIDIA_VISIBLE_DEVICES"] in {
            held.gpu for held in grants_of(hami_node, found, name)
        }
    assert inside(hami_node.node, found, "none").env["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_gpus_alone_are_whole_ones(hami_node: GpuNode, hami_team: str) -> None:
    """All cores and all memory, so that nobody shares them; a share then has no room there."""
    hami_node.site.create(hami_team, asking(looking(limits={GPU: 2})))

    found = running(hami_node.site, hami_team)

    grants = grants_of(hami_node, found)
    assert len({grant.gpu for grant in grants}) == 2
    assert {grant.cores for grant in grants} == {100}
    visible = inside(hami_node.node, found).env["NVIDIA_VISIBLE_DEVICES"].split(",")
    assert set(visible) == {grant.gpu for grant in grants}


def test_a_pod_that_names_mig_gets_an_instance(hami_node: GpuNode, hami_team: str) -> None:
    """Large enough for its memory, and without the library."""
    written = asking(looking(limits={GPU: 1, MEM: 8000}), **{MODES: "mig"})
    hami_node.site.create(hami_team, written)

    found = running(hami_node.site, hami_team)

    (grant,) = grants_of(hami_node, found)
    assert grant.memory >= 8000
    assert device_of(hami_node, found).startswith("MIG-")
    assert PRELOAD not in inside(hami_node.node, found).mounts


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({GPU: 1, CORES: 250}, "GpuCoresShort"),
        ({GPU: 1, PERCENT: 0}, "MalformedRequest"),
        ({GPU: 1, PERCENT: 101}, "MalformedRequest"),
        ({GPU: 1, MEM: 1000, PERCENT: 10}, "ConflictingRequest"),
        ({GPU: 1, MEM: 2**31}, "MalformedRequest"),
        ({GPU: 0, MEM: 1000}, "ConflictingRequest"),
        ({GPU: 17}, "TooManyDevices"),
        ({GPU: 1, MEM: 1000, PRIORITY: 2}, "MalformedRequest"),
    ],
)
def test_what_hami_clamps_or_drops_is_refused(
    hami_node: GpuNode, hami_team: str, *, limits: Json, said: str
) -> None:
    """With the reason that docs/hami.md names; nothing starts with less than it was written for."""
    assert said in hami_node.site.refusal(hami_team, asking(looking(limits=limits)))


def test_a_label_that_is_not_read_is_warned_of(hami_node: GpuNode, hami_team: str) -> None:
    """HAMi's webhook would skip the pod; here it starts with its limits, and its user is told."""
    written = asking(looking(limits=SHARE))
    written["metadata"]["labels"] = {"hami.io/webhook": "ignore"}

    answer = hami_node.site.create(hami_team, written)

    assert any("hami.io/webhook is not read" in text for text in answer.warnings)
    found = running(hami_node.site, hami_team)
    assert region_of(hami_node, found).limits[0] == 3000 * MIB


@pytest.fixture
def contested(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    """Yield a node of this test's own: kubelet remembers a plugin's resources for five minutes."""
    with node_site(programs, tmp_path_factory.mktemp("contested")) as found:
        serving_hami(found.site)
        yield found


def second_plugin(node: Node, gpu: str) -> Process:
    """Start a plugin that serves ``nvidia.com/gpu`` from *gpu*, and return once kubelet has it."""
    command = [sys.executable, "-m", "tests.cluster.other_plugin", gpu, GPU]
    other = node.host.process("second", command, PYTHONPATH=str(MANIFESTS.parent))
    other.start(lambda: node.allocatable(GPU) == "10", within=SERVES_WITHIN)
    return other


def closed(found: GpuNode) -> str:
    """Return why the node takes no pods, if so."""
    return str(found.site.gpu_node_status(found.node.name).get("closed", ""))


def notes_on_nodes(site: Installation) -> str:
    """Return the notes of Events about closed nodes."""
    events = site.api.get("/apis/events.k8s.io/v1/events")["items"]
    return "\n".join(str(event["note"]) for event in events if event["reason"] == "VgpuNodeClosed")


def test_a_plugin_that_is_there_first_keeps_the_node(contested: Node) -> None:
    """Our agent offers nothing and says why; no pod of ours gets a GPU from the other plugin."""
    site, found = contested.site, gpus_on(contested, SOFT_ONLY)
    second_plugin(contested, found.uuids[0])

    found.agent.start(lambda: bool(http_get(found.port, "/healthz")), within=SERVES_WITHIN)
    wait_for(lambda: "competing device plugin" in found.agent.tail(), within=SERVES_WITHIN)

    assert not http_get(found.port, "/readyz")
    (line,) = (one for one in log_lines(found.agent) if one["event"] == "competing device plugin")
    assert f'another device plugin serves "{GPU}" on this node' in str(line)
    wait_for(lambda: str(line["why"]) in closed(found), within=SERVES_WITHIN)
    assert contested.allocatable(GPU) == "10"
    assert {contested.allocatable(name) or "0" for name in (NUMBER, *OFFERED[1:])} == {"0"}
    team = site.namespace()
    site.create(team, asking(looking(limits={GPU: 1})))
    wait_for(lambda: NUMBER in told(site, team), within=SERVES_WITHIN)
    assert "nodeName" not in pod_of(site, team)["spec"]
    found.agent.stop()


@pytest.mark.timeout(600)  # with a node of its own, and half a minute until the Event
def test_a_plugin_that_comes_later_closes_the_node(contested: Node) -> None:
    """Two owners are told of; who runs there goes on, and nobody else is bound."""
    site = contested.site
    with served(contested, SOFT_ONLY) as found, team_of(found) as team:
        wait_for(lambda: contested.allocatable(GPU) not in {"", "0"}, within=SERVES_WITHIN)
        site.create(team, asking(looking(limits=SHARE), name="tenant"))
        running(site, team, "tenant")
        assert not closed(found)

        second_plugin(contested, found.uuids[1])
        wait_for(lambda: closed(found), within=SERVES_WITHIN)

        assert f'another device plugin serves "{GPU}" on this node' in closed(found)
        site.create(team, asking(looking(limits=SHARE), name="late"))
        wait_for(lambda: "FailedScheduling" in told(site, team, "late"), within=SERVES_WITHIN)
        assert "nodeName" not in pod_of(site, team, "late")["spec"]
        wait_for(lambda: closed(found) in notes_on_nodes(site), within=EVENT_WITHIN)
        undisturbed(found, team, ["tenant"])
        delete(site, team, "late", grace=0)
