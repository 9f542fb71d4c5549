"""A mutating hook that answers as a test wants, in place of somebody else's or of a broken one."""

import base64
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

from certs.issue import IssueParameters, Names
from certs.refresh_controller import throwaway
from tests.cluster.api import Json

HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_POLL = 0.01  # seconds until it notices that it should end


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to answer: what is added to `allowed: true`, with which status, how late."""

    response: Json
    status: int = 200
    seconds: float = 0.0


def patch(*operations: Json) -> Json:
    """Return the part of a response that carries these operations."""
    return {"patchType": "JSONPatch", "patch": encoded(json.dumps(operations))}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@dataclass(frozen=True, slots=True)
class Stub:
    """A running stub: its port, and the bundle that verifies it."""

    port: int
    bundle: bytes

    def entry(self, way: str, name: str, **more: object) -> Json:
        """Return the registration of one way for CREATE of pods; *more* goes into the hook."""
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
        return {
            "name": name,
            "clientConfig": {
                "url": f"https://127.0.0.1:{self.port}/{way}",
                "caBundle": base64.b64encode(self.bundle).decode(),
            },
            "rules": [{**rule, "operations": ["CREATE"]}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **more,
        }


@contextlib.contextmanager
def stub_hook(folder: Path, ways: Mapping[str, Way]) -> Iterator[Stub]:
    """Yield a stub that answers each path as *ways* says."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            way = ways[self.path.strip("/").partition("?")[0]]
            body = self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(way.seconds)
            answer = _answer(body, way)
            self.send_response(way.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    names = Names(dns=("stub",), addresses=(ip_address("127.0.0.1"),))
    bundle, pair = throwaway(IssueParameters(names=names))
    path = folder / "pair.pem"
    path.write_bytes(pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True  # the API server keeps its connections
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(_POLL,))
        thread.start()
        yield Stub(server.server_port, bundle)
        server.shutdown()
        thread.join()


def _answer(body: bytes, way: Way) -> bytes:
    uid = json.loads(body)["request"]["uid"]
    response = {"uid": uid, "allowed": True, **way.response}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps({**review, "response": response}).encode()
