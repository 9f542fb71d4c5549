"""Pods in HAMi's words on a real API server: one of our agents serves them, and no HAMi is there.

They ask as the examples of HAMi's repository do. A kube-scheduler that knows nothing of GPUs places
them by the resources that the agent offers.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from allocator.catalog.keys import CAPACITY_KEY
from allocator.catalog.vocabularies import HAMI, SLOT
from allocator.model.allocation import Grant
from allocator.model.request import Mode
from manifests.generator.documents import hami_component
from tests.builders.pods import Json, container, pod
from tests.cluster.api import wait_for
from tests.cluster.installation import HOOKS, OPTED_IN, PODS, Installation, installation
from tests.cluster.scheduler import bound, kube_scheduler, schedulable
from tests.cluster.test_simulated_agent import NODE, WITHIN, Node, simulated_node
from tests.fakes.kubelet import CHECKPOINT

SETTINGS = "vocabularies: [volcano, gpushare, hami]"
GPU, MEM, PERCENT = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"
CORES, PRIORITY = "nvidia.com/gpucores", "nvidia.com/priority"
MODES = "nvidia.com/vgpu-mode"


@pytest.fixture(scope="module")
def node(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Yield a node of simulated boards under a scheduler, in a cluster that serves HAMi's words."""
    folder = tmp_path_factory.mktemp("hami")
    (folder / "plane").mkdir()
    with installation(programs, folder / "plane") as site:
        add_component(site)
        site.configure(SETTINGS)
        wait_for(lambda: site.first.obeys(SETTINGS))
        with simulated_node(site, folder) as found:
            wait_for(lambda: GPU in found.capacity, within=WITHIN)
            schedulable(site, "sim-1")
            report_room(found)
            scheduler = kube_scheduler(programs["kube-scheduler"], site.plane)
            yield found
            scheduler.stop()


def add_component(site: Installation) -> None:
    """Apply the component ``hami`` as kustomize does, to what is installed."""
    for patch in hami_component()["patches"]:
        target = patch["target"]
        kind = target["kind"]
        plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
        path = f"{HOOKS}/{plural.lower()}/{target['name']}"
        headers = {"Content-Type": "application/json-patch+json"}
        site.api.request("PATCH", path, yaml.safe_load(patch["patch"]), headers=headers)


def report_room(node: Node) -> None:
    """Do what kubelet does: the slots of our plugin, and capacity becomes allocatable."""
    room = {**node.capacity, SLOT: "60"}
    change = {"status": {"capacity": room, "allocatable": room}}
    node.site.api.patch(f"{NODE}/status", change)


def grants(node: Node, team: str, name: str) -> tuple[Grant, ...]:
    """Return what the ledger promises the pod once it is bound."""
    wait_for(lambda: name in bound(node.site, team), within=WITHIN)
    uid = node.site.api.get(f"{PODS.format(team)}/{name}")["metadata"]["uid"]
    entry = node.ledger.entry(uid)
    assert entry is not None
    return entry.containers[0].grants


def asking(limits: Json, **annotations: str) -> Json:
    return pod(container(limits=limits), annotations=annotations)


def test_the_node_offers_hamis_resources(node: Node) -> None:
    """By its agent alone, which notes that they are its own; nothing conflicts with it."""
    added = node.object["metadata"]["annotations"][CAPACITY_KEY].split(",")

    assert set(HAMI.resources) <= node.capacity.keys() & set(added)
    assert node.ledger.closed == ""
    assert node.capacity[GPU] == node.capacity[PRIORITY]


