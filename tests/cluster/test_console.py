"""The console on a real API server: real tokens, real certificates, real rights."""

import contextlib
import http.client
import json
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.builders.sent_records import Line, admission, body_of, health
from tests.cluster.api import Api, wait_for
from tests.cluster.control_plane import ControlPlane, Settings
from tests.cluster.installation import SYSTEM
from tests.cluster.ports import free_port
from tests.cluster.process import Process
from tests.cluster.site import MANIFESTS
from tests.fakes.pki import Authority, Issued

OURS, CLUSTER = Authority("ours"), Authority("cluster")
AGENTS = "vgpu-admission-agents"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LINES = (
    admission(namespace="team-a", pod="pod-of-a", digest="digest-a", user="amy"),
    admission(namespace="team-b", pod="pod-of-b", digest="digest-b", user="bob"),
)


@dataclass(slots=True, kw_only=True)
class ConsoleSite:
    """A control plane with a console beside it."""

    plane: ControlPlane
    api: Api
    process: Process
    pages: int
    records: int
    health: int

    def token(self, namespace: str, account: str, *, pod: str = "", audience: str = "") -> str:
        """Return a token of a service account, bound to a pod if one is named."""
        spec: dict[str, Any] = {"expirationSeconds": 7200}
        if audience:
            spec["audiences"] = [audience]
        if pod:
            uid = self.api.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")["metadata"]["uid"]
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        made: str = self.api.create(path, {"spec": spec}).body["status"]["token"]
        return made

    def ask(
        self,
        path: str,
        who: str = "",
        *,
        body: bytes | None = None,
        shown: Issued | None = None,
        **headers: str,
    ) -> tuple[int, Any]:
        """Ask the pages, or send a body to the port of records; return status and JSON or text."""
        port = self.pages if body is None else self.records
        connection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=20, context=client_tls(shown)
        )
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if who:
            sent["Authorization"] = f"Bearer {who}"
        with contextlib.closing(connection):
            connection.request("GET" if body is None else "POST", path, body, sent)
            answer = connection.getresponse()
            text = answer.read().decode()
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, json.loads(text) if is_json else text

    def send(self, who: str, *lines: Line) -> tuple[int, Any]:
        return self.ask("/v1/records", who, body=body_of(lines), shown=OURS.issue("sender"))


def client_tls(shown: Issued | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=OURS.certificate.decode())
    if shown is not None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(shown.certificate + shown.key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleSite]:
    """Install what the overlay console has, and run the console as its own account."""
    folder = tmp_path_factory.mktemp("console")
    authority = folder / "cluster-ca.crt"
    authority.write_bytes(CLUSTER.certificate)
    settings = Settings(api_server_flags=[f"--client-ca-file={authority}"])
    plane = ControlPlane(folder / "plane", programs, settings)
    with plane, plane.api() as api:
        kubectl = [str(programs["kubectl"]), f"--kubeconfig={plane.kubeconfig}"]
        overlay = ["apply", "-k", str(MANIFESTS / "overlays/console")]
        applied = subprocess.run([*kubectl, *overlay], capture_output=True, check=False, text=True)
        assert applied.returncode == 0, applied.stderr
        populate(api)
        tls = folder / "tls"
        tls.mkdir()
        serving = OURS.issue("console")
        (tls / "ca.crt").write_bytes(OURS.certificate)
        (tls / "tls.crt").write_bytes(serving.certificate)
        (tls / "tls.key").write_bytes(serving.key)
        pages, records, status = free_port(), free_port(), free_port()
        kubeconfig = account_kubeconfig(plane, api, folder / "console.kubeconfig")
        command: list[str | Path] = [
            sys.executable,
            MANIFESTS.parent / "vgpu.py",
            "console",
            f"--listen=127.0.0.1:{pages}",
            f"--records=127.0.0.1:{records}",
            f"--health=127.0.0.1:{status}",
            f"--cert-files={tls}",
            f"--store={folder / 'records.db'}",
            f"--kubeconfig={kubeconfig}",
            "--drain=1",
        ]
        process = Process("console", command, folder / "console.log")
        found = ConsoleSite(
            plane=plane, api=api, process=process, pages=pages, records=records, health=status
        )
        process.start(lambda: is_ready(status), within=30)
        try:
            webhook = found.token(SYSTEM, "vgpu-webhook", audience="vgpu-console")
            assert found.send(webhook, *LINES)[1]["stored"] == 2
            yield found
        finally:
            process.stop()


def is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    with contextlib.closing(connection), contextlib.suppress(OSError):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    return False


