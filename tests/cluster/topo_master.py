"""MetaX's topo-master, as far as it is published: it tells which nodes form a supernode."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(slots=True)
class TopoMaster:
    """A server whose answer a test changes; without a tree it answers 503."""

    tree: list[dict[str, Any]] | None
    url: str = ""


@contextlib.contextmanager
def topo_master(tree: list[dict[str, Any]] | None) -> Iterator[TopoMaster]:
    """Serve *tree* on a port of its own."""
    told = TopoMaster(tree)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/node_group" and told.tree is not None
            body = json.dumps(told.tree).encode() if known else b"not now"
            self.send_response(200 if known else 503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_port}/node_group"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
