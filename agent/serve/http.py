"""The agent's port: health for kubelet's probes, metrics for Prometheus; plain HTTP, read only."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswers:
    """The sources of the answers."""

    ready: Callable[[], str]  # why the agent is not ready; empty if it is
    metrics: Callable[[], tuple[str, bytes]]  # content type and text


@asynccontextmanager
async def serve_http(answers: HttpAnswers, listen: ListenAddress) -> AsyncIterator[int]:
    """Serve while the block runs, and yield the port; raises ``OSError`` if it is taken."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        why = answers.ready()
        return web.Response(text=f"{why or 'ready'}\n", status=503 if why else 200)

    async def metrics(_: web.Request) -> web.Response:
        kind, body = answers.metrics()
        return web.Response(body=body, headers={"Content-Type": kind})

    app = web.Application()
    app.add_routes(
        [
            web.get("/healthz", healthz),
            web.get("/readyz", readyz),
            web.get("/metrics", metrics),
        ]
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, listen.host, listen.port)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
