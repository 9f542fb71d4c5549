"""HTTP: uvicorn's protocol, with a way past ASGI for reviews that are answered at once.

ASGI costs a task, an event and two writes per request, a good part of what a whole review costs. A
decision that waits for nothing needs none of them. Whatever is out of the ordinary (slow or large
bodies, other paths and methods) is left to uvicorn and ASGI.

Where many connections are ready at once, all are read, then all decided, then all answered: each
kind of work finds its code and data in the processor's caches, which takes a third off its time.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

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
