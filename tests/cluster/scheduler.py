"""A real kube-scheduler as its own user, and what its tests give it to do and read of it."""

import contextlib
import http.client
import json
from collections.abc import Mapping
from pathlib import Path

from tests.builders.pods import MEMORY, NUMBER, container, pod
from tests.cluster.api import Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.installation import PODS, UNVERIFIED, Installation
from tests.cluster.ports import free_port
from tests.cluster.process import Process

READY_WITHIN = 30.0
MORE_THAN_THERE_IS = {"volcano.sh/vgpu-number": "10", "volcano.sh/vgpu-memory": "100000"}


def kube_scheduler(
    program: Path,
    plane: ControlPlane,
    *,
    client: Mapping[str, object] | None = None,
    **configuration: object,
) -> Process:
    """Start it with a cluster's defaults, overridden by *configuration* key by key.

    *client* is more of its ``clientConnection``, such as ``qps`` and ``burst``.
    """
    folder, port = plane.folder, free_port()
    kubeconfig = json.loads(plane.kubeconfig.read_text())
    kubeconfig["users"] = [{"name": "admin", "user": {"token": plane.scheduler_token}}]
    (folder / "scheduler.kubeconfig").write_text(json.dumps(kubeconfig))
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(folder / "scheduler.kubeconfig"), **(client or {})},
        "leaderElection": {"leaderElect": False},
        **configuration,
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
    process.start(lambda: ready(port), within=READY_WITHIN)
    return process


def ready(port: int) -> bool:
    """Say whether the scheduler on *port* has all it needs to begin."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=UNVERIFIED, timeout=2)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    return False


def schedulable(site: Installation, node: str) -> None:
    """Do what a kubelet and a device plugin do: report readiness and what may be asked for."""
    room = {"cpu": "8", "memory": "32Gi", "pods": "110", **MORE_THAN_THERE_IS}
    site.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": []}})
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    site.api.patch(f"/api/v1/nodes/{node}/status", {"status": status})


def half(name: str) -> Json:
    """Write a pod that needs 2g.12gb, half of the board."""
    written = pod(
        container(limits={NUMBER: 1, MEMORY: 10000}), annotations={"volcano.sh/vgpu-mode": "mig"}
    )
    return written | {"metadata": {**written["metadata"], "name": name}}


def bound(site: Installation, team: str) -> set[str]:
    """Return the names of the pods that have a node."""
    pods = site.api.get(PODS.format(team))["items"]
    return {found["metadata"]["name"] for found in pods if found["spec"].get("nodeName")}


def refusals(site: Installation, team: str) -> list[str]:
    """Return what the scheduler told people about pods that it could not bind."""
    events = site.api.get(f"/apis/events.k8s.io/v1/namespaces/{team}/events")["items"]
    return [event["note"] for event in events if event["reason"] == "FailedScheduling"]
