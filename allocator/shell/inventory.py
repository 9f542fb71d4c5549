"""Inventory: the cluster as our watches last saw it, folded into snapshots when asked for."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import count
from typing import Final, TypeVar

import structlog

from allocator.catalog.vocabularies import VOCABULARIES, Vocabulary
from allocator.core.demand import taught
from allocator.core.deviceconfig import (
    DeviceConfig,
    NodeConfig,
    load_device_config,
    load_node_config,
)
from allocator.core.fleet import snapshot_of
from allocator.core.settings import DEFAULTS, Settings, SettingsError, settings_of
from allocator.core.spoken import spoken
from allocator.core.wire import node_from_register
from allocator.model.gpu import Node, Snapshot
from allocator.model.problem import Loaded, Rejected
from allocator.model.request import PodRequest
from allocator.shell.objects import (
    ConfigMap,
    Listed,
    Namespace,
    Registered,
    config_map,
    gpu_node,
    namespace,
    registered,
)
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.watch import Pulse, Source, follow

GPU_NODES: Final = "/apis/vgpu-admission.io/v1alpha1/gpunodes"
NODES: Final = "/api/v1/nodes"
NAMESPACES: Final = "/api/v1/namespaces"
SETTINGS_NAME: Final = "vgpu-admission-settings"
DEVICE_CONFIG_NAME: Final = "volcano-vgpu-device-config"
NODE_CONFIG_NAME: Final = "volcano-vgpu-node-config"
KINDS: Final = ("gpunodes", "nodes", "namespaces", "settings", "devices", "nodeconfig")
_DEVICES: Final = "device-config.yaml"
_NODE: Final = "config.json"
MOST_ARRIVALS: Final = 10_000  # pods that are known not to be new
# A burst of changes costs one fold, and a decision never waits for more than one.
FOLD_SECONDS: Final = 0.05

log = structlog.get_logger(__name__)

T = TypeVar("T")


class Inventory:
    """Follows GPUNodes, Nodes, Namespaces and ConfigMaps; everything it hands out is a value."""

    def __init__(self, client: Client, *, namespace: str, clock: Clock = SYSTEM) -> None:
        """Follow through *client*; settings live in *namespace*."""
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._listed: Mapping[str, Listed] = {}
        self._texts: Mapping[str, Registered] = {}
        self._upstream: dict[str, tuple[str, Node]] = {}
        self._namespaces: Mapping[str, Namespace] = {}
        self._versions = count(1)
        self._folded: Snapshot = Snapshot(version="0")
        self._arrivals: OrderedDict[str, None] = OrderedDict()  # uids, the oldest first
        self._dirty = True
        self._folded_at = float("-inf")
        self.settings: Settings = DEFAULTS
        self.settings_digest: str = "defaults"
        self.device_config = DeviceConfig()
        self.node_configs: Mapping[str, NodeConfig] = {}
        self.vocabularies: tuple[Vocabulary, ...] = VOCABULARIES
        self.pulses: dict[str, Pulse] = {kind: Pulse() for kind in KINDS}

    async def run(self) -> None:
        """Follow everything, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._gpu_nodes())
            group.create_task(self._nodes())
            group.create_task(self._follow_namespaces())
            group.create_task(self._settings())
            group.create_task(self._devices())
            group.create_task(self._node_config())

    async def _follow(
        self, source: Source[T], publish: Callable[[Mapping[str, T]], None], kind: str
    ) -> None:
        pulse = self.pulses[kind]
        await follow(self._client, source, publish, pulse=pulse, clock=self._clock)

    async def _gpu_nodes(self) -> None:
        source = Source(path=GPU_NODES, decode=gpu_node, key=lambda listed: listed.name)

        def publish(found: Mapping[str, Listed]) -> None:
            self._listed, self._dirty = found, True

        await self._follow(source, publish, "gpunodes")

    async def _nodes(self) -> None:
        source = Source(path=NODES, decode=registered, key=lambda node: node.name)

        def publish(found: Mapping[str, Registered]) -> None:
            self._texts, self._dirty = found, True

        await self._follow(source, publish, "nodes")

    async def _follow_namespaces(self) -> None:
        source = Source(path=NAMESPACES, decode=namespace, key=lambda found: found.name)

        def publish(found: Mapping[str, Namespace]) -> None:
            self._namespaces = found

        await self._follow(source, publish, "namespaces")

    async def _settings(self) -> None:
        await self._config(
            "settings", namespace=self._namespace, name=SETTINGS_NAME, accept=self._new_settings
        )

    async def _devices(self) -> None:
        await self._config(
            "devices",
            namespace="kube-system",
            name=DEVICE_CONFIG_NAME,
            accept=self._new_devices,
        )

    async def _node_config(self) -> None:
        await self._config(
            "nodeconfig",
            namespace="kube-system",
            name=NODE_CONFIG_NAME,
            accept=self._new_node_configs,
        )

    async def _config(
        self, kind: str, *, namespace: str, name: str, accept: Callable[[Mapping[str, str]], None]
    ) -> None:
        source = Source(
            path=f"/api/v1/namespaces/{namespace}/configmaps",
            decode=config_map,
            key=lambda found: found.name,
            selectors={"fieldSelector": f"metadata.name={name}"},
        )

        def publish(found: Mapping[str, ConfigMap]) -> None:
            if name in found:
                accept(found[name].data)

        await self._follow(source, publish, kind)

    def _new_settings(self, data: Mapping[str, str]) -> None:
        """Take new settings, or keep the last good ones and say so."""
        text = data.get("settings.yaml", "")
        try:
            self.settings = settings_of(text)
        except SettingsError as error:
            log.error("settings kept as they were", why=str(error))  # noqa: TRY400 -- no traceback
            return
        self.settings_digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        self._speak()
        log.info("settings loaded", digest=self.settings_digest)

    def _new_devices(self, data: Mapping[str, str]) -> None:
        """Take the device plugin's configuration, or keep the last good one and say so."""
        found = _believed("device configuration", load_device_config(data.get(_DEVICES, "")))
        if found is not None:
            self.device_config = found
            self._speak()
            self._forget_upstream()

    def _new_node_configs(self, data: Mapping[str, str]) -> None:
        """Take what the plugin is told about each node, or keep the last good one and say so."""
        found = _believed("node configuration", load_node_config(data.get(_NODE, "{}")))
        if found is not None:
            self.node_configs = found
            self._forget_upstream()

    def _forget_upstream(self) -> None:
        """Read every register annotation anew, under the configuration that holds now."""
        self._upstream.clear()
        self._dirty = True

    def _speak(self) -> None:
        """Speak the vocabularies as this cluster's configuration does."""
        self.vocabularies = spoken(self.settings, self.device_config)

    @property
    def synced(self) -> bool:
        """Say whether every watch has delivered a whole picture."""
        return all(pulse.synced for pulse in self.pulses.values())

    def age(self) -> float | None:
        """Return the seconds since the API server was last heard, ``None`` before the first."""
        now = self._clock.monotonic()
        ages = [pulse.age(now) for pulse in self.pulses.values()]
        return min((age for age in ages if age is not None), default=None)

    def arrived(self, uid: str, request: PodRequest, failed: bool) -> None:  # noqa: FBT001 -- a callback
        """Learn from a pod's first attempt to be bound; later ones are no new demand."""
        if uid in self._arrivals:
            return
        self._arrivals[uid] = None
        if len(self._arrivals) > MOST_ARRIVALS:
            self._arrivals.popitem(last=False)
        boards = {offer.board for offer in self._folded.offers if offer.board is not None}
        demand = taught(self._folded.demand, request, boards, failed=failed)
        version = str(next(self._versions))  # a decision must be replayed on what was known then
        self._folded = replace(self._folded, version=version, demand=demand)

    def heard(self) -> dict[str, float]:
        """Return when each kind was last heard about, as Unix seconds."""
        monotonic, wall = self._clock.monotonic(), self._clock.wall().timestamp()
        ages = {kind: pulse.age(monotonic) for kind, pulse in self.pulses.items()}
        return {kind: wall - age for kind, age in ages.items() if age is not None}

    def namespace(self, name: str) -> Namespace | None:
        """Return what is known about a namespace."""
        return self._namespaces.get(name)

    def promising(self, uid: str) -> frozenset[str]:
        """Return the nodes that promise something to pod *uid*, as far as is known."""
        return frozenset(name for name, listed in self._listed.items() if uid in listed.promises)

    def promises(self) -> Iterator[tuple[str, str, datetime]]:
        """Yield every promise known: the node, the pod's uid, and since when."""
        for name, listed in self._listed.items():
            for uid, since in listed.promises.items():
                yield name, uid, since

    def snapshot(self) -> Snapshot:
        """Return the cluster as one value; it never refuses for want of what it cannot see."""
        now = self._clock.monotonic()
        if self._dirty and now - self._folded_at >= FOLD_SECONDS:
            self._folded = self._fold()
            self._dirty, self._folded_at = False, now
        age = self.age()
        if self._folded.complete and (age is None or age > self.settings.stale_after_seconds):
            return replace(self._folded, complete=False)
        return self._folded

    def _fold(self) -> Snapshot:
        nodes = {name: node for name in self._texts if (node := self._node(name)) is not None}
        complete = self.pulses["gpunodes"].synced and self.pulses["nodes"].synced
        version, demand = str(next(self._versions)), self._folded.demand
        return snapshot_of(nodes.values(), version=version, complete=complete, demand=demand)

    def _node(self, name: str) -> Node | None:
        """Return a node from its agent's inventory, else from the register annotation."""
        listed = self._listed.get(name)
        if listed is not None and listed.node is not None:
            return listed.node
        text = self._texts[name].text
        if not text:
            return None
        known = self._upstream.get(name)
        if known is None or known[0] != text:
            factor = self.device_config.memory_factor
            found = node_from_register(name, text, factor=factor)
            for problem in found.problems:
                log.warning("register annotation is odd", node=name, what=str(problem))
            known = self._upstream[name] = (text, self._without_excluded(found.node))
        return known[1]

    def _without_excluded(self, node: Node) -> Node:
        """Leave out the GPUs that the plugin is told to leave alone, before it says so itself."""
        config = self.node_configs.get(node.name)
        if config is None:
            return node
        kept = (gpu for gpu in node.gpus if not config.excludes(gpu.uuid, gpu.index))
        return replace(node, gpus=tuple(kept))


def _believed(what: str, loaded: Loaded[T] | Rejected) -> T | None:
    """Return a configuration that may be used; say what is odd about it, or wrong."""
    if isinstance(loaded, Rejected):
        log.error("configuration kept as it was", of=what, why=str(loaded))
        return None
    for warning in loaded.warnings:
        log.warning("configuration is odd", of=what, what=str(warning))
    return loaded.value
