"""What the API server says of this node: its Node, GPUNode and pods, and the configuration.

All of it is watched and handed out as values; tasks that act on it are woken. A GPUNode that the
agent itself wrote or read is known at once, before the watch delivers it.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from agent.node.other_plugins import plugin_conflict, registration_conflict, slot_conflict
from agent.node.pods import NodePod, parse_pod
from allocator.catalog.keys import AGENT_LABEL, CAPACITY_KEY
from allocator.catalog.vocabularies import OWN, VOCABULARIES, Vocabulary
from allocator.cluster.configmaps import (
    DEVICE_CONFIG_NAME,
    NODE_CONFIG_NAME,
    SETTINGS_NAME,
    device_config_in,
    node_configs_in,
    settings_in,
    vocabularies_in,
)
from allocator.cluster.inventory import GPU_NODES, NODES
from allocator.cluster.objects import MODEL_LABEL, ConfigMap, decode_config_map
from allocator.config.device_config import DeviceConfig, NodeConfig
from allocator.config.settings import DEFAULTS, Settings
from allocator.families.registry import agent_vocabularies
from allocator.ledger.ledger import Ledger, parse_ledger
from allocator.volcano.register import HANDSHAKE_ANNOTATION, REGISTER_ANNOTATION
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.watch import WatchHealth, WatchSource, follow

PODS: Final = "/api/v1/pods"
PLUGIN_NAMESPACE: Final = "kube-system"  # where Volcano's device plugin has its ConfigMaps
# The base's DaemonSet runs where a Node has this label (manifests/base/agent.yaml).
SELECTOR_LABEL: Final = f"{OWN}node"
SELECTOR_VALUE: Final = "enabled"
KINDS: Final = ("gpunode", "node", "pods", "settings", "devices", "nodeconfig")
T = TypeVar("T")


class _Taint(msgspec.Struct):
    key: str


class _Metadata(msgspec.Struct):
    name: str
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct):
    taints: tuple[_Taint, ...] | None = None


class _System(msgspec.Struct):
    runtime: str = msgspec.field(name="containerRuntimeVersion", default="")
    boot: str = msgspec.field(name="bootID", default="")


class _Status(msgspec.Struct):
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    system: _System | None = msgspec.field(name="nodeInfo", default=None)


class _Node(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_NODE: Final = msgspec.json.Decoder(_Node)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnNode:
    """Our Node."""

    name: str
    uid: str
    runtime: str  # version of the container runtime
    boot: str = ""  # boot id as its kubelet reports it
    label: str | None  # version of the agent that labelled it
    model: str | None = None  # the label with the model of its GPUs
    is_selected: bool = False  # it has the label by which the DaemonSet of the base selects nodes
    added_resources: frozenset[str]  # which our agent added to its capacity
    has_volcano_register: bool  # vc-scheduler must find it before it sees capacity
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    taints: tuple[str, ...]  # keys, in order


@dataclass(frozen=True, slots=True)
class StoredGpuNode:
    """Our GPUNode at one version, as JSON and parsed."""

    document: Mapping[str, Any]
    ledger: Ledger

    @property
    def status(self) -> Mapping[str, Any]:
        """Return the stored status."""
        status: Mapping[str, Any] = self.document.get("status") or {}
        return status


def decode_gpu_node(raw: bytes) -> StoredGpuNode:
    """Read a GPUNode; raises ``ValueError`` where it is none."""
    document = msgspec.json.decode(raw)
    return StoredGpuNode(document, parse_ledger(document))


def own_node(raw: bytes) -> OwnNode:
    """Read a Node."""
    node = _NODE.decode(raw)
    metadata, status = node.metadata, node.status
    annotations = metadata.annotations or {}
    return OwnNode(
        name=metadata.name,
        uid=metadata.uid,
        runtime=status.system.runtime if status.system else "",
        boot=status.system.boot if status.system else "",
        label=(metadata.labels or {}).get(AGENT_LABEL),
        model=(metadata.labels or {}).get(MODEL_LABEL),
        is_selected=(metadata.labels or {}).get(SELECTOR_LABEL) == SELECTOR_VALUE,
        added_resources=frozenset(filter(None, annotations.get(CAPACITY_KEY, "").split(","))),
        has_volcano_register=bool(
            annotations.get(REGISTER_ANNOTATION) and annotations.get(HANDSHAKE_ANNOTATION)
        ),
        capacity=status.capacity or {},
        allocatable=status.allocatable or {},
        taints=tuple(taint.key for taint in node.spec.taints or ()),
    )


@dataclass(slots=True)
class NodeInformer:
    """What is known now; ``run`` keeps it up to date, and wakes subscribers after changes."""

    client: Client
    name: str
    namespace: str  # where our settings live
    clock: Clock = SYSTEM
    node: OwnNode | None = None
    pods: Mapping[str, NodePod] = field(default_factory=dict)
    settings: Settings = DEFAULTS
    device_config: DeviceConfig = field(default_factory=DeviceConfig)
    node_config: NodeConfig | None = None
    vocabularies: tuple[Vocabulary, ...] = agent_vocabularies(VOCABULARIES)
    watch_health: dict[str, WatchHealth] = field(
        default_factory=lambda: {kind: WatchHealth() for kind in KINDS}
    )
    was_selected: bool = False  # the Node had the label of the DaemonSet since we started
    registered_ids: frozenset[str] = frozenset()  # slot ids that kubelet had before we registered
    other_registrations: frozenset[str] = frozenset()  # resources of plugins that came after us
    _stored: StoredGpuNode | None = None
    _subscribers: list[asyncio.Event] = field(default_factory=list)

    def subscribe(self) -> asyncio.Event:
        """Return an event that is set from now on whenever anything changed."""
        event = asyncio.Event()
        event.set()
        self._subscribers.append(event)
        return event

    def notify(self) -> None:
        """Wake all subscribers."""
        for subscriber in self._subscribers:
            subscriber.set()

    @property
    def synced(self) -> bool:
        """Say whether every watch has synced."""
        return all(pulse.synced for pulse in self.watch_health.values())

    @property
    def is_configured(self) -> bool:
        """Say whether the configuration and the Node are known."""
        required = ("settings", "devices", "nodeconfig", "node")
        return all(self.watch_health[kind].synced for kind in required)

    @property
    def is_upstream(self) -> bool:
        """Say whether another node agent serves this node, by the setting nodeAgent."""
        return self.settings.node_agent.is_other

    @property
    def plugin_conflict(self) -> str:
        """Return a sentence about another plugin that serves this node's GPUs, or nothing."""
        node = self.node
        if self.is_upstream:
            return "setting nodeAgent leaves the nodes to another plugin"
        if node is None:
            return ""
        slot = slot_conflict(node.allocatable, self.device_config.count_name, self.registered_ids)
        return (
            slot
            or registration_conflict(self.other_registrations, self.vocabularies)
            or plugin_conflict(node.allocatable, node.added_resources, self.vocabularies)
        )

    @property
    def gpu_node(self) -> StoredGpuNode | None:
        """Return our GPUNode as it was last read, ``None`` where there is none."""
        return self._stored

    def learn(self, stored_gpu_node: StoredGpuNode) -> StoredGpuNode:
        """Take a GPUNode that was just read or written, unless a newer one is known."""
        if self._stored is None or not _is_older(stored_gpu_node.ledger, self._stored.ledger):
            self._stored = stored_gpu_node
        return stored_gpu_node

    async def run(self) -> None:
        """Follow everything, for ever."""
        name = f"metadata.name={self.name}"
        async with asyncio.TaskGroup() as group:
            gpu_node = _source(GPU_NODES, decode_gpu_node, name)
            group.create_task(self._follow("gpunode", gpu_node, self._store_gpu_node))
            group.create_task(
                self._follow("node", _source(NODES, own_node, name), self._store_node)
            )
            pods = _source(PODS, parse_pod, f"spec.nodeName={self.name}")
            group.create_task(self._follow("pods", pods, self._store_pods))
            group.create_task(self._follow_config_map("settings", self.namespace, SETTINGS_NAME))
            group.create_task(
                self._follow_config_map("devices", PLUGIN_NAMESPACE, DEVICE_CONFIG_NAME)
            )
            group.create_task(
                self._follow_config_map("nodeconfig", PLUGIN_NAMESPACE, NODE_CONFIG_NAME)
            )

    async def _follow_config_map(self, kind: str, namespace: str, name: str) -> None:
        accept = {"settings": self._store_settings, "devices": self._store_device_config}.get(
            kind, self._store_node_config
        )

        def publish(config_maps: Mapping[str, ConfigMap]) -> None:
            if name in config_maps:
                accept(config_maps[name].data)

        path = f"/api/v1/namespaces/{namespace}/configmaps"
        source = _source(path, decode_config_map, f"metadata.name={name}")
        await self._follow(kind, source, publish)

    async def _follow(
        self, kind: str, source: WatchSource[T], publish: Callable[[Mapping[str, T]], None]
    ) -> None:
        def apply(objects: Mapping[str, T]) -> None:
            publish(objects)
            self.notify()

        health = self.watch_health[kind]
        await follow(self.client, source, apply, health=health, clock=self.clock)

    def _store_gpu_node(self, stored_gpu_nodes: Mapping[str, StoredGpuNode]) -> None:
        new = stored_gpu_nodes.get(self.name)
        if new is None:
            self._stored = None
        else:
            self.learn(new)

    def _store_node(self, nodes: Mapping[str, OwnNode]) -> None:
        self.learn_node(nodes.get(self.name))

    def learn_node(self, node: OwnNode | None) -> None:
        """Take our Node as it was just read; ``None`` if there is none."""
        self.node = node
        self.was_selected |= node is not None and node.is_selected

    def _store_pods(self, pods: Mapping[str, NodePod]) -> None:
        self.pods = pods

    def _store_settings(self, data: Mapping[str, str]) -> None:
        settings = settings_in(data)
        if settings is not None:
            self.settings = settings[0]
            self._update_vocabularies()

    def _store_device_config(self, data: Mapping[str, str]) -> None:
        device_config = device_config_in(data)
        if device_config is not None:
            self.device_config = device_config
            self._update_vocabularies()

    def _store_node_config(self, data: Mapping[str, str]) -> None:
        node_configs = node_configs_in(data)
        if node_configs is not None:
            self.node_config = node_configs.get(self.name)

    def _update_vocabularies(self) -> None:
        configured, _ = vocabularies_in(self.settings, self.device_config)
        self.vocabularies = agent_vocabularies(configured)


def _source(path: str, decode: Callable[[bytes], T], selector: str) -> WatchSource[T]:
    return WatchSource(path=path, decode=decode, key=_key, selectors={"fieldSelector": selector})


def _key(item: object) -> str:
    """Return the key of an object in its watch: a pod's uid, otherwise the name."""
    match item:
        case StoredGpuNode(ledger=ledger):
            return ledger.name
        case NodePod(uid=uid):
            return uid
        case OwnNode(name=name) | ConfigMap(name=name):
            return name
        case _:
            raise TypeError(type(item).__name__)


def _is_older(ledger: Ledger, other: Ledger) -> bool:
    """Say whether *ledger* is an earlier version of the same object; versions grow."""
    numbers = ledger.resource_version, other.resource_version
    if ledger.uid != other.uid or not all(number.isdigit() for number in numbers):
        return False
    return int(numbers[0]) < int(numbers[1])
