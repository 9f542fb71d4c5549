"""An installation as a site has it: the base applied, replicas running as their own account."""

import contextlib
import http.client
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from manifests.generator.registrations import registrations
from tests.cluster.api import Api, Json, wait_for
from tests.cluster.control_plane import ControlPlane, Settings
from tests.cluster.process import Process
from tests.cluster.site import MANIFESTS

SYSTEM = "vgpu-admission-system"
OPTED_IN = {"vgpu-admission.io/inject": "enabled"}
HOOKS = "/apis/admissionregistration.k8s.io/v1"
READY_WITHIN = 30.0


@dataclass(slots=True)
class Replica:
    """One webhook process; it keeps its ports over a restart."""

    process: Process
    port: int
    health: int

    def start(self) -> None:
        """Start it and return once it is ready to answer reviews."""
        self.process.start(lambda: self.get("/readyz")[0] == 200, within=READY_WITHIN)

    def get(self, path: str) -> tuple[int, str]:
        """Ask its health port; a port that nobody listens on answers 0."""
        connection = http.client.HTTPConnection("127.0.0.1", self.health, timeout=2)
        with contextlib.closing(connection):
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
            except OSError:
                return 0, ""
            return answer.status, answer.read().decode()

    def review(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Send a review past the API server."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context)
        with contextlib.closing(connection):
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def records(self) -> list[Json]:
        """Return the decisions it has recorded so far."""
        text = self.process.log.read_text(errors="replace")
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") in {"decision", "confirmed"}]


@dataclass(slots=True)
class Installation:
    """The control plane with everything of ours on it."""

    plane: ControlPlane
    api: Api
    replicas: list[Replica] = field(default_factory=list)

    @property
    def first(self) -> Replica:
        """Return the replica that the registrations point at to begin with."""
        return self.replicas[0]

    def point_at(self, replica: Replica) -> None:
        """Let the API server call *replica*; a Service's job, for which there is no network."""
        for document in registrations(url=f"https://127.0.0.1:{replica.port}"):
            place = f"{HOOKS}/{document['kind'].lower()}s/{document['metadata']['name']}"
            standing = self.api.get(place)
            bundles = {
                hook["name"]: hook["clientConfig"].get("caBundle") for hook in standing["webhooks"]
            }
            for hook in document["webhooks"]:
                if bundle := bundles.get(hook["name"]):
                    hook["clientConfig"]["caBundle"] = bundle
            standing["webhooks"] = document["webhooks"]
            self.api.replace(place, standing)

    def wait_until_trusted(self) -> None:
        """Return once every registration carries a bundle."""
        wait_for(self._trusted)

    def _trusted(self) -> bool:
        hooks = [
            hook
            for kind in ("mutating", "validating")
            for hook in self.api.get(f"{HOOKS}/{kind}webhookconfigurations/vgpu-admission")[
                "webhooks"
            ]
        ]
        return all(hook["clientConfig"].get("caBundle") for hook in hooks)


@contextlib.contextmanager
def installation(
    programs: Mapping[str, Path],
    folder: Path,
    *,
    replicas: int = 1,
    settings: Settings | None = None,
) -> Iterator[Installation]:
    """Yield a cluster with the base and running replicas, whose first one is called."""
    plane = ControlPlane(folder, programs, settings or Settings(controllers=True))
    with plane, plane.api() as api, contextlib.ExitStack() as stack:
        apply_base(programs, plane)
        account = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/vgpu-webhook/token"
        spec = {"spec": {"expirationSeconds": 7200}}
        token = api.create(account, spec).body["status"]["token"]
        kubeconfig = _kubeconfig(plane, token, folder / "webhook.kubeconfig")
        found = Installation(plane, api)
        for number in range(replicas):
            replica = _replica(folder, number, kubeconfig)
            stack.callback(replica.process.stop)
            found.replicas.append(replica)
        found.point_at(found.first)
        for replica in found.replicas:
            replica.start()
        found.wait_until_trusted()
        yield found


def apply_base(programs: Mapping[str, Path], plane: ControlPlane) -> None:
    """Do what the README tells an operator to do."""
    command = [programs["kubectl"], f"--kubeconfig={plane.kubeconfig}"]
    base = str(MANIFESTS / "base")
    done = subprocess.run(
        [*command, "apply", "-k", base], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr


def _kubeconfig(plane: ControlPlane, token: str, path: Path) -> Path:
    """Write a kubeconfig of our own account, so that every right is really needed."""
    config = json.loads(plane.kubeconfig.read_text())
    config["users"] = [{"name": "admin", "user": {"token": token}}]
    path.write_text(json.dumps(config))
    return path


def _replica(folder: Path, number: int, kubeconfig: Path) -> Replica:
    port, health = free_port(), free_port()
    command: list[str | Path] = [
        sys.executable,
        MANIFESTS.parent / "vgpu.py",
        "webhook",
        f"--listen=127.0.0.1:{port}",
        f"--health=127.0.0.1:{health}",
        f"--kubeconfig={kubeconfig}",
        "--name=127.0.0.1",
        "--drain=1",
    ]
    process = Process(f"webhook-{number}", command, folder / f"webhook-{number}.log")
    return Replica(process, port, health)


def free_port() -> int:
    """Return a port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
