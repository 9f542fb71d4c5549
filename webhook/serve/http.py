"""Reviews past ASGI, and the server of every port of the webhook.

The path past ASGI (:class:`Reviews`) exists for ``benchmarks.webhook``: reviews are answered in
batches, without a task for each. Without that benchmark it could go; every route works in ASGI too.
"""

import asyncio
import contextlib
import os
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import ClassVar, Final

from prometheus_client import generate_latest
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from allocator.cli.http_server import (
    CLOSE,
    App,
    Bounded,
    ConnectionLimits,
    Listen,
    Receive,
    Scope,
    Send,
    serve,
)
from allocator.cli.status_server import status_app
from webhook.serve.metrics import WebhookMetrics

AtOnce = Callable[[bytes], tuple[int, bytes]]  # from a whole body to a status and an answer
AnswerOf = Callable[[bytes], AtOnce | None]  # from a path, as it came, to what answers it
LARGEST: Final = 64 * 1024  # bytes; uvicorn keeps as many of a request that nobody takes
SLOWEST: Final = 1.0  # seconds for a body that did not come in one piece
LARGEST_UNSENT: Final = 64 * 1024  # bytes of answers beyond which no more reviews are decided
_JSON: Final = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
_PLAIN: Final = b"content-length: %d\r\n\r\n"
_OK: Final = 200


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
    def with_answers(cls, at_once: AnswerOf, largest: int) -> type["Reviews"]:
        """Return the protocol that answers *at_once*, for *largest* bytes at most."""
        return type("Answering", (cls,), {"at_once": staticmethod(at_once), "largest": largest})

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
        self._overhead = max(0, self._overhead - len(body))
        self._parts.append(body)
        self._size += len(body)
        if self._size > self.largest:
            self._leave()

    def on_message_complete(self) -> None:
        """See to it that a request that is whole is answered, after all that are ready now."""
        if self._answer is None:
            super().on_message_complete()
            return
        self._overhead = 0
        self.waiting.pop(self, None)
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


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def routes(metrics: WebhookMetrics, ready: Callable[[], bool]) -> App:
    """Return everything that is not a hot path."""
    return status_app(
        lambda: "" if ready() else "not ready",
        lambda: (CONTENT_TYPE, generate_latest(metrics.registry)),
    )


def identity() -> str:
    """Return this replica's name: the pod's, else host and process."""
    return os.environ.get("POD_NAME") or f"{os.uname().nodename}-{os.getpid()}"


@contextlib.asynccontextmanager
async def serve_app(  # noqa: PLR0913 -- as serve has them, and what is answered past it
    app: App,
    listen: Listen,
    *,
    context: ssl.SSLContext | None = None,
    drain: int = 10,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 -- it never changes
    at_once: AnswerOf = Reviews.at_once,
    largest: int = LARGEST,
) -> AsyncIterator[int]:
    """Serve *app* as :func:`allocator.cli.http_server.serve` does, and some requests past it.

    *at_once* returns what answers a whole body at a path without waiting, past *app*; one of more
    than *largest* bytes is left to *app*.
    """
    protocol = Reviews.with_answers(at_once, largest)
    serving = serve(app, listen, context=context, drain=drain, protocol=protocol, limits=limits)
    async with serving as port:
        yield port


async def answer_not_found(scope: Scope, _: Receive, send: Send) -> None:
    """Answer without reading what was sent; a stranger keeps no connection."""
    if scope["type"] == "http":
        await reply(send, 404, b"not found\n", CLOSE)


async def reply(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    """Send a whole answer."""
    length = (b"content-length", str(len(body)).encode())
    start = {"type": "http.response.start", "status": status, "headers": [*headers, length]}
    await send(start)
    await send({"type": "http.response.body", "body": body})
