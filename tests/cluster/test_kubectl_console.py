"""The plugin reaches the console: kubectl, API server, kubelet and container runtime are real.

The console listens on the machine of the test. A pod in the network of its node stands where the
console's pod would be, so a port-forward to it arrives there.
"""

import base64
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from allocator.audit.record import parse_record
from console.history.console_client import AUTHORITIES, KEY
from console.history.port_forward_client import PORT, SERVICE
from console.records.rows import StoredRecord
from console.store.opening import open_store
from tests.builders.sent_records import admission
from tests.cluster.api import Json, wait_for
from tests.cluster.control_plane import Settings
from tests.cluster.image.archive import PROBE
from tests.cluster.installation import PODS, installation
from tests.cluster.kubelet import Node
from tests.cluster.node_pods import RUN_WITHIN, phase
from tests.cluster.node_site import node_of
from tests.cluster.ports import free_port
from tests.cluster.process import Process
from tests.cluster.site import MANIFESTS
from tests.cluster.test_console import is_ready
from tests.cluster.test_kubectl import RBAC, install
from tests.fakes.pki import Authority

pytestmark = pytest.mark.node

OURS, CLUSTER = Authority("ours"), Authority("cluster")
PERSON = "carol"  # with a certificate
Vgpu = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def node(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Yield a node that the API server finds by its name, on loopback."""
    folder = tmp_path_factory.mktemp("localhost")
    (folder / "plane").mkdir()
    authority = folder / "cluster-ca.crt"
    authority.write_bytes(CLUSTER.certificate)
    settings = Settings(api_server_flags=[f"--client-ca-file={authority}"])
    with (
        installation(programs, folder / "plane", settings=settings) as site,
        node_of(site, programs, folder / "localhost") as found,
    ):
        yield found


@pytest.fixture(scope="module")
def system(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield a namespace with a console that holds one decision about a pod there."""
    folder = tmp_path_factory.mktemp("console")
    name, api, port, status = node.site.namespace(), node.site.api, free_port(), free_port()
    tls = folder / "tls"
    tls.mkdir()
    names = x509.SubjectAlternativeName([x509.DNSName(f"{SERVICE}.{name}.svc")])
    issued = OURS.issue("console", names)
    (tls / "ca.crt").write_bytes(OURS.certificate)
    (tls / "tls.crt").write_bytes(issued.certificate)
    (tls / "tls.key").write_bytes(issued.key)
    line = admission(namespace=name, pod="asked", digest="k7q2m4x9tb")
    with contextlib.closing(open_store(str(folder / "records.db"))) as store:
        store.append([StoredRecord(record=parse_record(json.dumps(line)), sender="webhook")])
    core = f"/api/v1/namespaces/{name}"
    api.create(
        f"{core}/configmaps",
        {"metadata": {"name": AUTHORITIES}, "data": {KEY: OURS.certificate.decode()}},
    )
    ports = [{"name": "pages", "port": PORT, "targetPort": port}]
    spec = {"selector": {"stands": "console"}, "ports": ports}
    api.create(f"{core}/services", {"metadata": {"name": SERVICE}, "spec": spec})
    command: list[str | Path] = [
        *(sys.executable, MANIFESTS.parent / "vgpu.py", "console"),
        *(f"--listen=127.0.0.1:{port}", f"--records=127.0.0.1:{free_port()}"),
        *(f"--health=127.0.0.1:{status}", f"--cert-files={tls}", "--drain=1"),
        *(f"--store={folder / 'records.db'}", f"--kubeconfig={node.site.plane.kubeconfig}"),
        f"--prometheus=http://127.0.0.1:{free_port()}",  # where nobody listens
    ]
    process = Process("console", command, folder / "console.log")
    process.start(lambda: is_ready(status), within=60)
    try:
        node.site.create(name, stand_in(port))
        wait_for(
            lambda: phase(api.get(f"{PODS.format(name)}/console")) == "Running", within=RUN_WITHIN
        )
        yield name
    finally:
        process.stop()
        api.delete(PODS.format(name), {"gracePeriodSeconds": 0})


def stand_in(port: int) -> Json:
    container = {
        "name": "main",
        "image": PROBE,
        "command": ["/probe", "sleep", "1000"],
        "ports": [{"containerPort": port, "hostPort": port}],
    }
    return {
        "metadata": {"name": "console", "labels": {"stands": "console"}},
        "spec": {"nodeName": "localhost", "hostNetwork": True, "containers": [container]},
    }


@pytest.fixture(scope="module")
def vgpu(
    node: Node,
    system: str,
    *,
    programs: Mapping[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Vgpu:
    """Return what runs `kubectl vgpu` as an account that has the role of the console's users."""
    folder, api = tmp_path_factory.mktemp("person"), node.site.api
    install(folder)
    roles = f"/apis/{RBAC}/v1/clusterroles"
    (role,) = [
        each
        for each in yaml.safe_load_all((MANIFESTS / "components/console/user.yaml").read_text())
        if each["kind"] == "ClusterRole"
    ]
    api.create(roles, role)
    accounts = f"/api/v1/namespaces/{system}/serviceaccounts"
    api.create(accounts, {"metadata": {"name": "reader"}})
    api.create(
        f"/apis/{RBAC}/v1/namespaces/{system}/rolebindings",
        {
            "metadata": {"name": "vgpu-console-users"},
            "roleRef": {"kind": "ClusterRole", "name": role["metadata"]["name"], "apiGroup": RBAC},
            "subjects": [
                {"kind": "ServiceAccount", "name": "reader", "namespace": system},
                {"kind": "User", "name": PERSON, "apiGroup": RBAC},
            ],
        },
    )
    spec = {"spec": {"expirationSeconds": 7200}}
    token = api.create(f"{accounts}/reader/token", spec).body["status"]["token"]

    def run(*arguments: str, user: Json | None = None) -> subprocess.CompletedProcess[str]:
        config = json.loads(node.site.plane.kubeconfig.read_text())
        config["users"] = [{"name": "admin", "user": user or {"token": token}}]
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        where = (f"--system-namespace={system}", f"--namespace={system}")
        return subprocess.run(
            [str(programs["kubectl"]), "vgpu", *arguments, *where],
            capture_output=True,
            check=False,
            env=os.environ
            | {
                "HOME": str(folder),
                "KUBECONFIG": str(path),
                "PATH": f"{folder}:{programs['kubectl'].parent}:{os.environ['PATH']}",
                "READER_TOKEN": token,
            },
            text=True,
            timeout=60,
        )

    return run


def test_a_token_goes_through_the_port_forward_to_the_console(vgpu: Vgpu, system: str) -> None:
    """With the rights of the role that is shipped, and with no others."""
    done = vgpu("decisions", "-o", "json")

    assert (done.returncode, done.stderr) == (0, "")
    (item,) = json.loads(done.stdout)["items"]
    assert (item["namespace"], item["pod"], item["digest"]) == (system, "asked", "k7q2m4x9tb")


def test_a_token_of_an_exec_plugin_does_too(vgpu: Vgpu) -> None:
    """Kubectl runs the plugin for the port-forward, and we run it for the console."""
    version = "client.authentication.k8s.io/v1"
    program = (
        "import json, os; print(json.dumps({'apiVersion': '" + version + "', 'kind':"
        " 'ExecCredential', 'status': {'token': os.environ['READER_TOKEN']}}))"
    )
    plugin = {
        "apiVersion": version,
        "command": sys.executable,
        "args": ["-c", program],
        "interactiveMode": "Never",
    }

    done = vgpu("decisions", "k7q2m4x9tb", user={"exec": plugin})

    assert (done.returncode, done.stderr) == (0, "")
    assert "REFUSED" in done.stdout


def test_a_client_certificate_does_too(vgpu: Vgpu, system: str) -> None:
    """The console knows the authority that the API server publishes."""
    issued = CLUSTER.issue(PERSON)
    pair = {
        "client-certificate-data": base64.b64encode(issued.certificate).decode(),
        "client-key-data": base64.b64encode(issued.key).decode(),
    }

    def answered() -> bool:
        return vgpu("decisions", user=pair).returncode == 0

    wait_for(answered, within=RUN_WITHIN)  # it reads the authority when it starts
    done = vgpu("decisions", "-o", "json", user=pair)

    (item,) = json.loads(done.stdout)["items"]
    assert (item["namespace"], item["pod"]) == (system, "asked")


def test_a_prometheus_that_does_not_answer_is_no_figure(vgpu: Vgpu) -> None:
    """The console was given one, so use is not known only for now."""
    done = vgpu("top", "pods")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error from the console (502): Prometheus does not answer\n"


def test_who_may_not_forward_is_told_so(vgpu: Vgpu) -> None:
    """Kubectl's words, and the role that grants it."""
    done = vgpu("decisions", user={"token": "nobody"})

    assert done.returncode == 1
    assert "You must be logged in to the server" in done.stderr
