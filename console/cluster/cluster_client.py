"""The cluster through a person's own kubeconfig: reads, each bounded in time, and no writes."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import yaml
from kubernetes.aio.client import ApiClient, Configuration, CoreV1Api, CustomObjectsApi
from kubernetes.aio.config import ConfigException, load_incluster_config
from kubernetes.aio.config.kube_config import load_kube_config

from console.cluster.workload import WorkloadKind
from kube.client import user_agent
from kube.errors import ConfigError, GoneError, UnreachableError, refusal, shorten

GROUP: Final = "vgpu-admission.io"
VERSION: Final = "v1alpha1"
PLURAL: Final = "gpunodes"
PAGE: Final = 500  # objects of one answer, as kubectl asks for
MOST_PAGES: Final = 1000
LOGIN_SECONDS: Final = 120.0  # a plugin of the kubeconfig may ask the person something
_UNUSABLE: Final = (ConfigException, yaml.YAMLError, OSError, ValueError)
# The library looks at no shape: a list where it expects a mapping is an AttributeError of its.
_MISSHAPEN: Final = (TypeError, AttributeError, KeyError)
Json = dict[str, Any]
Call = Callable[..., Awaitable[aiohttp.ClientResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTarget:
    """Which cluster: *kubeconfig* may name several files, as the variable does.

    ``seconds`` is what any one call may take.
    """

    kubeconfig: str | None = None
    context: str | None = None
    seconds: float = 10.0


class _Metadata(msgspec.Struct, frozen=True, rename={"next": "continue"}):
    next: str = ""


class _Page(msgspec.Struct, frozen=True):
    items: list[Json] | None = None
    metadata: _Metadata = _Metadata()


class ClusterClient:
    """Reads of one cluster, as the person of the kubeconfig; :func:`connected` makes one.

    Every method raises :class:`kube.errors.KubeError`: ``ApiError`` where the server refuses.
    """

    def __init__(self, client: ApiClient, *, namespace: str, seconds: float) -> None:
        """Read through *client*, each call within *seconds*."""
        self.namespace = namespace
        self._core = CoreV1Api(client)
        self._custom = CustomObjectsApi(client)
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
            told = f"no answer within {self._seconds:g} s"
            raise UnreachableError(f"{place}: {told}", sent=True) from error
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
    """Lend a cluster; raises :class:`ConfigError` where no kubeconfig tells which."""
    configuration = Configuration()
    try:
        async with asyncio.timeout(LOGIN_SECONDS):
            namespace = await _configure(target, configuration)
        client = ApiClient(configuration)
    except TimeoutError as error:
        told = f"no credentials within {LOGIN_SECONDS:g} s"
        raise ConfigError(f"kubeconfig: {told}") from error
    except _UNUSABLE as error:
        told = shorten(" ".join(str(error).split()))
        raise ConfigError(f"kubeconfig: {told}") from error
    except _MISSHAPEN as error:
        raise ConfigError("kubeconfig: a file is not a kubeconfig") from error
    client.user_agent = user_agent()
    async with client:
        yield ClusterClient(client, namespace=namespace, seconds=target.seconds)


async def _configure(target: ClusterTarget, configuration: Configuration) -> str:
    """Fill *configuration* from files, else as a pod; return the namespace to work in."""
    named = target.kubeconfig or os.environ.get("KUBECONFIG")
    files = named or str(Path.home() / ".kube" / "config")
    if not _exists(files):
        if named is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            load_incluster_config(  # type: ignore[no-untyped-call]  # ships without types
                client_configuration=configuration
            )
            return "default"
        raise ConfigError(f"{files} does not exist; name a file with --kubeconfig or KUBECONFIG")
    # Nothing is written back, so a token that was refreshed lives as long as this command.
    loader = await load_kube_config(  # type: ignore[no-untyped-call]  # ships without types
        files,
        context=target.context,
        client_configuration=configuration,
        persist_config=False,
    )
    context: Json = loader.current_context.get("context") or {}
    return str(context.get("namespace") or "default")


def _exists(files: str) -> bool:
    """Say whether any of *files*, a list as in the variable, is there."""
    return any(Path(file).expanduser().is_file() for file in files.split(os.pathsep) if file)
