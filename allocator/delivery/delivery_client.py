"""Sends batches of records to the console, and says what became of each.

The console proves itself by a certificate of our authority, and nothing that it answers is trusted:
answers are bounded in time and size, redirects are not followed, and only an answer that accounts
for each line sent counts as one.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import aiohttp
import msgspec

from allocator.model.untrusted import inert
from kube.clock import SYSTEM
from kube.config import Access
from kube.credentials import Credentials
from kube.errors import ConfigError, shorten

PATH: Final = "/v3/records"
TIMEOUT: Final = 15.0  # seconds of one call, its answer included
CONNECT_TIMEOUT: Final = 5.0  # seconds for one TCP and TLS handshake
LARGEST_ANSWER: Final = 1024 * 1024  # bytes
LONGEST_PAUSE: Final = 300.0  # seconds that the console may ask for
_MOST_REASONS: Final = 3  # of rejected lines, for a log line
_LONGEST_REASON: Final = 200  # characters
_CLOSING_SECONDS: Final = 0.1  # that the loop needs to close connections which were given up
_OK, _UNAUTHORIZED, _FORBIDDEN, _TOO_LARGE = 200, 401, 403, 413
_BUSY: Final = frozenset((429, 503))
_HEADERS: Final = {"Content-Type": "application/jsonl", "Accept": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """The console has the lines, but for those that it ``rejected``, some of them with reasons."""

    delivered: int
    rejected: int = 0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The console takes no request of that size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotDelivered:
    """The lines have to be sent again."""

    why: str
    pause: float | None = None  # seconds that the console asks for
    others_may_pass: bool = False  # the fault may lie in these very lines


Answer = Acknowledged | TooLarge | NotDelivered


class _RejectedLine(msgspec.Struct):
    why: str = ""


class _Counts(msgspec.Struct):
    stored: int
    known: int
    rejected: list[_RejectedLine] = []


class DeliveryClient:
    """Calls one console; an async context manager that owns the connections."""

    def __init__(self, access: Access, *, timeout: float = TIMEOUT) -> None:
        """Store how to reach it; files are read at the first call, and again as they change."""
        self._url = access.url.rstrip("/") + PATH
        self._ca = access.ca
        self._credentials = Credentials(access, SYSTEM)
        self._timeout = aiohttp.ClientTimeout(
            total=timeout, sock_connect=min(timeout, CONNECT_TIMEOUT)
        )
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            timeout=self._timeout,
            connector=aiohttp.TCPConnector(limit=1),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(_CLOSING_SECONDS)

    async def post(self, lines: bytes, *, records: int) -> Answer:
        """Send *lines*, which are that many *records*; raises nothing."""
        if self._session is None:
            raise RuntimeError("the client is used outside its `async with` block")
        try:
            if isinstance(self._ca, Path) and not self._ca.stat().st_size:
                # The system's authorities would count otherwise.
                return NotDelivered(why=f"credentials: {self._ca} is empty")
            async with self._session.post(
                self._url,
                data=lines,
                headers={**_HEADERS, **self._credentials.headers()},
                ssl=self._credentials.tls(),
                allow_redirects=False,  # it would take our token elsewhere
            ) as response:
                try:
                    return await self._answer(response, records)
                except BaseException:
                    _abort(response)
                    raise
        except ConfigError as error:
            return NotDelivered(why=str(error))
        except TimeoutError:
            return NotDelivered(why=f"no complete answer in {self._timeout.total:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return NotDelivered(why=shorten(str(error) or type(error).__name__))

    async def _answer(self, response: aiohttp.ClientResponse, records: int) -> Answer:
        if response.status in {_UNAUTHORIZED, _FORBIDDEN}:
            self._credentials.forget()
        if response.status == _OK:
            return _counted(await _bounded_body(response), records)
        _abort(response)  # whatever else it has to say
        if response.status == _TOO_LARGE:
            return TooLarge()
        after = response.headers.get("Retry-After", "")
        pause = float(after) if after.isascii() and after.isdigit() else None
        waits = response.status in _BUSY
        return NotDelivered(
            why=f"the console answers {response.status}",
            pause=min(pause, LONGEST_PAUSE) if waits and pause is not None else None,
            others_may_pass=not waits and response.status not in {_UNAUTHORIZED, _FORBIDDEN},
        )


def _abort(response: aiohttp.ClientResponse) -> None:
    """Close its connection at once; an orderly end would wait for the console."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


async def _bounded_body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    while chunk := await response.content.readany():
        body += chunk
        if len(body) > LARGEST_ANSWER:
            raise ValueError(f"the answer exceeds {LARGEST_ANSWER} bytes")
    return bytes(body)


def _counted(body: bytes, records: int) -> Answer:
    """Return what *body* says of *records* lines; one that does not account for all says nothing.

    It may give fewer reasons than it rejects lines.
    """
    try:
        counts = msgspec.json.decode(body, type=_Counts)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return NotDelivered(why="the answer is not that of a console", others_may_pass=True)
    delivered = counts.stored + counts.known
    rejected = records - delivered
    if min(counts.stored, counts.known, rejected) < 0 or (rejected > 0 and not counts.rejected):
        why = f"the answer accounts for {delivered} of {records} records"
        return NotDelivered(why=why, others_may_pass=True)
    reasons = dict.fromkeys(inert(line.why[:_LONGEST_REASON]) for line in counts.rejected)
    return Acknowledged(
        delivered=delivered, rejected=rejected, reasons=tuple(reasons)[:_MOST_REASONS]
    )
