"""Calls of the API server, with credentials, a deadline and retries."""

import errno
import socket
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol, Self, TypedDict, TypeVar, Unpack

import aiohttp
import msgspec

from kube.clock import SYSTEM, Clock
from kube.config import Access
from kube.credentials import Credentials
from kube.errors import ApiError, KubeError, UnreachableError, refusal
from kube.proto.wire import MEDIA_TYPE, status_json
from kube.reader import LARGEST_BODY, LARGEST_REFUSAL
from kube.stream import FrameStream, LineStream, read_whole, translate_errors

TIMEOUT: Final = 10.0  # seconds a call may take, its retries included
SHORTEST_ATTEMPT: Final = 0.01  # seconds of an attempt; aiohttp takes 0 for "no limit"
CONNECT_TIMEOUT: Final = 5.0  # seconds for one TCP and TLS handshake
MOST_ATTEMPTS: Final = 10  # as client-go
# A watch on a quiet kind receives nothing for minutes, so a dead peer is detected by TCP
# keep-alive, in about a minute, and not by a read timeout.
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
JSON: Final = "application/json"
# With JSON for a server, or a proxy, that has nothing else.
PROTOBUF: Final = f"{MEDIA_TYPE}, {JSON}"
PROTOBUF_STREAM: Final = f"{MEDIA_TYPE};stream=watch, {JSON};stream=watch, {JSON}"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"  # JSON is YAML
_T = TypeVar("_T")


class CallOptions(TypedDict, total=False):
    """Options of every call."""

    timeout: float  # seconds for all attempts together
    dry_run: bool  # validate and admit, but store nothing
    accept: str  # media types; JSON if it is not given


