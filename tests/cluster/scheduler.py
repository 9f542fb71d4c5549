"""A real kube-scheduler as its own user, with whatever configuration a cluster gives it."""

import contextlib
import http.client
import json
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.control_plane import ControlPlane
from tests.cluster.installation import UNVERIFIED, free_port
from tests.cluster.process import Process

READY_WITHIN = 30.0


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
