"""Reads for a program that lives for a second: HTTP of the standard library, in a thread.

aiohttp, under :mod:`kube.client`, takes a third of a second of processor time to import, which
``python -m benchmarks.console`` bounds for a command that a person types.
"""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from time import monotonic
from typing import Final, Protocol, Self, TypeVar
from urllib.parse import urlencode, urlsplit

from kube.clock import SYSTEM
from kube.config import Access
from kube.credentials import Credentials
from kube.errors import (
    ApiError,
    ConfigError,
    UnreachableError,
    UnreadableError,
    refusal,
    shorten,
)

LARGEST_BODY: Final = 160 << 20  # bytes; a list page of 100 objects at etcd's 1.5 MiB fits
LARGEST_REFUSAL: Final = 1 << 20  # bytes of a refused call's body
CHUNK: Final = 1 << 20  # bytes read at once
USER_AGENT: Final = "kubectl-vgpu"
_T = TypeVar("_T")


class RefusalDecoder(Protocol):
    """Makes an error of the answer to a refused call."""

    def __call__(self, body: bytes, *, status: int, place: str) -> ApiError:
        """Return what *body* says; *status* is that of HTTP, *place* the call."""


class HttpReader:
    """GETs of one API server over one connection; an async context manager that owns it.

    Calls are made one after another, and none is repeated, but for one on a kept connection that
    the server has closed meanwhile.
    """

    def __init__(self, access: Access, refused: RefusalDecoder = refusal) -> None:
        """Store how to reach the server, which is not through a proxy, and how it refuses."""
        self._access = access
        self._refused = refused
        self._credentials = Credentials(access, SYSTEM)
        self._connection: _Connection | None = None

    @property
    def namespace(self) -> str:
        """Return the namespace of the context."""
        return self._access.namespace

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout: float,  # noqa: ASYNC109 -- of sockets, in a thread that nobody cancels
    ) -> bytes:
        """Read an object or a list within *timeout* seconds; raises only :class:`KubeError`."""
        query = f"?{urlencode(params)}" if params else ""
        target = f"{urlsplit(self._access.url).path}{path}{query}"
        return await _in_thread(lambda: self._get(target, f"GET {path}", timeout))

    def _get(self, target: str, place: str, timeout: float) -> bytes:
        deadline = monotonic() + timeout
        try:
            status, body = self._exchange(target, place, deadline)
        except BaseException:
            self._close()
            raise
        if status >= 300:  # noqa: PLR2004 - the first status that is no success
            raise self._refused(body, status=status, place=place)
        return body

    def _exchange(self, target: str, place: str, deadline: float) -> tuple[int, bytes]:
        """Send the request and return the status and the body of the answer."""
        kept = self._connection is not None
        connection = self._connected(place, deadline)
        try:
            response = self._answer(connection, target, deadline)
        except ValueError as error:  # a line break in a token, or a name that is not Latin
            message = f"the credentials have what no HTTP header can carry: {shorten(str(error))}"
            raise ConfigError(message) from error
        except (HTTPException, OSError) as error:
            if not kept or isinstance(error, TimeoutError):
                raise _unreachable(place, error, sent=True) from error
            self._close()  # the server closed it between two calls
            return self._exchange(target, place, deadline)
        most = LARGEST_REFUSAL if response.status >= 300 else LARGEST_BODY  # noqa: PLR2004 - as above
        try:
            body = _whole(response, connection, deadline, most=most)
        except (HTTPException, OSError) as error:
            raise _unreachable(place, error, sent=True) from error
        if len(body) > most:
            raise UnreadableError(f"{place}: the answer exceeds {most} bytes")
        if response.will_close:
            self._close()
        return response.status, body

    def _connected(self, place: str, deadline: float) -> "_Connection":
        """Return the connection, a new one where there is none."""
        if self._connection is None:
            tls = self._credentials.tls()
            connection = _Connection(self._access, tls if isinstance(tls, ssl.SSLContext) else None)
            connection.timeout = _seconds_left(deadline)
            try:
                connection.connect()
            except OSError as error:  # ssl.SSLError is an OSError
                raise _unreachable(place, error, sent=False) from error
            self._connection = connection
        return self._connection

    def _answer(self, connection: "_Connection", target: str, deadline: float) -> HTTPResponse:
        connection.limit(deadline)
        acting = self._access.acting
        headers = (
            ("Accept", "application/json"),
            ("User-Agent", USER_AGENT),
            *self._credentials.headers().items(),
            *(() if acting is None else acting.headers),
        )
        connection.putrequest("GET", target)  # with Host, and without compression
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class _Connection(HTTPConnection):
    """A connection whose certificate may have another name than its host."""

    def __init__(self, access: Access, tls: ssl.SSLContext | None) -> None:
        url = urlsplit(access.url)
        secure = url.scheme == "https"
        super().__init__(url.hostname or "", url.port or (443 if secure else 80))
        self._tls = tls
        self._server_name = access.server_name or url.hostname

    def connect(self) -> None:
        """Connect, and shake hands where the address is one of https."""
        super().connect()
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)

    def limit(self, deadline: float) -> None:
        """Let the next call of the socket end at *deadline*."""
        if self.sock is not None:
            self.sock.settimeout(_seconds_left(deadline))


def _whole(response: HTTPResponse, connection: _Connection, deadline: float, *, most: int) -> bytes:
    """Return the body; a little more than *most* bytes where it is longer."""
    stated = response.length  # None: in chunks, or until the server closes
    body = bytearray()
    while len(body) <= most and len(body) != stated:
        connection.limit(deadline)
        left = CHUNK if stated is None else min(CHUNK, stated - len(body))
        chunk = response.read1(left)
        if not chunk:
            break
        body += chunk
    if stated is not None and len(body) < min(stated, most):
        raise IncompleteRead(b"", stated - len(body))
    if stated is not None:
        response.close()  # `read1` does not count, and the next request needs it at its end
    return bytes(body)


def _seconds_left(deadline: float) -> float:
    """Return the seconds until *deadline*; raises ``TimeoutError`` where it is over."""
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _unreachable(place: str, error: Exception, *, sent: bool) -> UnreachableError:
    cause = shorten(str(error)) or type(error).__name__
    return UnreachableError(f"{place}: no answer: {cause}", sent=sent)


async def _in_thread(work: Callable[[], _T]) -> _T:
    """Run *work* in a thread of its own, which a program that is interrupted does not wait for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def settle(result: _T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # there is one without an error

    def run() -> None:
        result: _T | None = None
        failure: BaseException | None = None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 -- raised again by whoever waits
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, daemon=True).start()
    return await future
