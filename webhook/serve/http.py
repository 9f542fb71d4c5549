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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Never

import uvicorn
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from webhook.serve.metrics import WebhookMetrics

AtOnce = Callable[[bytes], tuple[int, bytes]]  # from a whole body to a status and an answer
AnswerOf = Callable[[bytes], AtOnce | None]  # from a path, as it came, to what answers it
LARGEST: Final = 64 * 1024  # bytes; uvicorn keeps as many of a request that nobody takes
SLOWEST: Final = 1.0  # seconds for a body that did not come in one piece
# Bounds of one connection, whoever is at its other end. API servers write some kilobytes of
# headers, send at once what they have to say, and read at once what they asked for.
LARGEST_HEAD: Final = 64 * 1024  # bytes of a request that are not its body, trailers too
SLOWEST_REQUEST: Final = 30.0  # seconds for a whole request, the first of a connection too
LARGEST_UNSENT: Final = 64 * 1024  # bytes of answers beyond which no more reviews are decided
SLOWEST_READER: Final = 10.0  # seconds in which none of what was written is read
MOST_CONNECTIONS: Final = 1024  # to one port; further ones are closed at once
SWEEP_SECONDS: Final = 2.0  # between two looks for connections that are too slow
_JSON: Final = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
_PLAIN: Final = b"content-length: %d\r\n\r\n"
_OK: Final = 200


