"""A real Volcano: its scheduler, controllers and admission, configured as a site does it."""

import base64
import contextlib
import http.client
import json
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from tests.cluster.api import APPLY, Api, ApiError, Json, wait_for
from tests.cluster.controlplane import build, toolchain
from tests.cluster.controlplane.binaries import VOLCANO
from tests.cluster.gate import missing
from tests.cluster.installation import HOOKS, Installation
from tests.cluster.ports import free_port
from tests.cluster.process import Process
from tests.fakes.pki import Authority

SYSTEM = "volcano-system"
SCHEDULER = "volcano-scheduler"
PROGRAMS = ("vc-scheduler", "vc-controller-manager", "vc-webhook-manager", "kwok")
READY_WITHIN = 60.0
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"

# As practice guides have it: no preempt, no reclaim; deviceshare keeps account of vGPUs.
CONFIGURATION = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: deviceshare
    arguments:
      deviceshare.VGPUEnable: true
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""

# Its hooks by path: the group and resources they are asked about, and when.
_MUTATING: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = {
    "/pods/mutate": ("", "v1", "pods", ("CREATE",)),
    "/queues/mutate": ("scheduling.volcano.sh", "v1beta1", "queues", ("CREATE",)),
    "/podgroups/mutate": ("scheduling.volcano.sh", "v1beta1", "podgroups", ("CREATE",)),
    "/jobs/mutate": ("batch.volcano.sh", "v1alpha1", "jobs", ("CREATE",)),
}
_VALIDATING: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = {
    "/pods/validate": ("", "v1", "pods", ("CREATE",)),
    "/queues/validate": ("scheduling.volcano.sh", "v1beta1", "queues", ("CREATE", "UPDATE")),
    "/jobs/validate": ("batch.volcano.sh", "v1alpha1", "jobs", ("CREATE", "UPDATE")),
}


def volcano_programs() -> Mapping[str, Path]:
    """Return Volcano's programs and kwok by name."""
    try:
        return build.build(PROGRAMS, build.to_stderr)
    except toolchain.BuildError as error:
        missing(f"no Volcano: {error}")


@dataclass(slots=True, kw_only=True)
class Volcano:
    """Volcano on an installation of ours."""

    site: Installation
    scheduler: Process
    port: int  # of the scheduler's metrics

    def metric(self, name: str) -> dict[str, float]:
        """Return the samples of one metric of its scheduler by their labels."""
        lines = http_get(self.port, "/metrics").splitlines()
        samples = (line.rpartition(" ") for line in lines if line.startswith(f"{name}{{"))
        return {labels.removeprefix(name): float(value) for labels, _, value in samples}


@contextlib.contextmanager
def volcano(
    site: Installation, found: Mapping[str, Path], configuration: str = CONFIGURATION
) -> Iterator[Volcano]:
    """Install Volcano's programs as *found* and run them until the block ends.

    *configuration* is the scheduler's, ``volcano-scheduler.conf`` of its ConfigMap.
    """
    apply_crds(site.api)
    apply_account(site.api)
    admission_port, health, port = free_port(), free_port(), free_port()
    admission = _admission(found["vc-webhook-manager"], site, admission_port)
    controllers = _controllers(found["vc-controller-manager"], site, health)
    scheduler = _scheduler(found["vc-scheduler"], site, port, configuration=configuration)
    with contextlib.ExitStack() as stack:
        for process, ready in (
            (admission, lambda: _listens(admission_port)),
            (controllers, lambda: bool(http_get(health, "/healthz"))),
            (scheduler, lambda: bool(http_get(port, "/metrics"))),
        ):
            stack.callback(process.stop)
            process.start(ready, within=READY_WITHIN)
        wait_for(lambda: site.api.get(f"{QUEUES}/default"), within=READY_WITHIN)
        yield Volcano(site=site, scheduler=scheduler, port=port)
        assert scheduler.running, f"it crashed on something of ours:\n{scheduler.tail()}"


def apply_crds(api: Api) -> None:
    """Apply the definitions that the release of the programs comes with."""
    go = toolchain.locate(VOLCANO.needs_go, build.cache_folder(), build.to_stderr)
    answer = subprocess.run(
        [go.executable, "mod", "download", "-json", VOLCANO.released_as],
        capture_output=True,
        check=True,
        cwd=VOLCANO.folder,
        env=toolchain.environment(),
        text=True,
    )
    for path in sorted(Path(json.loads(answer.stdout)["Dir"]).glob("config/crd/*/bases/*.yaml")):
        written = yaml.safe_load(path.read_text())
        place = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        api.patch(f"{place}/{written['metadata']['name']}", written, kind=APPLY)
    for kind in ("scheduling.volcano.sh/v1beta1/podgroups", "batch.volcano.sh/v1alpha1/jobs"):
        wait_for(lambda kind=kind: _served(api, kind))  # type: ignore[misc]


def _served(api: Api, kind: str) -> bool:
    """Say whether objects of a new *kind* can be listed; at first the answer is 404, then 429."""
    try:
        api.get(f"/apis/{kind}")
    except ApiError:
        return False
    return True


