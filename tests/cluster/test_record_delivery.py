"""Records of a real webhook reach a console by certificates that the webhook issued for both."""

import base64
import contextlib
import json
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.audit.record import CertificateRecord, ReconfiguredRecord
from console.records.query import EVERYTHING, RecordFilter
from console.store.opening import open_store
from manifests.generator.names import AGENT, CONTROL_PLANE
from tests.builders.pods import MEMORY, pod
from tests.cluster.api import ApiError, Json, wait_for
from tests.cluster.installation import SYSTEM, Installation, Replica, installation
from tests.cluster.ports import free_port
from tests.cluster.process import Process
from tests.cluster.site import MANIFESTS
from tests.cluster.test_console import account_kubeconfig, is_ready
from tests.cluster.test_simulated_agent import NODE, Node, bound, served_by_kubelet
from tests.cluster.volcano import http_get
from tests.fakes.pki import Authority
from tests.fakes.records_console import RecordsConsole, listening

AGENTS = "vgpu-admission-agents"
KEYS = {"ca.crt", "tls.crt", "tls.key"}
SERVICE = "vgpu-console.vgpu-admission-system.svc"


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("records")
    # The first replica keeps the certificates, and finds no console.
    options = ["--audit-url=https://127.0.0.1:1"]
    with installation(programs, folder, options=options) as found:
        components = MANIFESTS / "components"
        rights = [
            f"--filename={components / name / 'rbac.yaml'}" for name in ("console", "records")
        ]
        kubeconfig = f"--kubeconfig={found.plane.kubeconfig}"
        subprocess.run([programs["kubectl"], kubeconfig, "apply", *rights], check=True)
        yield found


def secret(site: Installation, namespace: str, name: str) -> dict[str, bytes]:
    """Return the data of a Secret, nothing where it does not exist."""
    try:
        found = site.api.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
    except ApiError:
        return {}
    return {key: base64.b64decode(text) for key, text in (found.get("data") or {}).items()}


def pair_file(data: Mapping[str, bytes], folder: Path) -> Path:
    path = folder / "pair.pem"
    path.write_bytes(data["tls.crt"] + data["tls.key"])
    return path


def mount(
    site: Installation, folder: Path, authority: Authority, *, account: str = CONTROL_PLANE
) -> None:
    """Do kubelet's part. There is no DNS, so the console has another certificate here."""
    *_, namespace, name = account.split(":")
    data = secret(site, namespace, "vgpu-audit-client")
    for key in ("tls.crt", "tls.key"):
        (folder / key).write_bytes(data[key])
    (folder / "ca.crt").write_bytes(authority.certificate)
    spec: Json = {"audiences": ["vgpu-console"], "expirationSeconds": 3600}
    if account == AGENT:
        uid = site.api.get(NODE)["metadata"]["uid"]
        spec["boundObjectRef"] = {"kind": "Node", "apiVersion": "v1", "name": "sim-1", "uid": uid}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    token = site.api.create(path, {"spec": spec}).body["status"]["token"]
    (folder / "token").write_text(token)