class Bounded(HttpToolsProtocol):
    """One connection that neither grows nor stays without end."""

    _overhead: int = 0  # bytes of the request that is coming in, without its body
    _since: float | None = None  # loop time since which a request is awaited; None: none is
    _stalled: float | None = None  # loop time since which nobody reads; None: somebody does

    @staticmethod
    def admits(_host: str) -> bool:
        """Say whether callers at an address are answered."""
        return True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        """Await a request, unless there are too many connections."""
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what came, and end the connection where a request has too long a head."""
        if self.client is not None and not self.admits(self.client[0]):
            self.send_400_response("callers at this address are not answered")
            return
        self._overhead += len(data)
        super().data_received(data)
        if self._overhead > LARGEST_HEAD and not self.transport.is_closing():
            self.send_400_response(f"headers are over {LARGEST_HEAD} bytes")
        if self._since is None and self.timeout_keep_alive_task is None and self._is_idle():
            self._since = self.loop.time()  # what came began no request

    def _is_idle(self) -> bool:
        """Say whether no answer is due."""
        return self.cycle is None or self.cycle.response_complete

    def on_message_begin(self) -> None:
        """Count from here on."""
        super().on_message_begin()
        self._overhead, self._since = 0, self.loop.time()

    def on_body(self, body: bytes) -> None:
        """Keep a part of a body, which has bounds of its own."""
        self._overhead -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Await nothing more."""
        self._since = None
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Read no more requests of somebody who does not read answers."""
        super().pause_writing()
        self._stalled = self.loop.time()
        self.flow.pause_reading()

    def resume_writing(self) -> None:
        """Go on reading."""
        super().resume_writing()
        self._stalled = None
        self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """Go on with the next request if this answer could be written."""
        super().on_response_complete()
        if self.flow.write_paused:
            self.flow.pause_reading()

    def abort_if_slow(self, now: float) -> None:
        """End the connection if its other side has kept us waiting for too long."""
        waited = 0.0 if self._since is None else now - self._since
        stalled = 0.0 if self._stalled is None else now - self._stalled
        if waited > SLOWEST_REQUEST or stalled > SLOWEST_READER:
            self.transport.abort()


class Reviews(Bounded):
    """One connection, of which some requests are answered without ASGI.

    A body of more than ``largest`` bytes is left to ASGI.
    """

    largest: ClassVar[int] = LARGEST
    _answer: AtOnce | None = None  # what answers the request that is coming in
    _size: int = 0
    _unsent: int = 0  # bytes of answers that are not written yet
    _slow: asyncio.TimerHandle | None = None

    @staticmethod
    def at_once(_path: bytes) -> AtOnce | None:
        """Return what answers a path without ASGI, if anything does."""
        return None

    @classmethod
    def with_answers(cls, at_once: AnswerOf, listen: "Listen") -> type["Reviews"]:
        """Return the protocol that answers *at_once*, within the bounds of *listen*."""
        members = {"at_once": staticmethod(at_once), "admits": staticmethod(listen.admits)}
        return type("Answering", (cls,), {**members, "largest": listen.largest})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        """Begin with nothing to decide and nothing to say."""
        self._due: deque[tuple[AtOnce, bytes]] = deque()
        self._done: deque[tuple[int, bytes]] = deque()
        self._parts: list[bytes] = []
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Take what came; a request that is not whole yet has a second for the rest."""
        super().data_received(data)
        if self._answer is not None and self._slow is None:
            self._slow = self.loop.call_later(SLOWEST, self._leave)

    def on_headers_complete(self) -> None:
        """Choose the way of one request."""
        answer = self.at_once(self.url.partition(b"?")[0])
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
        self._overhead -= len(body)
        self._parts.append(body)
        self._size += len(body)
        if self._size > self.largest:
            self._leave()

    def on_message_complete(self) -> None:
        """See to it that a request that is whole is answered, after all that are ready now."""
        if self._answer is None:
            super().on_message_complete()
            return
        self._since = None
        self._due.append((self._answer, b"".join(self._parts)))
        self._forget()
        self.loop.call_soon(self._decide)

    def _is_idle(self) -> bool:
        return not (self._due or self._done) and super()._is_idle()

    def resume_writing(self) -> None:
        """Decide what had to wait."""
        super().resume_writing()
        for _ in self._due:
            self.loop.call_soon(self._decide)

    def _decide(self) -> None:
        if self._due and self._unsent < LARGEST_UNSENT and not self.flow.write_paused:
            self._decide_next()

    def _decide_next(self) -> None:
        answer, body = self._due.popleft()
        status, content = answer(body)
        self._unsent += len(content)
        self._done.append((status, content))
        self.loop.call_soon(self._send)

    def _send(self) -> None:
        if self._done:
            status, content = self._done.popleft()
            self._unsent -= len(content)
            head = (_JSON if status == _OK else _PLAIN) % len(content)
            self.transport.write(STATUS_LINE[status] + head + content)
            self.on_response_complete()
            if self._due:
                self.loop.call_soon(self._decide)

    def _catch_up(self) -> None:
        """Answer what is due now: answers must leave in the order in which requests came."""
        while self._due:
            self._decide_next()
        while self._done:
            self._send()

    def _forget(self) -> None:
        """Be ready for the next request."""
        self._answer, self._parts, self._size = None, [], 0
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
            self._overhead += len(part)  # which was taken off when it came
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
        self._unsent = 0
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where to listen; port 0 takes a free one.

    A body of more than *largest* bytes is never answered past ASGI. Callers at an address for which
    *admits* returns false are not answered at all.
    """

    host: str
    port: int
    largest: int = LARGEST
    admits: Callable[[str], bool] = Bounded.admits


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
    at_once: AnswerOf = Reviews.at_once,
) -> AsyncIterator[int]:
    """Serve *app* while the block runs, yield the port, then finish what is in flight.

    *drain* is how many seconds open requests get at the end. *at_once* returns what answers a
    whole body at a path without waiting, past *app*. Raises ``OSError`` where the address cannot be
    bound.
    """
    # Bound here and not by uvicorn, which ends the process where the address is taken.
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    sock = socket.create_server((listen.host, listen.port), family=family, backlog=BACKLOG)
    http = Reviews.with_answers(at_once, listen)
    server = _Server(_server_config(app, http, context=context, drain=drain))
    task = asyncio.create_task(server.serve(sockets=[sock]), name=f"serve {listen.port}")
    sweeping = asyncio.create_task(_end_slow(server), name=f"sweep {listen.port}")
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
        sweeping.cancel()


async def _end_slow(server: uvicorn.Server) -> Never:
    """End connections that are too slow, again and again."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        for connection in tuple(server.server_state.connections):
            if isinstance(connection, Bounded):
                connection.abort_if_slow(loop.time())
