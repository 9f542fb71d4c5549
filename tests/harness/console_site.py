"""The console's pages over a simulated cluster: for tests, and by hand.

``python -m tests.harness.console_site [--port 8444] [typical|empty|hostile]`` serves them on
loopback, without TLS and without a login.
"""

import argparse
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request

from console.access.viewer import Viewer
from console.cluster.pod import PodView
from console.cluster.snapshot import ClusterView
from console.records.query import EVERYTHING, Scope
from console.serve.page_routes import page_routes
from console.serve.page_services import PageServices
from console.store.store import RecordStore
from tests.builders.console import (
    hostile_records,
    hostile_rows,
    typical_records,
    typical_rows,
    typical_usage,
)
from tests.builders.pods import MEMORY, MODE, NUMBER, container, pod
from tests.fakes.record_store import FakeRecordStore
from tests.unit.console.sites import NOW, site, stored

CSRF = "of-this-viewer"


def services(kind: str = "typical", scope: Scope = EVERYTHING) -> PageServices:
    """Return what the pages of a simulated console are made from."""
    stores: dict[str, Callable[[], FakeRecordStore]] = {
        "typical": lambda: FakeRecordStore(typical_rows(), typical_records(), typical_usage()),
        "empty": FakeRecordStore,
        "measured": lambda: FakeRecordStore(typical_rows(), typical_records(), typical_usage()),
        "hostile": lambda: FakeRecordStore(hostile_rows(), hostile_records(), ()),
    }
    return services_of(stores[kind](), kind, scope)


def services_of(
    store: RecordStore, kind: str = "typical", scope: Scope = EVERYTHING
) -> PageServices:
    """Return what pages are made from, with the records of *store*."""
    view = site([], []) if kind == "empty" else site()
    pods = () if kind == "empty" else typical_pods()

    async def viewer(_request: Request) -> Viewer:
        return Viewer(user="amy@example.org", scope=scope, csrf=CSRF)

    def cluster() -> ClusterView:
        return view

    def current_pods() -> tuple[PodView, ...]:
        return pods

    def now() -> datetime:
        return NOW

    return PageServices(
        store=store,
        viewer=viewer,
        cluster=cluster,
        pods=current_pods,
        now=now,
        query=prometheus_answer if kind == "measured" else None,
        version="0.1.0",
        login=True,
    )


async def prometheus_answer(question: str) -> object:
    """Answer as Prometheus does: half of what is promised is used, and one pod is idle."""
    limit = 0.5 if "memory_used" in question else 1.0
    if "topk" in question:
        labels = {"namespace": "team-a", "pod": "train-0", "container": "main"}
        result = [{"metric": labels, "value": [NOW.timestamp(), "30000"]}]
    elif "by (namespace)" in question:
        value = [NOW.timestamp(), str(limit * 19968 * 1024**2)]
        result = [{"metric": {"namespace": "team-a"}, "value": value}]
    else:
        values = [
            [NOW.timestamp() - 720 * step, str(limit * (40 + step % 7) * 1024**3)]
            for step in range(120, -1, -1)
        ]
        result = [{"metric": {}, "values": values}]
    return {"status": "success", "data": {"result": result}}


def typical_pods() -> tuple[PodView, ...]:
    """Return pods that run, wait and have ended."""
    small = pod(container(limits={NUMBER: 1, MEMORY: 3000}))
    large = pod(container(limits={NUMBER: 1, MEMORY: 15000}), annotations={MODE: "hami-core"})
    return (
        stored(
            "train-0",
            pod(container(limits={NUMBER: 1, MEMORY: 18000})),
            node="gpu-a",
            phase="Running",
        ),
        stored("tune-0", small, node="gpu-a", phase="Running"),
        stored("tune-9", large),
        stored(
            "eval-4",
            pod(container(limits={NUMBER: 1, MEMORY: 12000}), annotations={MODE: "hami-core"}),
            node="gpu-b",
        ),
    )


def console_app(kind: str = "typical", scope: Scope = EVERYTHING) -> Starlette:
    """Return the application that serves the pages."""
    return Starlette(routes=page_routes(services(kind, scope)))


@contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """Serve *app* on a free port of loopback, and yield its address."""
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="off")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.02)
            if not thread.is_alive():
                raise RuntimeError("the server ended before it served")
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8444)
    parser.add_argument(
        "kind", nargs="?", default="typical", choices=["typical", "measured", "empty", "hostile"]
    )
    options = parser.parse_args()
    uvicorn.run(console_app(options.kind), host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
