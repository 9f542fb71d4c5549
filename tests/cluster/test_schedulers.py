"""A real scheduler that knows nothing of us: what it binds is promised, or it hears why not."""

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.core.gpunode import decode
from allocator.model.request import Mode
from manifests.generator.names import CONTROL_PLANE
from tests.builders import A30, nodes_of
from tests.cluster.api import MERGE, Json, wait_for
from tests.cluster.installation import (
    GPU_NODES,
    PODS,
    Installation,
    free_port,
    installation,
)
from tests.cluster.process import Process
from tests.cluster.site import Who
from tests.pods import MEMORY, NUMBER, container, pod

MORE_THAN_THERE_IS = {"volcano.sh/vgpu-number": "10", "volcano.sh/vgpu-memory": "100000"}
BACKOFF = 15.0  # seconds; the scheduler's own is 10 at most


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation with one GPU to cut and a plain kube-scheduler."""
    folder = tmp_path_factory.mktemp("schedulers")
    with installation(programs, folder) as found:
        found.add_node(nodes_of(1, A30, mode=Mode.MIG, name="cut"))
        found.wait_for_models("A30")
        schedulable(found, "cut")
        scheduler = kube_scheduler(programs["kube-scheduler"], found)
        yield found
        scheduler.stop()


def schedulable(site: Installation, node: str) -> None:
    """Do what a kubelet and a device plugin do: report readiness and what may be asked for."""
    room = {"cpu": "8", "memory": "32Gi", "pods": "110", **MORE_THAN_THERE_IS}
    site.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": []}})
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    site.api.patch(f"/api/v1/nodes/{node}/status", {"status": status})


def kube_scheduler(program: Path, site: Installation) -> Process:
    """Start the scheduler as its own user, with the defaults of a cluster."""
    folder, port = site.plane.folder, free_port()
    kubeconfig = json.loads(site.plane.kubeconfig.read_text())
    kubeconfig["users"] = [{"name": "admin", "user": {"token": site.plane.scheduler_token}}]
    (folder / "scheduler.kubeconfig").write_text(json.dumps(kubeconfig))
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(folder / "scheduler.kubeconfig")},
        "leaderElection": {"leaderElect": False},
    }
    (folder / "scheduler.json").write_text(json.dumps(config))
    command: list[str | Path] = [
        program,
        f"--config={folder / 'scheduler.json'}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'scheduler-pki'}",
        "--authentication-skip-lookup=true",
        "--authorization-always-allow-paths=/readyz",
    ]
    process = Process("kube-scheduler", command, folder / "kube-scheduler.log")
    process.start(lambda: ready(port), within=30.0)
    return process


def ready(port: int) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def half(name: str) -> Json:
    """Write a pod that needs 2g.12gb, half of the board."""
    written = pod(
        container(limits={NUMBER: 1, MEMORY: 10000}), annotations={"volcano.sh/vgpu-mode": "mig"}
    )
    return written | {"metadata": {**written["metadata"], "name": name}}


def bound(site: Installation, team: str) -> set[str]:
    pods = site.api.get(PODS.format(team))["items"]
    return {found["metadata"]["name"] for found in pods if found["spec"].get("nodeName")}


def refusals(site: Installation, team: str) -> list[str]:
    """Return what the scheduler told people about pods that it could not bind."""
    events = site.api.get(f"/apis/events.k8s.io/v1/namespaces/{team}/events")["items"]
    return [event["note"] for event in events if event["reason"] == "FailedScheduling"]


def test_a_plain_scheduler_is_enough(site: Installation) -> None:
    """Three pods that the node's sums would admit: two get a half each, one waits for its turn."""
    team = site.namespace()
    for name in ("a", "b", "c"):
        site.create(team, half(name))

    wait_for(lambda: len(bound(site, team)) == 2, within=BACKOFF)
    texts = wait_for(lambda: refusals(site, team), within=BACKOFF)
    first = bound(site, team)
    ledger = decode(site.api.get(f"{GPU_NODES}/cut"))

    masks = [grant.placed.mask for grant in ledger.node.gpus[0].grants if grant.placed]
    assert sorted(masks) == [0b0011, 0b1100]
    assert all('denied the request: node "cut": container "main"' in text for text in texts)

    leaving = min(first)
    site.api.delete(f"{PODS.format(team)}/{leaving}", {"gracePeriodSeconds": 0})
    generation = site.api.get(f"{GPU_NODES}/cut")["metadata"]["generation"]
    headers = {**Who(CONTROL_PLANE).headers, "Content-Type": MERGE}
    seen = {"status": {"observedGeneration": generation}}
    site.api.request("PATCH", f"{GPU_NODES}/cut/status", seen, headers=headers)

    (waiting,) = {"a", "b", "c"} - first
    assert wait_for(lambda: waiting in bound(site, team), within=2 * BACKOFF)