def account_kubeconfig(plane: ControlPlane, api: Api, path: Path) -> Path:
    account = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/vgpu-console/token"
    token = api.create(account, {"spec": {"expirationSeconds": 7200}}).body["status"]["token"]
    config = json.loads(plane.kubeconfig.read_text())
    config["users"] = [{"name": "admin", "user": {"token": token}}]
    path.write_text(json.dumps(config))
    return path


def populate(api: Api) -> None:
    """Make namespaces, viewers of each, and an agent on a node."""
    for name in ("team-a", "team-b"):
        api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        api.create(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "viewer"}})
        grant(api, name, [account_subject(name, "viewer")], resources=["pods"])
    grant(api, "team-a", [{"kind": "User", "name": "amy"}], resources=["pods"], name="amy")
    for account, resources in (
        ("auditor", ["pods", "nodes", "events"]),
        ("operator", ["nodes"]),
        ("nobody", []),
    ):
        accounts = "/api/v1/namespaces/team-a/serviceaccounts"
        api.create(accounts, {"metadata": {"name": account}})
        grant(api, "", [account_subject("team-a", account)], resources=resources, name=account)
    api.create("/api/v1/nodes", {"metadata": {"name": "node-1"}})
    pod = {
        "metadata": {"name": "agent"},
        "spec": {
            "nodeName": "node-1",
            "serviceAccountName": "vgpu-agent",
            "containers": [{"name": "agent", "image": "agent"}],
        },
    }
    api.create(f"/api/v1/namespaces/{AGENTS}/pods", pod)


def account_subject(namespace: str, name: str) -> Line:
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


