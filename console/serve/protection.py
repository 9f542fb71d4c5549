"""What every answer of the pages' port has in common: headers, bounds, and the way to the login."""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from starlette.responses import Response

from allocator.cli.http_server import App, Message, Receive, Scope, Send
from console.access.login_server import login_address

LARGEST_BODY: Final = 1024 * 1024  # bytes of a form; a pasted manifest is the largest
LARGEST_QUERY: Final = 8 * 1024  # bytes
# Answers that are made or sent at a time: each takes memory until its reader has it, and those that
# wait for a thread hold up others. A browser asks for a page and its files.
MOST_OF_VIEWER: Final = 8
MOST_OF_ALL: Final = 64
CROWD_SECONDS: Final = 1  # after which some of them may have been sent
_HEADERS: Final = {
    b"content-security-policy": b"default-src 'none'; style-src 'self'; script-src 'self';"
    b" img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none';"
    b" frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
    b"cache-control": b"no-store",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}
_API: Final = "/api/"
_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
Observe = Callable[[int, float], None]  # status and seconds of one answer


class TooManyAnswersError(Exception):
    """As many answers are made and sent as may be at a time: to somebody, or to all."""


class AnswerPlaces:
    """Places of answers, so that nobody who may see something keeps others from being answered."""

    def __init__(self, *, of_viewer: int = MOST_OF_VIEWER, of_all: int = MOST_OF_ALL) -> None:
        """Begin with all places free."""
        self._of_viewer = of_viewer
        self._of_all = of_all
        self._taken: Counter[str] = Counter()

    async def answer(self, user: str, make: Callable[[], Awaitable[Response]]) -> Response:
        """Return what *make* returns; *user* holds a place until it was sent.

        Raises :class:`TooManyAnswersError`.
        """
        if self._taken[user] >= self._of_viewer:
            raise TooManyAnswersError(f"{self._of_viewer} answers to you are under way; ask again")
        # Somebody else may have many names, so everybody may have one answer at a time.
        if self._taken[user] and self._taken.total() >= self._of_all:
            raise TooManyAnswersError(f"{self._of_all} answers are under way; ask again")
        self._taken[user] += 1
        try:
            return _PlacedResponse(await make(), lambda: self._end(user))
        except BaseException:
            self._end(user)
            raise

    def _end(self, user: str) -> None:
        self._taken[user] -= 1
        if not self._taken[user]:
            del self._taken[user]


class _PlacedResponse(Response):
    """An answer that holds a place until it was sent, or its reader has gone."""

    def __init__(self, response: Response, end: Callable[[], None]) -> None:
        super().__init__()
        self._response = response
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._response(scope, receive, send)
        finally:
            self._end()


class ProtectedPages:
    """Wraps the application of the pages' port.

    With *loopback_only*, requests must name a loopback host: a page of another site whose name was
    made to point at this machine names that site.
    """

    def __init__(self, app: App, *, observe: Observe, loopback_only: bool = False) -> None:
        """Serve *app*; *observe* is told of each answer."""
        self._app = app
        self._observe = observe
        self._loopback_only = loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        loop = asyncio.get_running_loop()
        answer = _Answer(scope, receive, send)
        began = loop.time()
        try:
            if problem := self._problem(scope):
                await answer.refuse(*problem)
            else:
                await self._app(scope, answer.receive, answer.send)
        except _BodyTooLargeError:
            await answer.refuse(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has {LARGEST_BODY} bytes at most"
            )
        finally:
            self._observe(answer.status, loop.time() - began)

    def _problem(self, scope: Scope) -> tuple[HTTPStatus, str] | None:
        if len(scope["query_string"]) > LARGEST_QUERY:
            return HTTPStatus.REQUEST_URI_TOO_LONG, f"a query has {LARGEST_QUERY} bytes at most"
        if self._loopback_only and not names_loopback(_header(scope, b"host")):
            return HTTPStatus.MISDIRECTED_REQUEST, "address this machine as localhost"
        return None


class _BodyTooLargeError(Exception):
    """A request brings more than a form has."""


class _Answer:
    """One answer: adds what is missing, and sends those who are not known to the login."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._size = 0
        self._redirected = False
        self.status = 500  # until an answer begins

    async def receive(self) -> Message:
        """Return the next part of the body; raises where it becomes too large."""
        message = await self._receive()
        self._size += len(message.get("body", b""))
        if self._size > LARGEST_BODY:
            raise _BodyTooLargeError
        return message

    async def send(self, message: Message) -> None:
        """Pass on one part of the answer."""
        if message["type"] == "http.response.start":
            message = self._start(message)
        elif self._redirected:
            message = {"type": "http.response.body", "more_body": message.get("more_body", False)}
        await self._send(message)

    def _start(self, message: Message) -> Message:
        status, headers = int(message["status"]), list(message.get("headers", ()))
        path = self._scope["path"]
        asks_page = self._scope["method"] in {"GET", "HEAD"} and not path.startswith(_API)
        if status == HTTPStatus.UNAUTHORIZED and asks_page:
            self._redirected = True
            query = self._scope["query_string"].decode("latin-1")
            address = login_address(self._scope["raw_path"].decode("latin-1"), query)
            status, headers = (
                int(HTTPStatus.SEE_OTHER),
                [(b"location", address.encode()), (b"content-length", b"0")],
            )
        self.status = status
        present = {name.lower() for name, _ in headers}
        headers += [pair for pair in _HEADERS.items() if pair[0] not in present]
        return {**message, "status": status, "headers": headers}

    async def refuse(self, status: HTTPStatus, why: str) -> None:
        """Answer in one line of text, unless an answer has begun."""
        if self.status != HTTPStatus.INTERNAL_SERVER_ERROR:
            return
        text = f"{why}\n".encode()
        headers = [
            _TEXT,
            (b"content-length", str(len(text)).encode()),
            (b"connection", b"close"),
        ]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": text})


def _header(scope: Scope, name: bytes) -> str:
    """Return the only header *name*, empty where there is none or several."""
    values = [value for key, value in scope["headers"] if key == name]
    return values[0].decode("latin-1") if len(values) == 1 else ""


_LOOPBACK: Final = re.compile(
    r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", re.ASCII | re.IGNORECASE
)


def names_loopback(host: str) -> bool:
    """Say whether a Host header names this machine and nothing else."""
    return _LOOPBACK.fullmatch(host) is not None
