"""An installation as a site has it: the base applied, replicas running as their own account."""

import atexit
import contextlib
import functools
import hashlib
import http.client
import json
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from allocator.ledger.schema import status_of
from allocator.model.gpu import Node
from allocator.volcano.register import REGISTER_ANNOTATION
from manifests.generator.names import CONTROL_PLANE
from manifests.generator.registrations import registrations
from tests.builders.pods import pod, received
from tests.cluster.api import MERGE, Api, ApiError, Json, Reply, wait_for
from tests.cluster.control_plane import API_SERVER, ETCD, ControlPlane, Settings, copy_data
from tests.cluster.ports import free_port
from tests.cluster.process import Process
from tests.cluster.site import MANIFESTS, Who
from tests.harness.records import strict_record
from tests.properties.test_hostile_reviews import review

SYSTEM = "vgpu-admission-system"
OPTED_IN = {"vgpu-admission.io/inject": "enabled"}
PODS = "/api/v1/namespaces/{}/pods"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
GPU_NODES = "/apis/vgpu-admission.io/v1alpha1/gpunodes"
SETTINGS = f"/api/v1/namespaces/{SYSTEM}/configmaps/vgpu-admission-settings"
READY_WITHIN = 60.0
UNVERIFIED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
UNVERIFIED.check_hostname, UNVERIFIED.verify_mode = False, ssl.CERT_NONE


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
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=UNVERIFIED)
        with contextlib.closing(connection):
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def knows_paths(self) -> bool:
        """Say whether it answers at the paths that the registrations carry now."""
        return self.review("/mutate/pods", b"")[0] != HTTPStatus.NOT_FOUND

    def metric(self, sample: str) -> float:
        """Return one sample of its metrics, such as `vgpu_admission_shed_total`."""
        lines = (line.rpartition(" ") for line in self.get("/metrics")[1].splitlines())
        return next(float(value) for name, _, value in lines if name == sample)

    def records(self) -> list[Json]:
        """Return the decisions it has recorded so far."""
        return [line for line in self.lines() if line.get("kind") == "admission"]

    def check_records(self) -> None:
        """Raise where it has written a record that the schema does not know."""
        for line in self.lines():
            if "kind" in line and "schema" in line:
                strict_record(json.dumps(line))

    def lines(self) -> list[Json]:
        """Return all that it has written so far, decisions and its own log."""
        text = self.process.log.read_text(errors="replace")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def obeys(self, settings: str) -> bool:
        """Say whether these are the settings that it has taken up last."""
        loaded = [line for line in self.lines() if line.get("event") == "settings loaded"]
        digest = hashlib.sha256(settings.encode()).hexdigest()
        return bool(loaded) and digest.startswith(loaded[-1]["digest"])

    def knows(self, models: Iterable[str]) -> bool:
        """Say whether it has seen GPUs of these models, and that there are no others."""
        return self._warned("none-such") and not any(map(self._warned, models))

    def _warned(self, model: str) -> bool:
        """Say whether it objects to a pod that must have this model."""
        wish = pod(annotations={"nvidia.com/use-gputype": model})
        answer = json.loads(self.review("/mutate/pods", review(received(wish), dryRun=True))[1])
        return bool(answer["response"].get("warnings")) or not answer["response"]["allowed"]


