"""The overlay that brings a kube-scheduler: it applies, and what it grants and says suffices."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.ledger.decode import decode
from tests.builders.model import T4, nodes_of
from tests.builders.pods import MEMORY, NUMBER, container, pod
from tests.cluster.api import ApiError, Json, wait_for
from tests.cluster.control_plane import Settings
from tests.cluster.installation import (
    GPU_NODES,
    PODS,
    SYSTEM,
    Installation,
    Replica,
    installation,
)
from tests.cluster.ports import free_port
from tests.cluster.process import Process
from tests.cluster.scheduler import READY_WITHIN, bound, ready, schedulable
from tests.cluster.site import MANIFESTS

OVERLAY = MANIFESTS / "overlays" / "kube-scheduler"
NAME = "vgpu-scheduler"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{NAME}"
WITHIN = 60.0  # seconds; the first election takes fifteen at most


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation with the overlay applied, and both programs of its pod running."""
    folder = tmp_path_factory.mktemp("own-scheduler")
    with installation(programs, folder, settings=Settings(controllers=True)) as found:
        kubectl(programs, found, "apply", "-f", "-", stdin=objects(programs, found))
        found.add_node(nodes_of(1, T4, name="soft"))
        schedulable(found, "soft")
        found.wait_for_models("T4")
        port = free_port()
        extender = beside(found, port)
        scheduler = configured(programs["kube-scheduler"], found, port)
        yield found
        scheduler.stop()
        extender.stop()


def kubectl(
    programs: Mapping[str, Path], site: Installation, *arguments: str, stdin: str = ""
) -> str:
    command = [str(programs["kubectl"]), f"--kubeconfig={site.plane.kubeconfig}", *arguments]
    done = subprocess.run(command, capture_output=True, check=False, input=stdin, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def objects(programs: Mapping[str, Path], site: Installation) -> str:
    """Return all objects of the overlay but the registrations, which here name an address."""
    built = yaml.safe_load_all(kubectl(programs, site, "kustomize", str(OVERLAY)))
    kept = [one for one in built if not one["kind"].endswith("WebhookConfiguration")]
    return yaml.safe_dump_all(kept)


def token(site: Installation) -> str:
    """Make a token of the overlay's own account."""
    account = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{NAME}/token"
    made = site.api.create(account, {"spec": {"expirationSeconds": 7200}})
    return str(made.body["status"]["token"])


def as_scheduler(site: Installation) -> Path:
    """Write a kubeconfig of the overlay's own account, so that every right is really needed."""
    config = json.loads(site.plane.kubeconfig.read_text())
    config["users"] = [{"name": "admin", "user": {"token": token(site)}}]
    path = site.plane.folder / "own-scheduler.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def beside(site: Installation, port: int) -> Process:
    """Start the second container's program; only its ports differ."""
    health = free_port()
    command: list[str | Path] = [
        sys.executable,
        MANIFESTS.parent / "vgpu.py",
        "extender",
        f"--listen=127.0.0.1:{port}",
        f"--health=127.0.0.1:{health}",
        f"--kubeconfig={as_scheduler(site)}",
    ]
    process = Process("extender", command, site.plane.folder / "extender.log")
    asked = Replica(process, port, health)
    process.start(lambda: asked.get("/readyz")[0] == 200, within=READY_WITHIN)
    return process


def configured(program: Path, site: Installation, port: int) -> Process:
    """Start the first container's program with its ConfigMap; only ports and account differ."""
    maps = site.api.get(f"/api/v1/namespaces/{SYSTEM}/configmaps")["items"]
    (stored,) = [
        one for one in maps if one["metadata"]["name"].startswith(f"{NAME}-configuration-")
    ]
    configuration: Json = yaml.safe_load(stored["data"]["configuration.yaml"])
    configuration["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{port}/extender"
    configuration["clientConnection"]["kubeconfig"] = str(as_scheduler(site))
    file, secure = site.plane.folder / "configuration.json", free_port()
    file.write_text(json.dumps(configuration))
    command: list[str | Path] = [program, f"--config={file}", f"--secure-port={secure}"]
    process = Process("kube-scheduler", command, site.plane.folder / "own-scheduler.log")
    process.start(lambda: ready(secure), within=READY_WITHIN)
    return process


def test_it_is_stored_as_written(site: Installation, programs: Mapping[str, Path]) -> None:
    """Applying it again would change nothing, so no field was dropped as unknown."""
    kubectl(programs, site, "diff", "-f", "-", stdin=objects(programs, site))


def test_its_pods_start(site: Installation) -> None:
    """Quota, priority and Pod Security let both replicas in."""
    selector = {"labelSelector": "app.kubernetes.io/component=scheduler"}
    path = f"/api/v1/namespaces/{SYSTEM}/pods"

    pods = wait_for(lambda: site.api.get(path, **selector)["items"][1:], within=WITHIN)

    assert {c["name"] for c in pods[0]["spec"]["containers"]} == {"kube-scheduler", "extender"}


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        pytest.param("pods", NAME, id="all"),
        pytest.param("pods/gone/binding", "vgpu-binds", id="binds"),
    ],
)
def test_its_calls_queue_with_ours(site: Installation, path: str, schema: str) -> None:
    """Not with every tenant's controller; binds have a level of their own, whoever binds."""
    target = {"apiVersion": "v1", "kind": "Node", "name": "soft"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "gone"}, "target": target}
    there = f"/api/v1/namespaces/{site.namespace()}/{path}"

    with site.plane.api(token(site)) as scheduler, pytest.raises(ApiError) as refused:
        scheduler.create(there, body)  # which is no pod, nor is there any of that name

    reply = refused.value.reply
    schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
    queued = site.api.get(f"{schemas}/{schema}")["metadata"]["uid"]
    headers = {name.lower(): value for name, value in reply.headers.items()}
    assert headers["x-kubernetes-pf-flowschema-uid"] == queued