def apply_account(api: Api) -> None:
    """Let its scheduler be who our policies take it for, with every right."""
    api.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    api.create(f"/api/v1/namespaces/{SYSTEM}/serviceaccounts", {"metadata": {"name": SCHEDULER}})
    subject = {"kind": "ServiceAccount", "name": SCHEDULER, "namespace": SYSTEM}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    body = {"metadata": {"name": SCHEDULER}, "roleRef": role, "subjects": [subject]}
    api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body)


def _scheduler(program: Path, site: Installation, port: int, *, configuration: str) -> Process:
    """Return the scheduler with the account's token where a pod would find it.

    deviceshare asks the API server through that token alone, whatever ``--kubeconfig`` says, so
    the process has a mount namespace of its own.
    """
    folder = site.plane.folder / "volcano-account"
    folder.mkdir()
    path = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{SCHEDULER}/token"
    request = {"spec": {"expirationSeconds": 7200}}
    token: str = site.api.create(path, request).body["status"]["token"]
    (folder / "token").write_text(token)
    (folder / "ca.crt").write_bytes(site.plane.ca_file.read_bytes())
    config = json.loads(site.plane.kubeconfig.read_text())
    config["users"] = [{"name": "admin", "user": {"token": token}}]
    (folder / "kubeconfig").write_text(json.dumps(config))
    (folder / "scheduler.conf").write_text(configuration)
    host = urlsplit(site.plane.url)
    secrets = "/run/secrets/kubernetes.io"
    inside = (
        f"mount -t tmpfs none /run && mkdir -p {secrets} && ln -s {folder} {secrets}/serviceaccount"
        f" && export KUBERNETES_SERVICE_HOST={host.hostname} KUBERNETES_SERVICE_PORT={host.port}"
        ' && exec "$0" "$@"'
    )
    command: list[str | Path] = [
        *("/usr/bin/unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", inside),
        program,
        f"--kubeconfig={folder / 'kubeconfig'}",
        f"--scheduler-conf={folder / 'scheduler.conf'}",
        "--leader-elect=false",
        "--scheduler-name=volcano",
        "--schedule-period=1s",
        f"--listen-address=127.0.0.1:{port}",
        "--enable-metrics=true",
        "--csi-storage=false",
        "--cache-dumper=false",
        "-v=3",
    ]
    return Process("vc-scheduler", command, site.plane.folder / "vc-scheduler.log")


def _controllers(program: Path, site: Installation, port: int) -> Process:
    command: list[str | Path] = [
        program,
        f"--kubeconfig={site.plane.kubeconfig}",
        "--leader-elect=false",
        "--enable-healthz=true",
        f"--healthz-address=127.0.0.1:{port}",
    ]
    return Process("vc-controller-manager", command, site.plane.folder / "vc-controllers.log")


def _admission(program: Path, site: Installation, port: int) -> Process:
    """Return its admission, registered as its chart does it."""
    folder = site.plane.folder
    authority = Authority("volcano")
    issued = authority.issue("volcano-admission")
    (folder / "volcano.crt").write_bytes(issued.certificate)
    (folder / "volcano.key").write_bytes(issued.key)
    (folder / "volcano-ca.crt").write_bytes(authority.certificate)
    for kind, hooks in (("Mutating", _MUTATING), ("Validating", _VALIDATING)):
        for path, asked in hooks.items():
            body = _registration(kind, path, asked, url=f"https://127.0.0.1:{port}{path}")
            body["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(
                authority.certificate
            ).decode()
            site.api.create(f"{HOOKS}/{kind.lower()}webhookconfigurations", body)
    command: list[str | Path] = [
        program,
        f"--kubeconfig={site.plane.kubeconfig}",
        f"--webhook-url=https://127.0.0.1:{port}",
        "--listen-address=127.0.0.1",
        f"--port={port}",
        f"--tls-cert-file={folder / 'volcano.crt'}",
        f"--tls-private-key-file={folder / 'volcano.key'}",
        f"--ca-cert-file={folder / 'volcano-ca.crt'}",
        f"--enabled-admission={','.join((*_MUTATING, *_VALIDATING))}",
    ]
    return Process("vc-webhook-manager", command, folder / "vc-webhook-manager.log")


def _registration(
    kind: str, path: str, asked: tuple[str, str, str, tuple[str, ...]], *, url: str
) -> Json:
    group, version, resource, operations = asked
    name = f"volcano-admission-service{path.replace('/', '-')}"
    hook: Json = {
        "name": f"{path.strip('/').replace('/', '-')}.volcano.sh",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": url},
        "failurePolicy": "Fail",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": 10,
        "rules": [
            {
                "apiGroups": [group],
                "apiVersions": [version],
                "operations": list(operations),
                "resources": [resource],
            }
        ],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [hook],
    }


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2):
        return True
    return False


def http_get(port: int, path: str) -> str:
    """Return what is served there, or nothing."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.read().decode() if answer.status == 200 else ""
    return ""