@dataclass(slots=True, kw_only=True)
class Installation:
    """The control plane with everything of ours on it."""

    plane: ControlPlane
    api: Api
    kubeconfig: Path
    tree: Path = MANIFESTS.parent  # what replicas run
    replicas: list[Replica] = field(default_factory=list)

    @property
    def first(self) -> Replica:
        """Return the replica that the registrations point at to begin with."""
        return self.replicas[0]

    def namespace(self, labels: Mapping[str, str] = OPTED_IN) -> str:
        """Make a namespace in which pods can be created at once."""
        body = {"metadata": {"generateName": "t-", "labels": dict(labels)}}
        name: str = self.api.create("/api/v1/namespaces", body).body["metadata"]["name"]
        if self.plane.settings.needs_accounts:
            wait_for(lambda: self.api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
        return name

    def unlabelled_namespace(self) -> str:
        """Make a namespace without the label, in which no policy refuses who asks for GPUs.

        So it is where somebody has taken that policy out of force, or before it is.
        """
        name = "sole-capacity.vgpu-admission.io"
        with contextlib.suppress(ApiError):  # it is out of force already
            self.api.request("DELETE", f"{HOOKS}/validatingadmissionpolicybindings/{name}")
        space = self.namespace({})
        wait_for(lambda: name not in self.refusal(space, pod()))
        return space

    def create(self, namespace: str, written: Json, **query: str) -> Reply:
        """Create a pod, whichever namespace its manifest names."""
        metadata = {**written["metadata"], "namespace": namespace}
        return self.api.create(PODS.format(namespace), {**written, "metadata": metadata}, **query)

    def stored(self, namespace: str, written: Json) -> Json:
        """Create a pod and return what the API server keeps of it."""
        name = self.create(namespace, written).body["metadata"]["name"]
        return self.api.get(f"{PODS.format(namespace)}/{name}")

    def refusal(self, namespace: str, written: Json) -> str:
        """Return why a pod may not be created, in the words that its user reads."""
        try:
            self.create(namespace, written, dryRun="All")
        except ApiError as error:
            return error.message
        return ""

    def add_node(self, node: Node) -> None:
        """Add a node with the label and the inventory that its agent would write."""
        labels = {"vgpu-admission.io/agent": "0.1.0"}
        self.api.create("/api/v1/nodes", {"metadata": {"name": node.name, "labels": labels}})
        headers = Who(CONTROL_PLANE).headers
        kind = {"apiVersion": "vgpu-admission.io/v1alpha1", "kind": "GPUNode"}
        body = {**kind, "metadata": {"name": node.name}, "spec": {"entries": []}}
        try:
            self.api.request("POST", GPU_NODES, body, headers=headers)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:  # a replica was quicker
                raise
        self.api.request(
            "PATCH",
            f"{GPU_NODES}/{node.name}/status",
            {"status": status_of(node)},
            headers={**headers, "Content-Type": MERGE},
        )

    def add_upstream_node(self, name: str, register: str) -> None:
        """Add a node as Volcano's device plugin announces it."""
        metadata = {"name": name, "annotations": {REGISTER_ANNOTATION: register}}
        self.api.create("/api/v1/nodes", {"metadata": metadata})

    def gpu_node_status(self, name: str) -> Json:
        """Return what the GPUNode *name* says; nothing while there is none."""
        try:
            found: Json = self.api.get(f"{GPU_NODES}/{name}").get("status", {})
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return {}
        return found

    def wait_for_models(self, *models: str) -> None:
        """Return once every replica knows GPUs of these models and of no others."""
        for replica in self.replicas:
            wait_for(lambda replica=replica: replica.knows(models))  # type: ignore[misc]

    def configure(self, text: str) -> None:
        """Change the settings."""
        self.api.patch(SETTINGS, {"data": {"settings.yaml": text}})

    def add_replica(self, *options: str) -> Replica:
        """Add a replica with further *options*, which is not started yet."""
        number = len(self.replicas)
        port, health = free_port(), free_port()
        command: list[str | Path] = [
            sys.executable,
            self.tree / "vgpu.py",
            "webhook",
            f"--listen=127.0.0.1:{port}",
            f"--health=127.0.0.1:{health}",
            f"--kubeconfig={self.kubeconfig}",
            "--name=127.0.0.1",
            "--drain=1",
            *options,
        ]
        process = Process(f"webhook-{number}", command, self.plane.folder / f"webhook-{number}.log")
        self.replicas.append(Replica(process, port, health))
        return self.replicas[-1]

    def point_at(self, port: int) -> None:
        """Let the API server call this port; a Service's job, for which there is no network."""
        for document in registrations(url=f"https://127.0.0.1:{port}"):
            wait_for(lambda document=document: self.register(document))  # type: ignore[misc]

    def register(self, document: Json) -> bool:
        """Write a registration with the bundles that it has; say whether no replica was quicker."""
        place = f"{HOOKS}/{document['kind'].lower()}s/{document['metadata']['name']}"
        standing = self.api.get(place)
        bundles = {
            hook["name"]: hook["clientConfig"].get("caBundle") for hook in standing["webhooks"]
        }
        for hook in document["webhooks"]:
            if bundle := bundles.get(hook["name"]):
                hook["clientConfig"]["caBundle"] = bundle
        standing["webhooks"] = document["webhooks"]
        try:
            self.api.replace(place, standing)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            return False
        return True

    def bundles(self) -> set[str]:
        """Return the bundles that the registrations carry, in base64."""
        return {
            hook["clientConfig"].get("caBundle", "")
            for kind in ("mutating", "validating")
            for hook in self.api.get(f"{HOOKS}/{kind}webhookconfigurations/vgpu-admission")[
                "webhooks"
            ]
        }

    def stop(self) -> None:
        """Stop every replica; the control plane stays."""
        for replica in self.replicas:
            replica.process.stop()

    def wait_until_called(self) -> None:
        """Return once the API server calls us about pods that ask, and believes the answers."""
        wait_for(lambda: all(self.bundles()))
        probe = self.namespace()
        wait_for(lambda: not self.refusal(probe, pod()))
        for replica in self.replicas:
            wait_for(lambda replica=replica: replica.knows_paths())  # type: ignore[misc]


@contextlib.contextmanager
def installation(  # noqa: PLR0913 -- what a site may differ in
    programs: Mapping[str, Path],
    folder: Path,
    *,
    replicas: int = 1,
    options: Sequence[str] = (),
    settings: Settings | None = None,
    tree: Path = MANIFESTS.parent,
) -> Iterator[Installation]:
    """Yield a cluster with the base and replicas run with *options*, whose first one is called.

    Replicas run the sources in *tree*.
    """
    plane = ControlPlane(folder, programs, settings or Settings(), data=base_data(programs))
    with plane, plane.api() as api, contextlib.ExitStack() as stack:
        account = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/vgpu-webhook/token"
        spec = {"spec": {"expirationSeconds": 7200}}
        token = api.create(account, spec).body["status"]["token"]
        kubeconfig = _kubeconfig(plane, token, folder / "webhook.kubeconfig")
        found = Installation(plane=plane, api=api, kubeconfig=kubeconfig, tree=tree)
        stack.callback(found.stop)
        for _ in range(replicas):
            found.add_replica(*options)
        # First, because a replica reads what the registrations call when it starts, and then
        # every five seconds.
        found.point_at(found.first.port)
        for replica in found.replicas:
            replica.start()
        found.wait_until_called()
        yield found
        for replica in found.replicas:
            replica.check_records()


def base_data(programs: Mapping[str, Path]) -> Path:
    """Return what etcd has of a cluster on which the base was applied, for others to start with.

    Applying it takes as long as all else that starts, and every module of tests has a cluster.
    """
    return _base_data(*(programs[name] for name in (ETCD, API_SERVER, "kubectl")))


@functools.cache
def _base_data(etcd: Path, api_server: Path, kubectl: Path) -> Path:
    """Do what the README tells an operator to do, once in the life of this process."""
    folder = Path(tempfile.mkdtemp(prefix="vgpu-base-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    plane = ControlPlane(folder / "plane", {ETCD: etcd, API_SERVER: api_server})
    with plane:
        base = ["apply", "-k", str(MANIFESTS / "base")]
        command = [str(kubectl), f"--kubeconfig={plane.kubeconfig}"]
        for arguments in (base, ["wait", "--for=condition=Established", "crd", "--all"]):
            done = subprocess.run(
                [*command, *arguments], capture_output=True, check=False, text=True
            )
            assert done.returncode == 0, done.stderr
        plane.stop(API_SERVER)
        plane.stop(ETCD)
        copy_data(plane.data, folder / "data")
    return folder / "data"


def _kubeconfig(plane: ControlPlane, token: str, path: Path) -> Path:
    """Write a kubeconfig of our own account, so that every right is really needed."""
    config: Any = json.loads(plane.kubeconfig.read_text())
    config["users"] = [{"name": "admin", "user": {"token": token}}]
    path.write_text(json.dumps(config))
    return path


def sample(name: str) -> Json:
    """Return a sample as its author applies it; of a Deployment, the pod that it makes."""
    written: Json = yaml.safe_load(
        (MANIFESTS.parent / "webhook/samples/pods" / f"{name}.yaml").read_text()
    )
    if written["kind"] == "Pod":
        return written
    return {"metadata": {"generateName": "made-"}, "spec": written["spec"]["template"]["spec"]}
