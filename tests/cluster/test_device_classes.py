"""A DeviceClass that stands for nvidia.com/gpu serves no pod of ours, on a real scheduler."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.catalog.hami_keys import COUNT_RESOURCE
from tests.builders.model import T4, nodes_of
from tests.builders.pods import NUMBER, container, pod
from tests.cluster.api import Json, wait_for
from tests.cluster.binds import promised
from tests.cluster.hami_site import serve_hami
from tests.cluster.installation import PODS, Installation, installation
from tests.cluster.scheduler import kube_scheduler, refusals, schedulable

OURS, THEIRS = "ours", "theirs"
DRIVER = "gpu.example.com"
RESOURCES = "/apis/resource.k8s.io/v1"
WITHIN = 60.0  # seconds; the scheduler's back-off is ten at most


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation with a node of ours, one of a DRA driver, and that driver's class."""
    with installation(programs, tmp_path_factory.mktemp("device-classes")) as found:
        serve_hami(found, "vocabularies: [volcano, hami]")
        found.add_node(nodes_of(1, T4, name=OURS))
        found.api.create("/api/v1/nodes", {"metadata": {"name": THEIRS}})
        for name in (OURS, THEIRS):
            schedulable(found, name)
            found.api.create(f"{RESOURCES}/resourceslices", device_slice(name))
        offer(found, THEIRS, {NUMBER: None, "volcano.sh/vgpu-memory": None})
        found.api.create(f"{RESOURCES}/deviceclasses", device_class())
        found.wait_for_models("T4")
        scheduler = kube_scheduler(programs["kube-scheduler"], found.plane)
        yield found
        scheduler.stop()


def device_slice(node: str) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    }


def device_class() -> Json:
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpus"},
        "spec": {"selectors": [selector], "extendedResourceName": COUNT_RESOURCE},
    }


def offer(site: Installation, node: str, amounts: Mapping[str, str | None]) -> None:
    status = {"capacity": dict(amounts), "allocatable": dict(amounts)}
    site.api.patch(f"/api/v1/nodes/{node}/status", {"status": status})


def on_node(node: str, manifest: Json) -> Json:
    named = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [named]}]}
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return {**manifest, "spec": {**manifest["spec"], "affinity": required}}


def node_of(site: Installation, team: str, name: str = "p") -> str:
    return str(site.api.get(f"{PODS.format(team)}/{name}")["spec"].get("nodeName", ""))


def claims(site: Installation, team: str) -> list[Json]:
    found: list[Json] = site.api.get(f"{RESOURCES}/namespaces/{team}/resourceclaims")["items"]
    return found


def test_the_class_serves_pods_that_are_not_ours(site: Installation) -> None:
    """Else the tests below would show nothing. It takes the device that none of them may get."""
    team = site.unlabelled_namespace()
    site.create(team, on_node(THEIRS, pod(container(limits={COUNT_RESOURCE: 1}))))

    wait_for(lambda: node_of(site, team), within=WITHIN)
    assert len(claims(site, team)) == 1
    site.api.delete(f"{PODS.format(team)}/p", {"gracePeriodSeconds": 0})


def test_no_pod_of_ours_falls_through(site: Installation) -> None:
    """It is refused while its node offers none, with what helps; the claim is given back."""
    team = site.namespace()
    offer(site, OURS, {COUNT_RESOURCE: None})
    site.create(team, pod(container(limits={COUNT_RESOURCE: 1})))

    said = wait_for(lambda: [t for t in refusals(site, team) if "DeviceClass" in t], within=WITHIN)
    assert "remove extendedResourceName" in said[0]
    assert "delete the pod" in said[0]
    assert node_of(site, team) == ""
    assert promised(site, OURS) == ()
    site.api.delete(f"{PODS.format(team)}/p", {"gracePeriodSeconds": 0})


def test_a_node_that_offers_it_serves_it_itself(site: Installation) -> None:
    """With an entry, without a claim; the node of the driver is none for the pod."""
    team = site.namespace()
    offer(site, OURS, {COUNT_RESOURCE: "10"})
    site.create(team, pod(container(limits={COUNT_RESOURCE: 1})))

    wait_for(lambda: node_of(site, team), within=WITHIN)
    assert node_of(site, team) == OURS
    assert [entry.namespace for entry in promised(site, OURS)] == [team]
    assert claims(site, team) == []
    site.api.delete(f"{PODS.format(team)}/p", {"gracePeriodSeconds": 0})
