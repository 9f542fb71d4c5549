"""Pods that controllers make, and settings that change while they do."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from tests.builders.model import T4, nodes_of
from tests.builders.pods import MEMORY, MODE, NUMBER, container, pod, variables
from tests.cluster.api import Json, wait_for
from tests.cluster.control_plane import Settings
from tests.cluster.installation import PODS, Installation, installation
from tests.cluster.site import MANIFESTS

BATCH, APPS = "/apis/batch/v1", "/apis/apps/v1"
GOLDEN = MANIFESTS.parent / "tests/golden/volcano/device-config-a.yaml"
TOO_MUCH = pod(container(limits={NUMBER: 1, MEMORY: 90000}))
SHORT = (
    'container "main": asks for 90000 MiB on one GPU; the largest has 15360; ask for at most 15360'
)


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation with controllers and one kind of GPU."""
    folder = tmp_path_factory.mktemp("workloads")
    with installation(programs, folder, settings=Settings(controllers=True)) as found:
        found.add_node(nodes_of(2, T4, name="t4"))
        found.wait_for_models("T4")
        yield found


@pytest.fixture
def team(site: Installation) -> str:
    """Return a namespace that opted in."""
    return site.namespace()


@pytest.fixture
def closed(site: Installation, team: str) -> Iterator[str]:
    """Return that namespace while the settings declare that there are no other GPUs."""
    site.configure("fleet: closed")
    wait_for(lambda: site.first.obeys("fleet: closed"))
    yield team
    site.configure("")
    wait_for(lambda: site.first.obeys(""))


def controlled(kind: str, written: Json) -> Json:
    """Return a controller's object that makes one pod like *written*."""
    labels = {"app": "demo"}
    template = {"metadata": {"labels": labels}, "spec": written["spec"]}
    spec: Json = {"template": template}
    if kind == "Job":
        template["spec"] = {**written["spec"], "restartPolicy": "Never"}
    else:
        spec |= {"replicas": 1, "selector": {"matchLabels": labels}}
    return {"metadata": {"name": "demo"}, "spec": spec}


@pytest.mark.parametrize(
    ("collection", "kind", "maker"),
    [
        pytest.param(f"{APPS}/namespaces/{{}}/deployments", "Deployment", "ReplicaSet", id="web"),
        pytest.param(f"{BATCH}/namespaces/{{}}/jobs", "Job", "Job", id="batch"),
    ],
)
def test_what_a_controller_makes_is_rewritten(
    site: Installation, team: str, *, collection: str, kind: str, maker: str
) -> None:
    """The template stays as it was written; each pod of it is decided about when it is made."""
    path = collection.format(team)
    site.api.create(path, controlled(kind, pod(annotations=None)))

    (found,) = wait_for(lambda: site.api.get(PODS.format(team))["items"])
    template = site.api.get(f"{path}/demo")["spec"]["template"]["spec"]["containers"][0]
    (record,) = wait_for(lambda: confirmed(site, team))
    assert found["metadata"]["ownerReferences"][0]["kind"] == maker
    assert found["metadata"]["annotations"][MODE] == "hami-core"
    assert variables(found)["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
    assert "env" not in template
    assert record["name"] == found["metadata"]["name"]
    assert record["owners"][0]["kind"] == maker


def confirmed(site: Installation, namespace: str) -> list[Json]:
    return [
        line
        for line in site.first.records()
        if line["event"] == "confirmed" and line["namespace"] == namespace
    ]


def test_the_owner_is_told_why(site: Installation, closed: str) -> None:
    """One Event that counts: retries of one ReplicaSet are refused in the same words."""
    path = f"{APPS}/namespaces/{closed}/deployments"
    site.api.create(path, controlled("Deployment", TOO_MUCH))

    def told() -> list[Json]:
        events = site.api.get(f"/api/v1/namespaces/{closed}/events")["items"]
        return [e for e in events if e["reason"] == "FailedCreate" and e["count"] > 1]

    (event,) = wait_for(told)
    told_by = 'Error creating: admission webhook "pods.vgpu-admission.io" denied the request: '
    assert event["involvedObject"]["kind"] == "ReplicaSet"
    assert event["message"].startswith(f"{told_by}{SHORT}")
    assert "[GpuMemoryShort " in event["message"]
    assert site.api.get(PODS.format(closed))["items"] == []


def test_settings_that_cannot_be_used_change_nothing(site: Installation, closed: str) -> None:
    """The last good ones stay in force, and the log says what is wrong with the new."""
    site.configure("fleet: perhaps")

    (line,) = wait_for(
        lambda: [
            x for x in site.first.lines() if x["event"] == "settings rejected, previous ones kept"
        ]
    )
    assert "Invalid enum value 'perhaps' - at `$.fleet`" in line["why"]
    assert SHORT in site.refusal(closed, TOO_MUCH)


def test_volcanos_configuration_is_obeyed(site: Installation, team: str) -> None:
    """Its unit of memory is taken up while running, and a broken change of it is not."""
    text = yaml.safe_load(GOLDEN.read_text())
    text["nvidia"]["gpuMemoryFactor"] = 1024
    name = {"name": "volcano-vgpu-device-config"}
    path = "/api/v1/namespaces/kube-system/configmaps"
    asks = pod(container(limits={NUMBER: 1, MEMORY: 3}), annotations={MODE: "hami-core"})

    def limit() -> str:
        found = variables(site.create(team, asks, dryRun="All").body)
        return str(found["CUDA_DEVICE_MEMORY_LIMIT_0"])

    site.api.create(path, {"metadata": name, "data": {"device-config.yaml": yaml.dump(text)}})
    wait_for(lambda: limit() == "3072m")
    broken = {"data": {"device-config.yaml": "nvidia: ["}}
    site.api.patch(f"{path}/{name['name']}", broken)

    wait_for(lambda: [x for x in site.first.lines() if "previous one kept" in x["event"]])
    assert limit() == "3072m"
