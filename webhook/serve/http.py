"""Uvicorn with hot certificates, the path past ASGI, /metrics and /healthz.

The path past ASGI (:class:`Reviews`) exists for ``benchmarks.webhook``: reviews are answered in
batches, without a task for each. Without that benchmark it could go; every route works in ASGI too.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final

import uvicorn
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from webhook.serve.metrics import WebhookMetrics

AtOnce = Callable[[bytes], tuple[int, bytes]]  # from a whole body to a status and an answer
LARGEST: Final = 64 * 1024  # bytes; uvicorn keeps as many of a request that nobody takes
SLOWEST: Final = 1.0  # seconds for a body that did not come in one piece
_JSON: Final = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
_PLAIN: Final = b"content-length: %d\r\n\r\n"
_OK: Final = 200


class Reviews(HttpToolsProtocol):
    """One connection; ``at_once`` says which paths are answered without ASGI, and by what.

    A body of more than ``largest`` bytes is left to ASGI.
    """

    at_once: ClassVar[Mapping[bytes, AtOnce]] = MappingProxyType({})
    largest: ClassVar[int] = LARGEST
    _answer: AtOnce | None = None  # what answers the request that is coming in
    _parts: tuple[bytes, ...] = ()
    _size: int = 0
    _slow: asyncio.TimerHandle | None = None

    @classmethod
    def with_answers(cls, at_once: Mapping[bytes, AtOnce], largest: int) -> type["Reviews"]:
        """Return the protocol that answers *at_once*, by path, for *largest* bytes at most."""
        return type("Answering", (cls,), {"at_once": at_once, "largest": largest})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        """Begin with nothing to decide and nothing to say."""
        self._due: deque[tuple[AtOnce, bytes]] = deque()
        self._done: deque[tuple[int, bytes]] = deque()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Take what came; a request that is not whole yet has a second for the rest."""
        super().data_received(data)
        if self._answer is not None and self._slow is None:
            self._slow = self.loop.call_later(SLOWEST, self._leave)

    def on_headers_complete(self) -> None:
        """Choose the way of one request."""
        answer = self.at_once.get(self.url.partition(b"?")[0])
        if answer is not None and self._ordinary():
            self._answer = answer
        else:
            self._catch_up()
            super().on_headers_complete()

    def _ordinary(self) -> bool:
        parser = self.parser
        free = self.cycle is None or self.cycle.response_complete
        return (
            free
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and not self.expect_100_continue
            and not self.flow.write_paused
        )

    def on_body(self, body: bytes) -> None:
        """Keep a part of a body."""
        if self._answer is None:
            super().on_body(body)
            return
        self._parts += (body,)
        self._size += len(body)
        if self._size > self.largest:
            self._leave()

    def on_message_complete(self) -> None:
        """See to it that a request that is whole is answered, after all that are ready now."""
        if self._answer is None:
            super().on_message_complete()
            return
        self._due.append((self._answer, b"".join(self._parts)))
        self._forget()
        self.loop.call_soon(self._decide)

    def _decide(self) -> None:
        if self._due:
            answer, body = self._due.popleft()
            self._done.append(answer(body))
            self.loop.call_soon(self._send)

    def _send(self) -> None:
        if self._done:
            status, content = self._done.popleft()
            head = (_JSON if status == _OK else _PLAIN) % len(content)
            self.transport.write(STATUS_LINE[status] + head + content)
            self.on_response_complete()

    def _catch_up(self) -> None:
        """Answer what is due now: answers must leave in the order in which requests came."""
        while self._due:
            self._decide()
        while self._done:
            self._send()

    def _forget(self) -> None:
        """Be ready for the next request."""
        self._answer, self._parts, self._size = None, (), 0
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _leave(self) -> None:
        """Leave a request to uvicorn, where ASGI bounds what is slow and what is large."""
        parts = self._parts
        self._forget()
        self._catch_up()
        super().on_headers_complete()
        for part in parts:
            super().on_body(part)

    def shutdown(self) -> None:
        """Let what is due and what is coming in be answered yet."""
        self._catch_up()
        if self._answer is not None:
            self._leave()
        super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what was coming in and what would go out."""
        self._forget()
        self._due.clear()
        self._done.clear()
        super().connection_lost(exc)


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def routes(metrics: WebhookMetrics, ready: Callable[[], bool]) -> Starlette:
    """Return everything that is not a hot path."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        fine = ready()
        return PlainTextResponse("ready\n" if fine else "not ready\n", 200 if fine else 503)

    async def expose(_: Request) -> Response:
        body = await asyncio.to_thread(generate_latest, metrics.registry)
        return Response(body, media_type=CONTENT_TYPE)

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", expose),
        ]
    )


def identity() -> str:
    """Return this replica's name: the pod's, else host and process."""
    return os.environ.get("POD_NAME") or f"{os.uname().nodename}-{os.getpid()}"


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


def _server_config(
    app: App, http: type[Reviews], *, context: ssl.SSLContext | None, drain: int
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=http,
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
    http = Reviews.with_answers(at_once, listen.largest)
    server = _Server(_server_config(app, http, context=context, drain=drain))
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
