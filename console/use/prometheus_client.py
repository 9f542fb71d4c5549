"""Questions to a Prometheus, which knows what is used now of what was promised."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

LARGEST_ANSWER: Final = 32 << 20  # bytes; that of 50,000 series
SECONDS: Final = 10.0  # for one question
_CHUNK: Final = 1 << 16  # bytes read at once


class PrometheusError(Exception):
    """Prometheus cannot be asked, refused, or answered something else; the text says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusTarget:
    """Where a Prometheus is; a token is read again for each question, because it may change."""

    url: str
    token: Path | None = None
    ca: Path | None = None  # None: the authorities of the system

    def fault(self) -> str:
        """Return why this cannot be used, empty where it can."""
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # a port out of range, or an unclosed bracket
            return f"{self.url!r} is not an address; accepted: http://HOST:PORT or https://HOST"
        if not usable or parts.query or parts.fragment:
            return f"{self.url!r} is not an address; accepted: http://HOST:PORT or https://HOST"
        if self.token is not None and parts.scheme != "https":
            return "a token is sent over https only; accepted: https://HOST"
        return ""


class PrometheusClient:
    """Instant queries of one Prometheus; :func:`connect_prometheus` makes one."""

    def __init__(self, target: PrometheusTarget, session: aiohttp.ClientSession) -> None:
        """Ask *target* through *session*."""
        self._target = target
        self._session = session

    async def query(self, expression: str) -> object:
        """Return the ``data`` of the answer to *expression*; raises :class:`PrometheusError`."""
        url = f"{self._target.url.rstrip('/')}/api/v1/query"
        try:
            token = self._target.token.read_text().strip() if self._target.token else ""
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            # The question may be longer than a URL can be, and a redirect would take the token on.
            async with self._session.post(
                url, data={"query": expression}, headers=headers, allow_redirects=False
            ) as answer:
                body = await _bounded(answer.content)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise PrometheusError(f"no answer: {str(error) or type(error).__name__}") from error
        return _data(body, answer.status)


async def _bounded(content: aiohttp.StreamReader) -> bytes:
    body = bytearray()
    async for chunk in content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > LARGEST_ANSWER:
            raise PrometheusError(f"the answer exceeds {LARGEST_ANSWER} bytes")
    return bytes(body)


class _Answer(msgspec.Struct):
    status: str
    data: object = None
    error: str = ""


def _data(body: bytes, status: int) -> object:
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PrometheusError(f"HTTP {status}, which is no answer of Prometheus") from error
    if answer.status != "success":
        raise PrometheusError(f"HTTP {status}: {answer.error[:200]}")
    return answer.data


@asynccontextmanager
async def connect_prometheus(
    target: PrometheusTarget | None,
) -> AsyncIterator[PrometheusClient | None]:
    """Lend a client of *target*, ``None`` for none; raises ``OSError`` for a CA file."""
    if target is None:
        yield None
        return
    tls = ssl.create_default_context(cafile=None if target.ca is None else str(target.ca))
    connector = aiohttp.TCPConnector(ssl=tls, limit=8)
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield PrometheusClient(target, session)