def grant(
    api: Api, namespace: str, subjects: list[Line], *, resources: list[str], name: str = "viewer"
) -> None:
    """Let *subjects* get *resources* in a namespace, or everywhere."""
    kind = "Role" if namespace else "ClusterRole"
    root = f"{RBAC}/namespaces/{namespace}" if namespace else RBAC
    rules = [{"apiGroups": [""], "resources": resources, "verbs": ["get"]}] if resources else []
    api.create(f"{root}/{kind.lower()}s", {"metadata": {"name": name}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    for subject in subjects:
        if subject["kind"] == "User":
            subject["apiGroup"] = "rbac.authorization.k8s.io"
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}
    api.create(f"{root}/{kind.lower()}bindings", binding)


def pods_seen(site: ConsoleSite, who: str = "", shown: Issued | None = None) -> set[str]:
    status, page = site.ask("/api/v1/decisions", who, shown=shown)
    assert status == 200, page
    return {row["pod"] for row in page["rows"]}


@pytest.mark.parametrize(
    ("namespace", "account", "seen"),
    [
        ("team-a", "viewer", {"pod-of-a"}),
        ("team-b", "viewer", {"pod-of-b"}),
        ("team-a", "auditor", {"pod-of-a", "pod-of-b"}),
        ("team-a", "operator", set[str]()),
        ("team-a", "nobody", set[str]()),
    ],
)
def test_a_token_sees_what_its_account_may_read(
    site: ConsoleSite, namespace: str, account: str, *, seen: set[str]
) -> None:
    """By the roles of the cluster, and nothing of ours."""
    assert pods_seen(site, site.token(namespace, account)) == seen


def test_a_client_certificate_of_the_cluster_is_a_user(site: ConsoleSite) -> None:
    """The authority is the one that the API server publishes."""
    wait_for(lambda: site.ask("/api/v1/overview", shown=CLUSTER.issue("amy"))[0] == 200)
    assert pods_seen(site, shown=CLUSTER.issue("amy")) == {"pod-of-a"}
    assert pods_seen(site, shown=CLUSTER.issue("eve")) == set()


@pytest.mark.parametrize("who", ["", "invalid", "a.b.c"])
def test_without_a_token_of_the_cluster_nothing_is_seen(site: ConsoleSite, who: str) -> None:
    """No page either."""
    assert site.ask("/api/v1/decisions", who)[0] == 401
    assert site.ask("/decisions", who)[0] == 303


def test_a_token_for_somebody_else_is_not_taken(site: ConsoleSite) -> None:
    """Neither one for the console as a sender, nor one for another service."""
    for audience in ("vgpu-console", "vault"):
        token = site.token("team-a", "auditor", audience=audience)
        assert site.ask("/api/v1/decisions", token)[0] == 401


def test_only_webhook_and_agents_send(site: ConsoleSite) -> None:
    """With a token for the console, and an agent for its own node."""
    agent = site.token(AGENTS, "vgpu-agent", pod="agent", audience="vgpu-console")
    status, answer = site.send(agent, health("node-1"), health("node-2"), admission())
    assert (status, answer["stored"]) == (200, 1)
    assert [each["line"] for each in answer["rejected"]] == [2, 3]

    unbound = site.token(AGENTS, "vgpu-agent", audience="vgpu-console")
    assert site.send(unbound, health("node-1"))[0] == 403
    stranger = site.token("team-a", "auditor", audience="vgpu-console")
    assert site.send(stranger, admission())[0] == 403
    for audience in ("", "vault"):
        webhook = site.token(SYSTEM, "vgpu-webhook", audience=audience)
        assert site.send(webhook, admission())[0] == 401


def test_pages_show_what_somebody_may_see(site: ConsoleSite) -> None:
    """Nodes for who may read them, decisions of their own namespaces for others."""
    auditor, viewer = site.token("team-a", "auditor"), site.token("team-a", "viewer")

    for who, seen, unseen in (
        (auditor, ["pod-of-a", "pod-of-b", "amy"], []),
        (viewer, ["pod-of-a"], ["pod-of-b", "team-b", "amy", "bob"]),
    ):
        status, text = site.ask("/decisions", who)
        assert status == 200
        assert [name for name in (*seen, *unseen) if name in text] == seen
    wait_for(lambda: site.ask("/nodes", auditor)[0] == 200, within=30)  # the definition is new
    for path in ("/", "/pods", "/nodes", "/waiting", "/records", "/namespaces", "/health"):
        status, text = site.ask(path, auditor)
        assert status == 200, (path, text)
        status, text = site.ask(path, viewer)
        assert status == (403 if path in {"/nodes", "/health"} else 200), (path, text)
        assert not [name for name in ("team-b", "pod-of-b", "node-1") if name in text], path


def test_its_authority_is_published(site: ConsoleSite) -> None:
    """For kubectl vgpu, which sends tokens to no other."""
    path = f"/api/v1/namespaces/{SYSTEM}/configmaps/vgpu-console-ca"
    published = wait_for(lambda: site.api.get(path).get("data", {}).get("ca.crt"))
    assert published == OURS.certificate.decode()


def test_its_account_changes_nothing(site: ConsoleSite) -> None:
    """But that one ConfigMap; it reads no secret."""
    account = f"system:serviceaccount:{SYSTEM}:vgpu-console"

    def may(verb: str, resource: str, *, namespace: str = "", name: str = "") -> bool:
        attributes = {"verb": verb, "resource": resource, "namespace": namespace, "name": name}
        spec = {"user": account, "resourceAttributes": attributes}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        allowed: bool = site.api.create(path, {"spec": spec}).body["status"]["allowed"]
        return allowed

    assert may("patch", "configmaps", namespace=SYSTEM, name="vgpu-console-ca")
    for namespace in ("", SYSTEM, "kube-system", "team-a"):
        for verb in ("get", "list"):
            assert not may(verb, "secrets", namespace=namespace)
        for resource in ("pods", "nodes", "configmaps", "namespaces", "serviceaccounts"):
            for verb in ("create", "update", "patch", "delete", "impersonate"):
                assert not may(verb, resource, namespace=namespace), (verb, resource, namespace)


def test_no_acknowledged_record_is_lost(site: ConsoleSite) -> None:
    """Although the console is killed while it stores, again and again."""
    webhook = site.token(SYSTEM, "vgpu-webhook", audience="vgpu-console")
    acknowledged: set[str] = set()
    for _ in range(3):
        for _ in range(5):
            lines = [admission(namespace="team-a", digest=f"k{n}") for n in range(200)]
            status, answer = site.send(webhook, *lines)
            assert (status, answer["stored"]) == (200, 200)
            acknowledged |= {line["id"] for line in lines}
        with contextlib.suppress(OSError, http.client.HTTPException):
            cut = [admission(namespace="team-a") for _ in range(2000)]
            connection = http.client.HTTPSConnection(
                "127.0.0.1", site.records, timeout=20, context=client_tls(OURS.issue("sender"))
            )
            with contextlib.closing(connection):
                headers = {"Authorization": f"Bearer {webhook}"}
                connection.request("POST", "/v1/records", body_of(cut), headers)
                site.process.kill()
        site.process.start(lambda: is_ready(site.health), within=30)

    auditor, found, after = site.token("team-a", "auditor"), set[str](), ""
    while True:
        status, page = site.ask(
            f"/api/v1/records?kinds=admission&limit=1000&after={after}", auditor
        )
        assert status == 200
        found |= {row["record"]["id"] for row in page["rows"]}
        after = page["after"]
        if not after:
            break
    assert acknowledged <= found