def console_context(site: Installation, authority: Authority) -> ssl.SSLContext:
    """Return the context of a console that knows senders by its own Secret."""
    context = authority.server()
    bundle = secret(site, SYSTEM, "vgpu-console-tls")["ca.crt"]
    context.load_verify_locations(cadata=bundle.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def sender(site: Installation, folder: Path, port: int) -> Replica:
    """Start a replica that sends its records, which is called from now on."""
    folder.mkdir()
    replica = site.add_replica(
        f"--audit-url=https://127.0.0.1:{port}",
        f"--audit-certificates={folder}",
        f"--audit-token={folder / 'token'}",
        f"--audit-spool={folder / 'spool'}",
    )
    replica.start()
    site.point_at(replica.port)
    site.wait_until_called()
    return replica


def written(replica: Replica) -> set[str]:
    return {str(line["id"]) for line in replica.lines() if "kind" in line and "schema" in line}


def test_certificates_are_issued_and_records_survive_kills(
    site: Installation, tmp_path: Path
) -> None:
    """The Secrets of both namespaces come by themselves; no record is lost or stored twice."""
    port, authority, console = free_port(), Authority("console"), RecordsConsole()
    files = tmp_path / "audit"
    replica = sender(site, files, port)
    for namespace in (SYSTEM, AGENTS):
        wait_for(lambda space=namespace: secret(site, space, "vgpu-audit-client").keys() >= KEYS)  # type: ignore[misc]
    wait_for(lambda: secret(site, SYSTEM, "vgpu-console-tls").keys() >= KEYS)
    namespace = site.namespace()
    site.create(namespace, {**pod(), "metadata": {"name": "before"}})
    wait_for(lambda: replica.metric("vgpu_audit_spooled_bytes") > 0)

    mount(site, files, authority)
    context = console_context(site, authority)
    with listening(console, context, port):
        wait_for(lambda: written(replica) <= console.stored.keys())
    site.create(namespace, {**pod(), "metadata": {"name": "meanwhile"}})
    wait_for(lambda: replica.metric("vgpu_audit_spooled_bytes") > 0)
    time.sleep(1.5)  # more than lines are gathered for
    before_kill = written(replica)
    replica.process.kill()
    replica.start()
    with listening(console, context, port):
        wait_for(lambda: before_kill | written(replica) <= console.stored.keys())
        wait_for(lambda: replica.metric("vgpu_audit_queue_length") == 0)

    names = {json.loads(line).get("pod") for line in console.lines}
    assert {"before", "meanwhile"} <= names
    assert replica.metric("vgpu_audit_dropped_total") == 0
    assert replica.metric("vgpu_audit_rejected_total") == 0


def real_console(site: Installation, folder: Path, authority: Authority, *, port: int) -> Process:
    """Return a console that takes records at *port*, which is not started yet."""
    served = folder / "served"
    served.mkdir()
    serving = authority.issue("server")
    (served / "tls.crt").write_bytes(serving.certificate)
    (served / "tls.key").write_bytes(serving.key)
    (served / "ca.crt").write_bytes(secret(site, SYSTEM, "vgpu-console-tls")["ca.crt"])
    kubeconfig = account_kubeconfig(site.plane, site.api, folder / "console.kubeconfig")
    command: list[str | Path] = [
        *(sys.executable, MANIFESTS.parent / "vgpu.py", "console"),
        *(f"--listen=127.0.0.1:{free_port()}", f"--records=127.0.0.1:{port}"),
        *(f"--health=127.0.0.1:{port + 1}", f"--cert-files={served}", "--drain=1"),
        *(f"--store={folder / 'records.db'}", f"--kubeconfig={kubeconfig}"),
    ]
    return Process("console", command, folder / "console.log")


@pytest.mark.timeout(600)
def test_a_real_console_has_every_record_after_kills_of_both(
    site: Installation, tmp_path: Path
) -> None:
    """Each pod's admission, once, from whom the API server knows as our webhook."""
    port, authority, files = free_port(), Authority("console"), tmp_path / "audit"
    replica = sender(site, files, port)
    wait_for(lambda: secret(site, SYSTEM, "vgpu-audit-client").keys() >= KEYS)
    wait_for(lambda: secret(site, SYSTEM, "vgpu-console-tls").keys() >= KEYS)
    mount(site, files, authority)
    console = real_console(site, tmp_path, authority, port=port)
    namespace, killed = site.namespace(), set[str]()
    try:
        for number in range(3):
            console.start(lambda: is_ready(port + 1), within=30)
            site.create(namespace, {**pod(), "metadata": {"name": f"p-{number}"}})
            wait_for(lambda: replica.metric("vgpu_audit_queue_length") == 0, within=60)
            console.kill()
            site.create(namespace, {**pod(), "metadata": {"name": f"q-{number}"}})
            wait_for(lambda: replica.metric("vgpu_audit_spooled_bytes") > 0)
            time.sleep(1.5)  # more than lines are gathered for
            killed |= written(replica)
            replica.process.kill()
            replica.start()
        console.start(lambda: is_ready(port + 1), within=30)
        wait_for(lambda: replica.metric("vgpu_audit_queue_length") == 0, within=60)
        everything = killed | written(replica)
    finally:
        console.stop()

    assert replica.metric("vgpu_audit_rejected_total") == 0
    assert replica.metric("vgpu_audit_dropped_total") == 0
    with contextlib.closing(open_store(str(tmp_path / "records.db"))) as store:
        stored = list(store.export(EVERYTHING, RecordFilter()))
    ids = [each.record.id for each in stored]
    assert everything <= set(ids)
    assert len(set(ids)) == len(ids)
    names = {each.record.pod for each in stored}
    assert {f"{each}-{number}" for each in "pq" for number in range(3)} <= names
    own = {"webhook, by certificate and token", "the console itself"}  # it records its certificate
    assert {each.sender for each in stored} == own


def agent_of(node: Node, folder: Path, port: int) -> Process:
    """Return the agent of *node* with the options of the component, which is not started yet."""
    options = node.options
    command: list[str | Path] = [
        *(sys.executable, MANIFESTS.parent / "vgpu.py", "agent", "--driver=simulated"),
        *(f"--node-name={options.node}", f"--fleet={options.fleet}", f"--root={options.root}"),
        *(f"--kubelet-dir={options.kubelet}", f"--metrics=127.0.0.1:{node.port}"),
        *(f"--kubeconfig={node.kubeconfig}", f"--audit-url=https://127.0.0.1:{port}"),
        *(f"--audit-certificates={folder}", f"--audit-token={folder / 'token'}"),
        f"--audit-spool={folder / 'spool'}",
    ]
    return Process("agent", command, folder / "agent.log")


def test_a_real_console_believes_an_agent_of_its_node(site: Installation, tmp_path: Path) -> None:
    """Its records name the node of its token, whatever its certificate is."""
    port, authority, files = free_port(), Authority("ours"), tmp_path / "audit"
    files.mkdir()
    wait_for(lambda: secret(site, AGENTS, "vgpu-audit-client").keys() >= KEYS)
    console = real_console(site, tmp_path, authority, port=port)
    console.start(lambda: is_ready(port + 1), within=30)
    with served_by_kubelet(tmp_path / "kubelet"):
        site.api.create("/api/v1/nodes", {"metadata": {"name": "sim-1"}})
        mount(site, files, authority, account=AGENT)
        node = Node(site, tmp_path)
        agent = agent_of(node, files, port)
        try:
            node.start(agent)
            bound(node, site.namespace(), "p", mode="mig", **{MEMORY: 4000})
            scrape = "vgpu_audit_delivered_total 1.0"
            wait_for(lambda: scrape in (http_get(node.port, "/metrics") or ""), within=60)
        finally:
            agent.stop()
            console.stop()

    with contextlib.closing(open_store(str(tmp_path / "records.db"))) as store:
        sender = "agent of node sim-1, by certificate and token"
        found = [one for one in store.export(EVERYTHING, RecordFilter()) if one.sender == sender]
    reconfigured, certificate = sorted(
        (one.record for one in found), key=lambda record: isinstance(record, CertificateRecord)
    )
    assert {record.node for record in (reconfigured, certificate)} == {"sim-1"}
    assert isinstance(reconfigured, ReconfiguredRecord)
    assert isinstance(certificate, CertificateRecord)
    assert reconfigured.done
    assert certificate.not_after


def test_the_console_is_believed_by_its_senders(site: Installation, tmp_path: Path) -> None:
    """By the name of its Service, in both directions, with nothing but the Secrets."""
    wait_for(lambda: secret(site, SYSTEM, "vgpu-console-tls").keys() >= KEYS)
    server_data = secret(site, SYSTEM, "vgpu-console-tls")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair_file(server_data, tmp_path))
    server.load_verify_locations(cadata=server_data["ca.crt"].decode())
    server.verify_mode = ssl.CERT_REQUIRED
    for namespace in (SYSTEM, AGENTS):
        data = secret(site, namespace, "vgpu-audit-client")
        client = ssl.create_default_context(cadata=data["ca.crt"].decode())
        client.load_cert_chain(pair_file(data, tmp_path))

        peer = handshake(client, server)

        assert peer["subject"] == ((("commonName", "vgpu-audit-client"),),)


def handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> Mapping[str, object]:
    """Shake hands in memory, and return what the server learns of its caller."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = client.wrap_bio(to_client, to_server, server_hostname=SERVICE)
    answerer = server.wrap_bio(to_server, to_client, server_side=True)
    done = set[ssl.SSLObject]()
    for _ in range(10):
        for side in (caller, answerer):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                continue
    assert len(done) == 2
    peer = answerer.getpeercert()
    assert peer is not None
    return dict(peer)