def test_it_schedules_who_names_it(site: Installation) -> None:
    """It is elected, asks the extender, and binds; others are left to the cluster's scheduler."""
    team = site.namespace()
    share = container(limits={NUMBER: 1, MEMORY: 3000})
    for name, scheduler in (("ours", NAME), ("theirs", "default-scheduler")):
        written = pod(share, schedulerName=scheduler)
        site.create(team, written | {"metadata": {**written["metadata"], "name": name}})

    wait_for(lambda: bound(site, team), within=WITHIN)

    (entry,) = decode(site.api.get(f"{GPU_NODES}/soft")).entries
    assert site.api.get(LEASE)["spec"]["holderIdentity"]
    assert entry.pod == "ours"
    assert bound(site, team) == {"ours"}


def test_what_the_extender_refuses_is_not_tried(site: Installation) -> None:
    """Sums would admit it: no single GPU has room, and the scheduler says so without a bind."""
    team = site.namespace()
    too_much = pod(container(limits={NUMBER: 1, MEMORY: 90000}), schedulerName=NAME)
    site.create(team, too_much)
    path = f"{PODS.format(team)}/p"

    def told() -> str:
        conditions = site.api.get(path)["status"].get("conditions", [])
        return " ".join(one.get("message", "") for one in conditions)

    text = wait_for(told, within=WITHIN)

    assert text.startswith("0/1 nodes are available: 1 ")
    assert "admission webhook" not in text


def test_every_resource_of_ours_leads_to_the_extender() -> None:
    """A pod that asks in any vocabulary is asked about."""
    configuration = yaml.safe_load((OVERLAY / "configuration.yaml").read_text())

    (extender,) = configuration["extenders"]

    managed = {one["name"] for one in extender["managedResources"]}
    assert managed == {name for v in VOCABULARIES for name in v.resources}
    ignored = {one["name"] for one in extender["managedResources"] if one["ignoredByScheduler"]}
    assert ignored == {"metax-tech.com/vcore", "metax-tech.com/vmemory"}  # no node offers them
