"""An API server that holds a cluster of GPUs and answers reads, for ``benchmarks.console``."""

import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson

from allocator.catalog.boards import MODELS
from allocator.model.gpu import Gpu, Node
from allocator.model.request import Mode
from certs.issue import IssueParameters, Names
from certs.refresh_controller import throwaway
from tests.builders.gpunodes import entry, gpu_node
from tests.builders.model import T4, soft_grant
from tests.builders.pods import MEMORY, MODE, NUMBER

NAMESPACE = "team-a"
WAITING = "waiting"  # the pod that no node takes
GPUS_PER_NODE = 8
_GRANT = 12_000  # MiB of a GPU with 15,360
_WANTED = 9_000
_NOT_FOUND = {"kind": "Status", "reason": "NotFound", "message": "not found", "code": 404}
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleCluster:
    """What the server keeps: lists by the path of their collection."""

    lists: Mapping[str, Sequence[Json]]
    objects: Mapping[str, Json] = field(default_factory=dict)

    def answer(self, path: str, query: Mapping[str, Sequence[str]]) -> tuple[int, bytes]:
        """Return the status and the body of a GET."""
        if path in self.objects:
            return 200, orjson.dumps(self.objects[path])
        if path not in self.lists:
            return 404, orjson.dumps(_NOT_FOUND)
        items = self.lists[path]
        start = int(query.get("continue", ["0"])[0])
        end = start + int(query.get("limit", ["0"])[0] or len(items))
        metadata = {"resourceVersion": "1"} | ({"continue": str(end)} if end < len(items) else {})
        return 200, orjson.dumps({"metadata": metadata, "items": items[start:end]})


def cluster(pods: int, decisions: int = 0) -> ConsoleCluster:
    """Return a cluster in which *pods* pods have a GPU each, and one more waits.

    Its console has recorded *decisions* decisions.
    """
    nodes = -(-pods // GPUS_PER_NODE)
    held = [_pod(f"train-{number}", node=_node_name(number)) for number in range(pods)]
    waiting = _pod(WAITING, node="")
    collection = f"/api/v1/namespaces/{NAMESPACE}/pods"
    return ConsoleCluster(
        lists={
            "/apis/vgpu-admission.io/v1alpha1/gpunodes": [
                _gpu_node(node, pods) for node in range(nodes)
            ],
            "/api/v1/nodes": [_machine(node) for node in range(nodes)],
            collection: [*held, waiting],
            f"/api/v1/namespaces/{NAMESPACE}/events": [_event(number) for number in range(5)],
        },
        objects={
            f"{collection}/{WAITING}": waiting,
            f"/api/v1/namespaces/{NAMESPACE}": {"metadata": {"name": NAMESPACE, "labels": {}}},
            "/api/v1/decisions": {"rows": list(map(_decision, range(decisions))), "after": ""},
        },
    )


def _node_name(number: int) -> str:
    return f"gpu-{number // GPUS_PER_NODE:04}"


def _gpu_node(number: int, pods: int) -> Json:
    name = f"gpu-{number:04}"
    gpus = tuple(
        Gpu(
            uuid=f"GPU-{name}-{index}",
            index=index,
            model=T4,
            memory=MODELS[T4].memory,
            mode=Mode.HAMI_CORE,
            slots=10,
        )
        for index in range(GPUS_PER_NODE)
    )
    first = number * GPUS_PER_NODE
    entries = [
        entry(f"train-{first + index}", soft_grant(_GRANT, 50, gpu=gpu.uuid))
        for index, gpu in enumerate(gpus)
        if first + index < pods
    ]
    written: Json = orjson.loads(orjson.dumps(gpu_node(Node(name=name, gpus=gpus), entries)))
    return written


def _machine(number: int) -> Json:
    name = f"gpu-{number:04}"
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-10-21T09:00:00Z",
            "labels": {f"example.com/label-{label}": "x" * 20 for label in range(30)},
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"bootID": "boot-1"},
            "images": [{"names": [f"registry.example.com/image-{n}"]} for n in range(50)],
        },
    }


def _pod(name: str, *, node: str) -> Json:
    memory = _GRANT if node else _WANTED
    resources = {"limits": {NUMBER: "1", MEMORY: str(memory)}}
    running = {"state": {"running": {"startedAt": "2026-11-21T12:00:00Z"}}, "name": "main"}
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": name,
            "creationTimestamp": "2026-11-21T12:00:00Z",
            "labels": {"app": "train", "pod-template-hash": "5d8f7b"},
            "annotations": {MODE: "hami-core"},
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example.com/team/train:1",
                    "resources": resources,
                    "env": [{"name": f"VARIABLE_{n}", "value": "x" * 20} for n in range(20)],
                    "volumeMounts": [{"name": "kube-api-access", "mountPath": "/var/run"}],
                }
            ],
            "schedulerName": "default-scheduler",
        }
        | ({"nodeName": node} if node else {}),
        "status": {
            "phase": "Running" if node else "Pending",
            "conditions": [{"type": "PodScheduled", "status": "True" if node else "False"}],
            "containerStatuses": [running] if node else [],
        },
    }


def _decision(number: int) -> Json:
    grant = {"gpu": f"GPU-{number}", "mode": "hami-core", "memory_mib": _GRANT}
    return {
        "digest": f"digest{number:04}",
        "pod_uid": f"uid-{number}",
        "first": "2026-11-21T12:00:00.000Z",
        "last": "2026-11-21T12:00:00.000Z",
        "verdict": "rewritten",
        "namespace": NAMESPACE,
        "pod": f"train-{number}",
        "owner": {"kind": "ReplicaSet", "name": "train", "uid": "uid-train"},
        "user": "system:serviceaccount:kube-system:replicaset-controller",
        "requester": "amy",
        "requester_source": "workload",
        "mode": "hami-core",
        "asked": [{"name": "main", "count": 1, "memory_mib": _WANTED}],
        "given": [{"name": "main", "devices": [grant]}],
        "node": _node_name(number),
        "state": "running",
    }


def _event(number: int) -> Json:
    return {
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": f"0/{number} nodes are available",
        "source": {"component": "default-scheduler"},
        "lastTimestamp": "2026-11-21T12:00:00Z",
    }


@contextmanager
def served(kept: ConsoleCluster, folder: Path) -> Iterator[Path]:
    """Serve *kept* over TLS from a thread; lend the path of a kubeconfig, written to *folder*."""
    names = Names(dns=("localhost",), addresses=(ip_address("127.0.0.1"),))
    authority, pair = throwaway(IssueParameters(names=names))
    (folder / "tls.pem").write_bytes(pair.certificate + pair.key)
    (folder / "ca.crt").write_bytes(authority)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.pem")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(kept))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield _kubeconfig(folder, server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _kubeconfig(folder: Path, port: int) -> Path:
    address = {"server": f"https://127.0.0.1:{port}", "certificate-authority": "ca.crt"}
    path = folder / "config"
    document = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": address}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}
        ],
    }
    path.write_bytes(orjson.dumps(document))
    return path


def _handler(kept: ConsoleCluster) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            status, body = kept.answer(url.path, parse_qs(url.query))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    return Handler
