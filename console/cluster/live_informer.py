"""The cluster as pages show it: a picture that watches keep, small enough for a console.

Of each object only what pages read is kept. Of pods these are the ones that ask for GPUs.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from sys import intern
from typing import Final, Generic, TypeVar

import msgspec
import structlog
from msgspec import structs

from allocator.catalog.injection import is_flat
from allocator.catalog.keys import ALLOCATION_KEYS
from allocator.catalog.vocabularies import OWN
from allocator.cluster.configmaps import (
    DEVICE_CONFIG_NAME,
    SETTINGS_NAME,
    device_config_in,
    settings_in,
    vocabularies_in,
)
from allocator.cluster.inventory import GPU_NODES, NAMESPACES, NODES
from allocator.cluster.objects import ConfigMap, decode_config_map, decode_namespace
from allocator.cluster.picture import Picture
from allocator.cluster.pods import PODS
from allocator.config.device_config import DeviceConfig
from allocator.config.settings import DEFAULTS, Settings
from allocator.placement.choose import PlacementPolicy
from allocator.request.pod_fields import SpecContainer, shared
from console.cluster.pod import ObjectOwner, PodStatusView, PodView, request_of
from console.cluster.snapshot import (
    ClusterView,
    Configuration,
    Machine,
    NodeReport,
    machine,
    name_of,
    node_report,
    view_of_reports,
)
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.watch import WatchHealth, WatchSource, follow_updates

# Where the API server publishes the authority of client certificates for servers like us.
CLIENT_CA: Final = ("kube-system", "extension-apiserver-authentication", "client-ca-file")
OUTDATED_SECONDS: Final = 120.0  # without a message, after which pages say so
KINDS: Final = ("gpunodes", "nodes", "namespaces", "pods", "settings", "devices", "client-ca")
_KEPT_ANNOTATIONS: Final = (OWN, "volcano.sh/", "hami.io/", "scheduling.k8s.io/")
MOST_PARTS: Final = 4096  # lists of containers, and so on, that several pods share
LONGEST_SHARED: Final = 128  # characters of a value that many pods may have, as replicas do
_POD: Final = msgspec.json.Decoder(PodView)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_Publish = Callable[[Mapping[str, T | None]], None]
log = structlog.get_logger(__name__)


class LiveCluster:
    """Nodes, ledgers, settings, namespaces and asking pods, as watches last saw them."""

    def __init__(self, client: Client, *, namespace: str, clock: Clock = SYSTEM) -> None:
        """Follow through *client*; our settings are in *namespace*."""
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._reports: Picture[NodeReport | str] = Picture()
        self._machines: Picture[Machine] = Picture()
        self._namespaces: Picture[str] = Picture()
        self._extended: Picture[PodView] = Picture()  # pods that name any extended resource
        self._pods: Picture[PodView] = Picture()  # those of them that ask for GPUs
        self._settings: Settings = DEFAULTS
        self._devices = DeviceConfig()
        self._configuration = Configuration()
        self._view: ClusterView | None = None  # None: something has changed since
        self._asking: tuple[PodView, ...] | None = None
        self.client_ca = ""  # PEM
        self.watches: dict[str, WatchHealth] = {kind: WatchHealth() for kind in KINDS}

    async def run(self) -> None:
        """Follow everything, for ever; RBAC: list, watch."""
        system = self._namespace
        async with asyncio.TaskGroup() as group:
            for work in (
                self._follow("gpunodes", _gpu_nodes(), self._update_reports),
                self._follow("nodes", _nodes(), self._update_machines),
                self._follow("namespaces", _namespaces(), self._update_namespaces),
                self._follow("pods", self._pod_source(), self._update_pods),
                self._follow("settings", _config_map(system, SETTINGS_NAME), self._read_settings),
                self._follow(
                    "devices", _config_map("kube-system", DEVICE_CONFIG_NAME), self._read_devices
                ),
                self._follow("client-ca", _config_map(*CLIENT_CA[:2]), self._read_client_ca),
            ):
                group.create_task(work)

    async def _follow(self, kind: str, source: WatchSource[T], publish: _Publish[T]) -> None:
        health = self.watches[kind]
        await follow_updates(self._client, source, publish, health=health, clock=self._clock)

    @property
    def synced(self) -> bool:
        """Say whether nodes, ledgers, namespaces and pods have been listed."""
        return all(self.watches[kind].synced for kind in KINDS[:4])

    @property
    def client_ca_read(self) -> bool:
        """Say whether :attr:`client_ca` has been asked for: read, or it cannot be now."""
        health = self.watches["client-ca"]
        return health.synced or health.failures > 0

    def age(self) -> float | None:
        """Return for how many seconds the most silent watch was silent; ``None`` before a list.

        A watch that works has a message within a minute: a change, a bookmark, or its own end.
        """
        now = self._clock.monotonic()
        ages = [self.watches[kind].age(now) for kind in KINDS[:4]]
        return max((age for age in ages if age is not None), default=None)

    def view(self) -> ClusterView | None:
        """Return nodes and ledgers as they are now, ``None`` before they have been listed.

        Its time is now while watches work, and that of the last message once they do not.
        """
        if not (self.watches["gpunodes"].synced and self.watches["nodes"].synced):
            return None
        if self._view is None:
            self._view = self._assemble()
        age = self.age() or 0.0
        silent = timedelta(seconds=age if age > OUTDATED_SECONDS else 0.0)
        return replace(self._view, now=self._clock.wall() - silent)

    def pods(self) -> tuple[PodView, ...]:
        """Return the pods that ask for GPUs, by namespace and name."""
        if self._asking is None:
            # Twice, as a pair of names for each of a hundred thousand pods takes 10 MB.
            pods = sorted(self._pods.values(), key=lambda pod: pod.metadata.name)
            pods.sort(key=lambda pod: pod.namespace)
            self._asking = tuple(pods)
        return self._asking

    def node_of(self, pod_uid: str) -> str:
        """Return the node of a pod; empty while it has none, or is not known. From any thread."""
        pod = self._extended.get(pod_uid)
        return "" if pod is None else pod.spec.node_name

    def namespaces(self) -> frozenset[str] | None:
        """Return the names of all namespaces, ``None`` before they have been listed."""
        return frozenset(self._namespaces) if self.watches["namespaces"].synced else None

    def _assemble(self) -> ClusterView:
        known = [self._reports[name] for name in sorted(self._reports)]
        view = view_of_reports(
            [report for report in known if isinstance(report, NodeReport)],
            dict(sorted(self._machines.items())),
            now=self._clock.wall(),
            configuration=self._configuration,
        )
        return replace(view, unreadable=tuple(each for each in known if isinstance(each, str)))

    def _update_reports(self, changes: Mapping[str, "_Named[NodeReport | str] | None"]) -> None:
        self._reports.apply(
            {name: None if each is None else each.value for name, each in changes.items()}
        )
        self._view = None

    def _update_machines(self, changes: Mapping[str, Machine | None]) -> None:
        for name, new in changes.items():
            if new != self._machines.get(name):
                self._view = None  # kubelets renew their Nodes often, and change nothing of it
        self._machines.apply(changes)

    def _update_namespaces(self, changes: Mapping[str, str | None]) -> None:
        self._namespaces.apply(changes)

    def _pod_source(self) -> WatchSource["_Named[PodView | None]"]:
        return WatchSource(
            path=PODS,
            decode=self._decode_pod,
            key=lambda named: named.name,
            keeps=lambda named: named.value is not None,
        )

    def _decode_pod(self, raw: bytes) -> "_Named[PodView | None]":
        pod = _POD.decode(raw)
        if not _asks_for_extended(pod):
            return _Named(pod.metadata.uid, None)
        return _Named(pod.metadata.uid, slim(pod))

    def _update_pods(self, changes: Mapping[str, "_Named[PodView | None] | None"]) -> None:
        self._extended.apply(
            {uid: None if named is None else named.value for uid, named in changes.items()}
        )
        self._keep_asking(changes)

    def _keep_asking(self, uids: Iterable[str]) -> None:
        """Keep those pods among *uids* that ask for GPUs, as the settings of now have it."""
        vocabularies = self._configuration.vocabularies
        kept: dict[str, PodView | None] = {}
        for uid in uids:
            pod = self._extended.get(uid)
            asks = pod is not None and request_of(pod, vocabularies) is not None
            kept[uid] = pod if asks else None
        if self._pods.apply(kept):
            self._asking = None

    def _read_settings(self, changes: Mapping[str, ConfigMap | None]) -> None:
        for config_map in filter(None, changes.values()):
            if (settings := settings_in(config_map.data)) is not None:
                self._settings = settings[0]
                self._configure()

    def _read_devices(self, changes: Mapping[str, ConfigMap | None]) -> None:
        for config_map in filter(None, changes.values()):
            if (devices := device_config_in(config_map.data)) is not None:
                self._devices = devices
                self._configure()

    def _read_client_ca(self, changes: Mapping[str, ConfigMap | None]) -> None:
        for config_map in changes.values():
            self.client_ca = config_map.data.get(CLIENT_CA[2], "") if config_map else ""

    def _configure(self) -> None:
        settings, devices = self._settings, self._devices
        vocabularies, lost = vocabularies_in(settings, devices)
        self._configuration = Configuration(
            settings=settings,
            vocabularies=vocabularies,
            lost=lost,
            policy=PlacementPolicy(
                prefer=settings.prefer,
                geometries=devices.geometries,
                fill_policies=settings.fill_policies,
            ),
        )
        self._view = None
        self._keep_asking(tuple(self._extended))


@dataclass(frozen=True, slots=True)
class _Named(Generic[T_co]):
    """What is kept of an object, by the key of the object."""

    name: str
    value: T_co


def _gpu_nodes() -> WatchSource[_Named[NodeReport | str]]:
    return WatchSource(path=GPU_NODES, decode=_decode_gpu_node, key=lambda named: named.name)


def _decode_gpu_node(raw: bytes) -> _Named[NodeReport | str]:
    document = msgspec.json.decode(raw)
    name = name_of(document)
    if not name:
        raise ValueError("a GPUNode has no name")
    return _Named(name, node_report(document))


def _nodes() -> WatchSource[Machine]:
    return WatchSource(
        path=NODES,
        decode=lambda raw: machine(msgspec.json.decode(raw)),
        key=lambda found: found.name,
    )


def _namespaces() -> WatchSource[str]:
    return WatchSource(
        path=NAMESPACES,
        decode=lambda raw: decode_namespace(raw).name,
        key=lambda name: name,
    )


def _config_map(namespace: str, name: str) -> WatchSource[ConfigMap]:
    return WatchSource(
        path=f"/api/v1/namespaces/{namespace}/configmaps",
        decode=decode_config_map,
        key=lambda config_map: config_map.name,
        selectors={"fieldSelector": f"metadata.name={name}"},
    )


def _asks_for_extended(pod: PodView) -> bool:
    """Say whether any container names a resource with a domain: most pods of a cluster do not."""
    containers = (*pod.spec.containers, *(pod.spec.init_containers or ()))
    resources = (container.resources for container in containers)
    return any(
        "/" in name for each in resources if each is not None for name in (each.limits or {})
    )


def slim(pod: PodView) -> PodView:
    """Return *pod* with what pages read; parts that are equal in many pods are shared."""
    metadata, spec = pod.metadata, pod.spec
    kept = {
        shared(key): shared(value) if len(value) <= LONGEST_SHARED else value
        for key, value in (metadata.annotations or {}).items()
        if key.startswith(_KEPT_ANNOTATIONS) and key not in ALLOCATION_KEYS and not is_flat(key)
    }
    owners = metadata.owner_references
    return structs.replace(
        pod,
        metadata=structs.replace(
            metadata,
            name=intern(metadata.name),  # ledgers name it too
            uid=intern(metadata.uid),
            annotations=kept,
            namespace=shared(metadata.namespace or ""),
            owner_references=owners and _shared_owners(owners),
        ),
        spec=structs.replace(
            spec,
            containers=_shared_containers(msgspec.json.encode(spec.containers)),
            node_name=shared(spec.node_name),
            scheduler_name=shared(spec.scheduler_name),
        ),
        status=_slim_status(pod.status),
    )


def _slim_status(status: PodStatusView) -> PodStatusView:
    """Return *status* with the containers that do not start; most pods have none."""
    if status.troubles or status.reason or status.message:
        return status
    return _shared_status(status.phase, status.is_seen_by_scheduler)


@lru_cache(maxsize=MOST_PARTS)
def _shared_status(phase: str, seen: bool) -> PodStatusView:  # noqa: FBT001 -- a cache's key
    conditions = [{"type": "PodScheduled"}] if seen else None
    return msgspec.convert({"phase": phase, "conditions": conditions}, PodStatusView)


@lru_cache(maxsize=MOST_PARTS)
def _shared_containers(encoded: bytes) -> tuple[SpecContainer, ...]:
    return msgspec.json.decode(encoded, type=tuple[SpecContainer, ...])


@lru_cache(maxsize=MOST_PARTS)
def _shared_owners(owners: tuple[ObjectOwner, ...]) -> tuple[ObjectOwner, ...]:
    return owners
