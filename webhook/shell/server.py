"""Servers: uvicorn as the API server needs it, with certificates that change under traffic."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import uvicorn

from webhook.shell.admission import App
from webhook.shell.protocol import LARGEST, AtOnce, Reviews

# The API server keeps idle connections for 90 s; a server that closes them sooner makes it
# write into a closed connection now and then, which fails the pod.
KEEP_ALIVE: Final = 120
BACKLOG: Final = 2048
_NOTHING: Final[Mapping[bytes, AtOnce]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where to listen; port 0 takes a free one.

    A body of more than *largest* bytes is never answered past ASGI.
    """

    host: str
    port: int
    largest: int = LARGEST


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the program, which runs several of them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serve_app(
    app: App,
    listen: Listen,
    *,
    context: ssl.SSLContext | None = None,
    drain: int = 10,
    at_once: Mapping[bytes, AtOnce] = _NOTHING,
) -> AsyncIterator[int]:
    """Serve *app* while the block runs, yield the port, then finish what is in flight.

    *drain* is how many seconds open requests get at the end. *at_once* holds by path what answers a
    whole body without waiting, past *app*. Raises ``OSError`` where the
    address cannot be bound.
    """
    # Bound here and not by uvicorn, which ends the process where the address is taken.
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    sock = socket.create_server((listen.host, listen.port), family=family, backlog=BACKLOG)
    config = uvicorn.Config(
        app,
        http=Reviews.with_answers(at_once, listen.largest),
        ws="none",
        loop="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=drain,
        backlog=BACKLOG,
        ssl_context_factory=None if context is None else lambda _, __: context,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[sock]), name=f"serve {listen.port}")
    try:
        while not server.started:
            if task.done():
                await task
                raise OSError(f"the server on {listen.host}:{listen.port} ended at once")
            await asyncio.sleep(0.01)
        yield int(sock.getsockname()[1])
    finally:
        server.should_exit = True
        await task