@pytest.mark.parametrize(
    ("limits", "annotations", "expected"),
    [
        pytest.param({GPU: 1, MEM: 3000, CORES: 30}, {}, (1, 3000, 30), id="default"),
        pytest.param({GPU: 2}, {}, (2, None, 100), id="as-normal"),
        pytest.param({GPU: 2, PERCENT: 100, CORES: 100}, {}, (2, None, 100), id="exclusive"),
        pytest.param({GPU: 2, PERCENT: 50, CORES: 30}, {}, (2, None, 30), id="fraction"),
        pytest.param({MEM: 2000}, {}, (1, 2000, 0), id="without-a-number"),
        pytest.param({GPU: 1, MEM: 1000, PRIORITY: 1}, {}, (1, 1000, 0), id="priority"),
        pytest.param(
            {GPU: 1, MEM: 2000},
            {"hami.io/node-scheduler-policy": "spread", "hami.io/gpu-scheduler-policy": "binpack"},
            (1, 2000, 0),
            id="policies",
        ),
        pytest.param(
            {GPU: 1, MEM: 2000}, {"nvidia.com/nouse-gputype": "1080,2080"}, (1, 2000, 0), id="type"
        ),
    ],
)
def test_an_example_runs_unchanged(
    node: Node, limits: Json, annotations: dict[str, str], *, expected: tuple[int, int | None, int]
) -> None:
    """Placed by resources, promised at the bind, with its own names kept."""
    team = node.site.namespace()
    soft = annotations | {MODES: "hami-core"}
    node.site.create(team, asking(limits, **soft))

    found = grants(node, team, "p")

    count, memory, cores = expected
    assert [grant.mode for grant in found] == [Mode.HAMI_CORE] * count
    assert {grant.cores for grant in found} == {cores}
    assert memory is None or {grant.memory for grant in found} == {memory}
    stored = node.site.api.get(f"{PODS.format(team)}/p")["spec"]["containers"][0]
    assert limits.keys() < stored["resources"]["limits"].keys()
    node.site.api.request("DELETE", f"{PODS.format(team)}/p?gracePeriodSeconds=0")


def test_a_pod_that_accepts_mig_gets_an_instance(node: Node) -> None:
    """As with HAMi's dynamic MIG: by memory, and no profile is named."""
    team = node.site.namespace()
    node.site.create(team, asking({GPU: 2, MEM: 8000}, **{MODES: "mig"}))

    found = grants(node, team, "p")

    assert [grant.mode for grant in found] == [Mode.MIG] * 2
    assert min(grant.memory for grant in found) >= 8000


def test_what_hami_would_guess_is_refused_in_its_words(node: Node) -> None:
    """By the hook, which the API server calls for these names alone."""
    team = node.site.namespace()

    both = node.site.refusal(team, asking({GPU: 1, MEM: 1000, PERCENT: 50}))
    much = node.site.refusal(team, asking({GPU: 1, MEM: 900_001}))

    assert "both gpumem 1000 and gpumem-percentage 50" in both
    assert "asks for 900001 MiB on one GPU" in much


def test_a_number_that_the_api_server_writes_with_a_suffix_stays_one(node: Node) -> None:
    """It stores 9000000 as ``9M``; the refusal is about what no GPU has."""
    text = node.site.refusal(node.site.namespace(), asking({GPU: 1, MEM: 9_000_000}))

    assert "asks for 9000000 MiB on one GPU" in text
    assert "GpuMemoryShort" in text


def test_a_pod_without_gpus_is_nobodys(node: Node) -> None:
    """The conditions name resources, and this one has none of them."""
    assert node.site.refusal(node.site.namespace(OPTED_IN), pod(container())) == ""


def test_a_plugin_that_comes_later_closes_the_node(node: Node) -> None:
    """Kubelet has ``nvidia.com/gpu`` of it from then on; without it the node opens again."""
    checkpoint = node.options.kubelet / "device-plugins" / CHECKPOINT
    before = checkpoint.read_bytes() if checkpoint.exists() else None
    devices = {"Data": {"RegisteredDevices": {GPU: ["GPU-1"]}}, "Checksum": 1}

    checkpoint.write_text(json.dumps(devices))
    closed = wait_for(lambda: node.ledger.stated, within=WITHIN)
    if before is None:
        checkpoint.unlink()
    else:
        checkpoint.write_bytes(before)
    wait_for(lambda: not node.ledger.stated, within=WITHIN)

    assert f'another device plugin serves "{GPU}" on this node' in closed