# We ignore warnings about unknown fields, and the check for them costs the server time.
_NO_FIELD_WARNINGS: Final = MappingProxyType({"fieldValidation": "Ignore"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One request as data."""

    method: str
    path: str
    options: CallOptions
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON

    @property
    def place(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def query(self) -> dict[str, str]:
        dry = {"dryRun": "All"} if self.options.get("dry_run") else {}
        return {**self.params, **dry}


def _patch(path: str, body: bytes, *, content_type: str, options: CallOptions) -> _Call:
    return _Call(
        method="PATCH",
        path=path,
        params=_NO_FIELD_WARNINGS,
        body=body,
        content_type=content_type,
        options=options,
    )


def version() -> str:
    """Return the version of the distribution.

    A checkout and the image are not installed as a distribution. There the project file says it.
    """
    try:
        return metadata.version("vgpu-admission")
    except metadata.PackageNotFoundError:
        project = Path(__file__).parents[1] / "pyproject.toml"
        return str(tomllib.loads(project.read_text())["project"]["version"])


def user_agent() -> str:
    """Return ``vgpu-admission/<version>``; its first part is the default field manager."""
    return f"vgpu-admission/{version()}"


class ApiClient(Protocol):
    """The calls that parts of the programs make; :class:`Client` says what each does.

    Every call returns the answer's bytes and raises only :class:`KubeError`.
    """

    async def get(self, path: str, **options: Unpack[CallOptions]) -> bytes:
        """Read one object, never from a cache."""

    async def create(self, path: str, body: bytes, **options: Unpack[CallOptions]) -> bytes:
        """Post *body* to a collection or a subresource."""

    async def json_patch(
        self, path: str, ops: Sequence[Mapping[str, object]], **options: Unpack[CallOptions]
    ) -> bytes:
        """Apply *ops* to one object and return it; change nothing if a ``test`` fails."""

    async def merge_patch(
        self, path: str, changes: Mapping[str, object], **options: Unpack[CallOptions]
    ) -> bytes:
        """Merge *changes* into one object; their resource version and uid are preconditions."""

    async def apply(
        self, path: str, body: bytes, *, field_manager: str, **options: Unpack[CallOptions]
    ) -> bytes:
        """Apply *body* server-side, taking over its fields."""

    async def delete(
        self, path: str, *, body: bytes | None = None, **options: Unpack[CallOptions]
    ) -> bytes:
        """Delete one object, if the preconditions in *body* hold."""


class Client:
    """Calls one API server; an async context manager that owns the connection pool.

    Paths are the API's own, such as ``/api/v1/namespaces/default/pods/a``. Every call returns
    the answer's bytes and raises only :class:`KubeError`: :class:`ApiError` when the server
    refused, :class:`UnreachableError` when no answer came before the deadline.

    Retries happen here and nowhere else: on 429 and 5xx that carry ``Retry-After``, and when the
    connection was refused. In addition, aiohttp repeats a GET, PUT or DELETE once if a reused
    connection turns out to be closed, which a resource version makes harmless.
    """

    def __init__(
        self, access: Access, *, clock: Clock = SYSTEM, attempts: int = MOST_ATTEMPTS
    ) -> None:
        """Store the parameters; *clock* paces the retries, *attempts* bounds those of one call."""
        self._access = access
        self._attempts = attempts
        self._clock = clock
        self._credentials = Credentials(access, clock)
        self._session: aiohttp.ClientSession | None = None

    @property
    def namespace(self) -> str:
        """Return the namespace that we run in."""
        return self._access.namespace

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(socket_factory=_keepalive_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=[
                ("Accept", JSON),
                # Compression costs both sides more than it saves on a cluster's network, and
                # without it Content-Length is the size of the answer.
                ("Accept-Encoding", "identity"),
                ("User-Agent", user_agent()),
                *(() if self._access.acting is None else self._access.acting.headers),
            ],
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(
        self, path: str, *, params: Mapping[str, str] | None = None, **options: Unpack[CallOptions]
    ) -> bytes:
        """Read an object or a list; RBAC: get, list."""
        return await self._send(
            _Call(method="GET", path=path, params=params or {}, options=options)
        )

    async def create(self, path: str, body: bytes, **options: Unpack[CallOptions]) -> bytes:
        """Post *body* to a collection or a subresource; RBAC: create.

        Raises :class:`AlreadyExistsError` where the name is taken.
        """
        return await self._send(_Call(method="POST", path=path, body=body, options=options))

    async def replace(self, path: str, body: bytes, **options: Unpack[CallOptions]) -> bytes:
        """Put the whole object; RBAC: update.

        Raises :class:`ConflictError` where the body's resource version is not the newest.
        """
        return await self._send(_Call(method="PUT", path=path, body=body, options=options))

    async def json_patch(
        self, path: str, ops: Sequence[Mapping[str, object]], **options: Unpack[CallOptions]
    ) -> bytes:
        """Apply RFC 6902 operations; RBAC: patch.

        Raises :class:`InvalidError` where a ``test`` fails.
        """
        patch = msgspec.json.encode(ops)
        return await self._send(_patch(path, patch, content_type=JSON_PATCH, options=options))

    async def merge_patch(
        self, path: str, changes: Mapping[str, object], **options: Unpack[CallOptions]
    ) -> bytes:
        """Merge *changes*, where ``None`` removes; RBAC: patch.

        ``metadata.resourceVersion`` in them is a precondition: :class:`ConflictError`.
        """
        patch = msgspec.json.encode(changes)
        return await self._send(_patch(path, patch, content_type=MERGE_PATCH, options=options))

    async def apply(
        self,
        path: str,
        body: bytes,
        *,
        field_manager: str,
        force: bool = True,
        **options: Unpack[CallOptions],
    ) -> bytes:
        """Apply *body* server-side, taking over its fields if *force*; RBAC: patch, create.

        Raises :class:`ConflictError` where another manager owns a field and *force* is false.
        """
        call = _patch(path, body, content_type=APPLY_PATCH, options=options)
        manager = {"fieldManager": field_manager, "force": "true" if force else "false"}
        return await self._send(replace(call, params=manager))

    async def delete(
        self, path: str, *, body: bytes | None = None, **options: Unpack[CallOptions]
    ) -> bytes:
        """Delete one object, *body* being its DeleteOptions; RBAC: delete."""
        return await self._send(_Call(method="DELETE", path=path, body=body, options=options))

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], **options: Unpack[CallOptions]
    ) -> AsyncIterator[LineStream | FrameStream]:
        """Open a watch that lasts at most ``timeout`` seconds; RBAC: watch.

        Yields an iterator over batches of lines; each holds the lines received so far. Where the
        server answers in protobuf, it yields frames.
        """
        call = _Call(method="GET", path=path, params=params, options=options)
        response = await self._retry(call, lambda left: self._exchange(call, left))
        try:
            in_protobuf = response.content_type == MEDIA_TYPE
            stream = FrameStream if in_protobuf else LineStream
            yield stream(response.content, place=call.place)
        finally:
            response.close()

    async def _send(self, call: _Call) -> bytes:
        async def attempt(left: float) -> bytes:
            response = await self._exchange(call, left)
            return await read_whole(response, most=LARGEST_BODY, place=call.place)

        return await self._retry(call, attempt)

    async def _retry(self, call: _Call, attempt: Callable[[float], Awaitable[_T]]) -> _T:
        """Run *attempt*, which takes the seconds left, until it succeeds or may not be repeated."""
        deadline = self._clock.monotonic() + call.options.get("timeout", TIMEOUT)
        failures = 0
        while True:
            try:
                return await attempt(max(deadline - self._clock.monotonic(), SHORTEST_ATTEMPT))
            except KubeError as error:
                failures += 1
                pause = _pause(error, failures, self._clock)
                late = pause is None or self._clock.monotonic() + pause >= deadline
                if pause is None or late or failures >= self._attempts:
                    raise
            await self._clock.sleep(pause)

    async def _exchange(self, call: _Call, seconds_left: float) -> aiohttp.ClientResponse:
        """Send once and return the response with its body unread; raises a refusal as an error."""
        if self._session is None:
            raise RuntimeError("the client is used outside its `async with` block")
        headers = self._credentials.headers()
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        if "accept" in call.options:
            headers["Accept"] = call.options["accept"]
        with translate_errors(call.place):
            response = await self._session.request(
                call.method,
                self._access.url + call.path,
                params=call.query,
                data=call.body,
                headers=headers,
                ssl=self._credentials.tls(),
                server_hostname=self._access.server_name,
                proxy=self._access.proxy,
                allow_redirects=False,  # a redirect would take our token elsewhere
                timeout=aiohttp.ClientTimeout(
                    total=seconds_left, sock_connect=min(seconds_left, CONNECT_TIMEOUT)
                ),
            )
        if response.status >= 300:  # noqa: PLR2004 - the first status that is no success
            raise await self._read_refusal(response, call.place)
        return response

    async def _read_refusal(self, response: aiohttp.ClientResponse, place: str) -> ApiError:
        if response.status == 401:  # noqa: PLR2004 - unauthorized: the token may have rotated
            self._credentials.forget()
        after = response.headers.get("Retry-After", "")
        body = await read_whole(response, most=LARGEST_REFUSAL, place=place)
        error = refusal(status_json(body), status=response.status, place=place)
        error.retry_after = float(after) if after.isascii() and after.isdigit() else None
        return error


def _pause(error: KubeError, failures: int, clock: Clock) -> float | None:
    """Return the seconds after which *error* may be gone, ``None`` where repeating is no help."""
    if isinstance(error, ApiError) and (error.status == 429 or error.status >= 500):  # noqa: PLR2004 - HTTP
        if error.retry_after is None:
            return None
        return error.retry_after + clock.uniform(0, max(1.0, error.retry_after) / 4)
    if isinstance(error, UnreachableError) and _was_refused(error):
        return clock.backoff(failures, first=0.2, most=2.0)
    return None


def _was_refused(error: UnreachableError) -> bool:
    cause = error.__cause__
    return isinstance(cause, aiohttp.ClientConnectorError) and cause.errno == errno.ECONNREFUSED


def _keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    connection = socket.socket(family, kind, protocol)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # Linux has them all
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection
