"""The cluster through a person's own kubeconfig: reads, each bounded in time, and no writes."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec

from console.cluster.kubeconfig_files import access_of
from console.cluster.workload import WorkloadKind
from kube.config import Access, Impersonation
from kube.errors import GoneError, UnreachableError
from kube.reader import HttpReader

GROUP: Final = "vgpu-admission.io"
VERSION: Final = "v1alpha1"
PLURAL: Final = "gpunodes"
PAGE: Final = 500  # objects of one answer, as kubectl asks for
MOST_PAGES: Final = 1000
CORE: Final = "/api/v1"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTarget:
    """Which cluster to read, and how long one call may take."""

    kubeconfig: str | None = None  # one or more paths, separated as in $KUBECONFIG
    context: str | None = None  # None: the current context of the kubeconfig
    seconds: float = 10.0  # for any one call
    acting: Impersonation | None = None  # None: as the kubeconfig says


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleTarget:
    """Where the console is: behind a port-forward, or at *url*."""

    url: str | None = None
    authorities: str | None = None  # a file of PEM; None: the cluster's ConfigMap, or the system's


class _Metadata(msgspec.Struct, frozen=True, rename={"next": "continue"}):
    next: str = ""


class _Page(msgspec.Struct, frozen=True):
    items: list[Json] | None = None
    metadata: _Metadata = _Metadata()


class ReadCalls(Protocol):
    """The one call that is made of an API server."""

    @property
    def namespace(self) -> str:
        """Return the namespace of the context."""

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout: float,  # noqa: ASYNC109 -- of sockets, in a thread that nobody cancels
    ) -> bytes:
        """Read an object or a list within *timeout* seconds."""


class ClusterClient:
    """Reads of one cluster, as the person of the kubeconfig; :func:`connect` makes one.

    Every method raises :class:`kube.errors.KubeError`: ``ApiError`` where the server refuses.
    """

    def __init__(self, client: ReadCalls, *, seconds: float) -> None:
        """Read through *client*, each call within *seconds*."""
        self.namespace = client.namespace
        self._client = client
        self._seconds = seconds

    async def gpu_nodes(self) -> list[Json]:
        """Return every GPUNode."""
        return await self._list("list gpunodes", f"/apis/{GROUP}/{VERSION}/{PLURAL}")

    async def nodes(self, labels: str = "") -> list[Json]:
        """Return the Nodes that a label selector picks."""
        return await self._list("list nodes", f"{CORE}/nodes", labelSelector=labels)

    async def pods(self, namespace: str | None, labels: str = "") -> list[Json]:
        """Return the pods of a namespace, or of all with ``None``."""
        path = f"{CORE}/pods" if namespace is None else _path(CORE, namespace, "pods")
        return await self._list("list pods", path, labelSelector=labels)

    async def pod(self, namespace: str, name: str) -> Json:
        """Return one pod."""
        return await self._get(f"get pod {name}", _path(CORE, namespace, "pods", name))

    async def workload(self, kind: WorkloadKind, namespace: str, name: str) -> Json:
        """Return one object of a kind that makes pods."""
        path = _path(_api(kind), namespace, kind.plural, name)
        return await self._get(f"get {kind.resource} {name}", path)

    async def intermediates(self, kind: WorkloadKind, namespace: str, labels: str) -> list[Json]:
        """Return the objects through which those of *kind* make pods."""
        place = f"list {kind.through}.{kind.group}"
        path = _path(_api(kind), namespace, kind.through)
        return await self._list(place, path, labelSelector=labels)

    async def events(self, namespace: str, uid: str) -> list[Json]:
        """Return the Events about the object *uid*."""
        path = _path(CORE, namespace, "events")
        return await self._list("list events", path, fieldSelector=f"involvedObject.uid={uid}")

    async def config_map(self, namespace: str, name: str) -> Json:
        """Return one ConfigMap."""
        return await self._get(f"get configmap {name}", _path(CORE, namespace, "configmaps", name))

    async def namespace_object(self, name: str) -> Json:
        """Return one Namespace."""
        return await self._get(f"get namespace {name}", _path(CORE, name))

    async def _list(self, place: str, path: str, **selectors: str) -> list[Json]:
        """Return all pages; where the server has forgotten the list, begin once more, unpaged."""
        chosen = {key: value for key, value in selectors.items() if value}
        try:
            return [item async for item in self._pages(place, path, chosen)]
        except GoneError:
            return _decode_page(await self._bytes(place, path, chosen), place).items or []

    async def _pages(
        self, place: str, path: str, selectors: Mapping[str, str]
    ) -> AsyncIterator[Json]:
        params = {**selectors, "limit": str(PAGE)}
        for _ in range(MOST_PAGES):
            page = _decode_page(await self._bytes(place, path, params), place)
            for item in page.items or ():
                yield item
            if not page.metadata.next:
                return
            params["continue"] = page.metadata.next

    async def _get(self, place: str, path: str) -> Json:
        body = await self._bytes(place, path, {})
        try:
            return msgspec.json.decode(body, type=Json)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UnreachableError(f"{place}: the answer is not an object", sent=True) from error

    async def _bytes(self, place: str, path: str, params: Mapping[str, str]) -> bytes:
        """Return the body of one answer."""
        try:
            return await self._client.get(path, params=params, timeout=self._seconds)
        except UnreachableError as error:
            # A connection that was not made in time has a text of its own.
            if not (error.sent and isinstance(error.__cause__, TimeoutError)):
                raise
            message = f"{place}: no answer within {self._seconds:g} s"
            raise UnreachableError(message, sent=True) from error


def _api(kind: WorkloadKind) -> str:
    return f"/apis/{kind.group}/{kind.version}"


def _path(api: str, namespace: str, *names: str) -> str:
    """Return the path of an object or a collection in *namespace*, with names made safe."""
    return "/".join((api, "namespaces", *(quote(name, safe="") for name in (namespace, *names))))


def _decode_page(body: bytes, place: str) -> _Page:
    try:
        return msgspec.json.decode(body, type=_Page)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreachableError(f"{place}: the answer is not a list", sent=True) from error


@asynccontextmanager
async def connect(target: ClusterTarget) -> AsyncIterator[ClusterClient]:
    """Lend a client of *target*; raises :class:`ConfigError` where no kubeconfig is usable."""
    access = await access_to(target)
    async with connect_with(access, seconds=target.seconds) as client:
        yield client


async def access_to(target: ClusterTarget) -> Access:
    """Return the address and the credentials of *target*; a plugin of the kubeconfig is run once.

    Raises :class:`ConfigError` where no kubeconfig is usable.
    """
    access = await access_of(target.kubeconfig, target.context)
    return access if target.acting is None else replace(access, acting=target.acting)


@asynccontextmanager
async def connect_with(access: Access, *, seconds: float) -> AsyncIterator[ClusterClient]:
    """Lend a client with *access*, each call of which takes at most *seconds*."""
    async with _reads(access) as client:
        yield ClusterClient(client, seconds=seconds)


def _reads(access: Access) -> AbstractAsyncContextManager[ReadCalls]:
    """Return what makes the calls; only a proxy needs the client of our servers.

    A person at a terminal learns at once that the server is not there: no call is repeated.
    """
    if not access.proxy:
        return HttpReader(access)
    from kube.client import Client  # noqa: PLC0415 -- slow to import, see kube.reader

    return Client(access, attempts=1)
