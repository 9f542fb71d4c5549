"""The cluster through a person's own kubeconfig: reads, each bounded in time, and no writes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec

from console.cluster.workload import WorkloadKind
from kube.errors import GoneError, UnreachableError, refusal, shorten

if TYPE_CHECKING:
    from console.cluster.login_client import LoginSession

GROUP: Final = "vgpu-admission.io"
VERSION: Final = "v1alpha1"
PLURAL: Final = "gpunodes"
PAGE: Final = 500  # objects of one answer, as kubectl asks for
MOST_PAGES: Final = 1000
Json = dict[str, Any]
Call = Callable[..., Awaitable[aiohttp.ClientResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTarget:
    """Which cluster to read, and how long one call may take."""

    kubeconfig: str | None = None  # one or more paths, separated as in $KUBECONFIG
    context: str | None = None  # None: the current context of the kubeconfig
    seconds: float = 10.0  # for any one call


class _Metadata(msgspec.Struct, frozen=True, rename={"next": "continue"}):
    next: str = ""


class _Page(msgspec.Struct, frozen=True):
    items: list[Json] | None = None
    metadata: _Metadata = _Metadata()


class ClusterClient:
    """Reads of one cluster, as the person of the kubeconfig; :func:`connect` makes one.

    Every method raises :class:`kube.errors.KubeError`: ``ApiError`` where the server refuses.
    """

    def __init__(self, session: "LoginSession", *, seconds: float) -> None:
        """Read through *session*, each call within *seconds*."""
        self.namespace = session.namespace
        self._core = session.core
        self._custom = session.custom
        self._seconds = seconds

    async def gpu_nodes(self) -> list[Json]:
        """Return every GPUNode."""
        call = self._custom.list_cluster_custom_object_without_preload_content
        return await self._all("list gpunodes", call, GROUP, VERSION, PLURAL)

    async def nodes(self, labels: str = "") -> list[Json]:
        """Return the Nodes that a label selector picks."""
        call = self._core.list_node_without_preload_content
        return await self._all("list nodes", call, label_selector=labels or None)

    async def pods(self, namespace: str | None, labels: str = "") -> list[Json]:
        """Return the pods of a namespace, or of all with ``None``."""
        chosen = {"label_selector": labels or None}
        if namespace is None:
            every = self._core.list_pod_for_all_namespaces_without_preload_content
            return await self._all("list pods", every, **chosen)
        call = self._core.list_namespaced_pod_without_preload_content
        return await self._all("list pods", call, namespace, **chosen)

    async def pod(self, namespace: str, name: str) -> Json:
        """Return one pod."""
        call = self._core.read_namespaced_pod_without_preload_content
        return await self._one(f"get pod {name}", call, name, namespace)

    async def workload(self, kind: WorkloadKind, namespace: str, name: str) -> Json:
        """Return one object of a kind that makes pods."""
        call = self._custom.get_namespaced_custom_object_without_preload_content
        place = f"get {kind.resource} {name}"
        return await self._one(place, call, kind.group, kind.version, namespace, kind.plural, name)

    async def intermediates(self, kind: WorkloadKind, namespace: str, labels: str) -> list[Json]:
        """Return the objects through which those of *kind* make pods."""
        call = self._custom.list_namespaced_custom_object_without_preload_content
        place = f"list {kind.through}.{kind.group}"
        names = kind.group, kind.version, namespace, kind.through
        return await self._all(place, call, *names, label_selector=labels or None)

    async def events(self, namespace: str, uid: str) -> list[Json]:
        """Return what was said about the object *uid*."""
        call = self._core.list_namespaced_event_without_preload_content
        field = f"involvedObject.uid={uid}"
        return await self._all("list events", call, namespace, field_selector=field)

    async def config_map(self, namespace: str, name: str) -> Json:
        """Return one ConfigMap."""
        call = self._core.read_namespaced_config_map_without_preload_content
        return await self._one(f"get configmap {name}", call, name, namespace)

    async def namespace_object(self, name: str) -> Json:
        """Return one Namespace."""
        call = self._core.read_namespace_without_preload_content
        return await self._one(f"get namespace {name}", call, name)

    async def _all(self, place: str, call: Call, *names: str, **chosen: str | None) -> list[Json]:
        """Return all pages; where the server has forgotten the list, begin once more, unpaged."""
        try:
            pages = self._pages(place, lambda **page: call(*names, **chosen, **page))
            return [item async for item in pages]
        except GoneError:
            return _decode_page(await self._bytes(place, call, *names, **chosen), place).items or []

    async def _pages(self, place: str, call: Call) -> AsyncIterator[Json]:
        after: str | None = None
        for _ in range(MOST_PAGES):
            page = _decode_page(await self._bytes(place, call, limit=PAGE, _continue=after), place)
            for item in page.items or ():
                yield item
            after = page.metadata.next
            if not after:
                return

    async def _one(self, place: str, call: Call, *names: str) -> Json:
        body = await self._bytes(place, call, *names)
        try:
            return msgspec.json.decode(body, type=Json)
        except msgspec.DecodeError as error:
            raise UnreachableError(f"{place}: the answer is not an object", sent=True) from error

    async def _bytes(self, place: str, call: Call, *names: str, **options: object) -> bytes:
        """Return one answer's body."""
        try:
            async with asyncio.timeout(self._seconds):
                response = await call(*names, **options)
                body = await response.read()
        except TimeoutError as error:
            message = f"{place}: no answer within {self._seconds:g} s"
            raise UnreachableError(message, sent=True) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:  # a proxy it cannot speak to
            raise UnreachableError(shorten(str(error)), sent=False) from error
        if response.status >= 300:  # noqa: PLR2004 - the first status that is no success
            raise refusal(body, status=response.status, place=place)
        return body


def _decode_page(body: bytes, place: str) -> _Page:
    try:
        return msgspec.json.decode(body, type=_Page)
    except msgspec.DecodeError as error:
        raise UnreachableError(f"{place}: the answer is not a list", sent=True) from error


@asynccontextmanager
async def connect(target: ClusterTarget) -> AsyncIterator[ClusterClient]:
    """Lend a client of *target*; raises :class:`ConfigError` where no kubeconfig says which."""
    # The package takes most of the time that a command takes to start, and may not be installed.
    from console.cluster.login_client import login  # noqa: PLC0415 -- imports `kubernetes`

    session = await login(target.kubeconfig, target.context)
    async with session.client:
        yield ClusterClient(session, seconds=target.seconds)
