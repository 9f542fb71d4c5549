"""The console as a person at a terminal asks it: reads over TLS with their own credentials.

A token is sent to nobody but who shows a certificate for the console's name, issued by an authority
that is known by a way that was itself verified.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from allocator.model.untrusted import escaped
from console.cluster.cluster_client import (
    ClusterTarget,
    ConsoleTarget,
    access_to,
    connect_with,
)
from console.history.answers import (
    DECISION,
    DECISIONS,
    RECORDS,
    USAGE,
    USE,
    DecisionAnswer,
    RecordAnswer,
    UsageAnswer,
    refusal_text,
)
from console.history.port_forward_client import SERVICE, PortForward
from console.records.rows import DecisionRow, RowPage
from console.use.figures import UseAnswer
from kube.config import Access
from kube.errors import (
    ApiError,
    ConfigError,
    NotFoundError,
    UnreachableError,
    UnreadableError,
)
from kube.reader import HttpReader

AUTHORITIES: Final = "vgpu-console-ca"  # the ConfigMap with what the console's certificate rests on
KEY: Final = "ca.crt"
T = TypeVar("T")


class ConsoleRefusalError(ApiError):
    """The console refused; its text says why."""


class ConsoleClient:
    """Reads of one console; :func:`connect_console` makes one.

    Every method raises :class:`kube.errors.KubeError`, :class:`ConsoleRefusalError` where the
    console refuses.
    """

    def __init__(
        self, access: Access, forward: PortForward | None, *, namespace: str, seconds: float
    ) -> None:
        """Read with *access*, whose address is that of *forward* where there is one."""
        self.namespace = namespace
        self._access = access
        self._forward = forward
        self._seconds = seconds
        self._reader: HttpReader | None = None

    async def decisions(self, query: Mapping[str, str]) -> RowPage[DecisionRow]:
        """Return a page of decisions, the latest first."""
        return await self._read("/api/v1/decisions", query, DECISIONS)

    async def decision(self, digest: str, pod_uid: str = "") -> DecisionAnswer:
        """Return one decision with its records."""
        parts = "/".join(quote(part, safe="") for part in (digest, pod_uid) if part)
        return await self._read(f"/api/v1/decisions/{parts}", {}, DECISION)

    async def records(self, query: Mapping[str, str]) -> RowPage[RecordAnswer]:
        """Return a page of records, the latest first."""
        return await self._read("/api/v1/records", query, RECORDS)

    async def usage(self, query: Mapping[str, str]) -> UsageAnswer:
        """Return what was promised in a period."""
        return await self._read("/api/v1/usage", query, USAGE)

    async def use(self, query: Mapping[str, str]) -> UseAnswer:
        """Return what is used now of what was promised, where the console asks a Prometheus."""
        return await self._read("/api/v1/use", query, USE)

    async def close(self) -> None:
        """Close the connection, and the way to it."""
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.__aexit__()
        if self._forward is not None:
            await self._forward.close()

    async def _read(
        self, path: str, query: Mapping[str, str], decoder: msgspec.json.Decoder[T]
    ) -> T:
        reader = await self._connected()
        try:
            body = await reader.get(path, params=query, timeout=self._seconds)
        except UnreachableError:
            await self.close()  # a pod of the console that is gone takes its port-forward along
            raise
        return decoded_answer(body, decoder, f"GET {path}")

    async def _connected(self) -> HttpReader:
        if self._reader is None:
            access = self._access
            if self._forward is not None:
                access = replace(access, url=f"https://127.0.0.1:{await self._forward.port()}")
            self._reader = HttpReader(access, console_refusal)
        return self._reader


def decoded_answer(body: bytes, decoder: msgspec.json.Decoder[T], place: str) -> T:
    """Return the answer to *place*; raises :class:`UnreadableError` where it is another one."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(
            f"{place}: not an answer that this version knows: {escaped(str(error))}"
        ) from error


def console_refusal(body: bytes, *, status: int, place: str) -> ApiError:
    """Return the error that the answer of a refused call stands for."""
    text = refusal_text(body) or "it does not say why; is this a console of vgpu-admission?"
    return ConsoleRefusalError(status, "Console", text, place=place)


@asynccontextmanager
async def connect_console(
    target: ClusterTarget, console: ConsoleTarget, system: str
) -> AsyncIterator[ConsoleClient]:
    """Lend a client of the console in the namespace *system*, with the kubeconfig's credentials.

    Raises :class:`kube.errors.KubeError`.
    """
    access = await access_to(target)
    if access.acting is not None:
        raise ConfigError(
            "the console knows a person by their own credentials only, so nobody can act as"
            " somebody else there; accepted: no --as, and no `as` in the kubeconfig"
        )
    own = Access(url="", token=access.token, certificate=access.certificate, key=access.key)
    if console.url is not None:
        forward = None
        own = replace(own, url=_address(console.url), ca=_file(console))
    else:
        forward = PortForward(target, system)
        bundle = _file(console) or await _authorities(access, system, seconds=target.seconds)
        own = replace(own, ca=bundle, server_name=f"{SERVICE}.{system}.svc")
    client = ConsoleClient(own, forward, namespace=access.namespace, seconds=target.seconds)
    try:
        yield client
    finally:
        await client.close()


def _file(console: ConsoleTarget) -> Path | None:
    return None if console.authorities is None else Path(console.authorities)


def _address(url: str) -> str:
    """Return the address of a console without a slash at its end; it must be one of https."""
    if not _is_usable(url):
        raise ConfigError(
            f"--console {url!r} is not where your credentials may go; accepted: https://HOST:PORT"
        )
    return url.rstrip("/")


def _is_usable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # a port out of range, or an unclosed bracket
        return False
    plain = not (parts.query or parts.fragment or parts.username)
    return parts.scheme == "https" and bool(parts.hostname) and port != 0 and plain


async def _authorities(access: Access, system: str, *, seconds: float) -> bytes:
    """Return the authorities that the cluster names for its console."""
    if not (access.verify and access.url.startswith("https:")):
        raise ConfigError(
            "the API server is not verified (http, or insecure-skip-tls-verify), so its word for"
            " the console's authority is worth nothing; accepted: --console-ca FILE"
        )
    async with connect_with(access, seconds=seconds) as cluster:
        try:
            document = await cluster.config_map(system, AUTHORITIES)
        except NotFoundError as error:
            raise ConfigError(
                f"the ConfigMap {AUTHORITIES} does not exist in {system}, so no console is"
                " installed there; accepted: a cluster with the console, or --console https://HOST"
            ) from error
    text = (document.get("data") or {}).get(KEY)
    if not isinstance(text, str) or "BEGIN CERTIFICATE" not in text:
        raise ConfigError(f"the ConfigMap {AUTHORITIES} in {system} has no certificate in {KEY}")
    return text.encode()
