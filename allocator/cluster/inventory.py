"""Inventory: the cluster as our watches last saw it, folded into snapshots when asked for."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import count
from typing import Final, TypeVar

from allocator.catalog.vocabularies import VOCABULARIES, Vocabulary
from allocator.cluster.configmaps import (
    DEVICE_CONFIG_NAME,
    NODE_CONFIG_NAME,
    SETTINGS_NAME,
    device_config_in,
    node_configs_in,
    settings_in,
)
from allocator.cluster.objects import (
    ConfigMap,
    GpuNodeObject,
    Namespace,
    NodeObject,
    config_map,
    decode_node,
    gpu_node,
    namespace,
)
from allocator.cluster.volcano_registers import VolcanoRegisters
from allocator.config.device_config import DeviceConfig, NodeConfig, configured_vocabularies
from allocator.config.settings import DEFAULTS, NodeAgent, Settings
from allocator.extender.index import Index, IndexBuilder, NodesByPod
from allocator.extender.score import scorer
from allocator.ledger.ledger import Ledger
from allocator.ledger.lifecycle import NodeIdentity, status_is_current
from allocator.mig.learned_demand import with_arrivals
from allocator.mig.positions import with_volcano_positions
from allocator.model.gpu import Node, Snapshot
from allocator.model.request import FillPolicy, PodRequest
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.watch import Publish, WatchHealth, WatchSource, follow_changes

GPU_NODES: Final = "/apis/vgpu-admission.io/v1alpha1/gpunodes"
NODES: Final = "/api/v1/nodes"
NAMESPACES: Final = "/api/v1/namespaces"
KINDS: Final = ("gpunodes", "nodes", "namespaces", "settings", "devices", "nodeconfig")
BASIS: Final = ("gpunodes", "nodes")  # answers rest on both, and either watch may die alone
MOST_ARRIVALS: Final = 10_000  # pods that are known not to be new
T = TypeVar("T")


class Inventory:
    """Follows GPUNodes, Nodes, Namespaces and ConfigMaps; everything it hands out is a value."""

    def __init__(
        self, client: Client, *, namespace: str, rated: bool = False, clock: Clock = SYSTEM
    ) -> None:
        """Follow through *client*; settings live in *namespace*; *rated* is for an extender."""
        self._client = client
        self._namespace = namespace
        self._packings = tuple(FillPolicy) if rated else ()
        self._clock = clock
        self._listed: Mapping[str, GpuNodeObject] = {}
        self._ledgers: Mapping[str, Ledger] | None = None
        self._texts: Mapping[str, NodeObject] = {}
        self._registers = VolcanoRegisters()
        self._namespaces: Mapping[str, Namespace] = {}
        self._versions = count(1)
        self._indexer = IndexBuilder()
        self._folded = Index(snapshot=Snapshot(version="0"))
        self._holders = NodesByPod()
        self._touched: set[str] = set()  # nodes that may differ from what is folded
        self._arrivals: OrderedDict[str, None] = OrderedDict()  # uids, the oldest first
        self._dirty = True
        self.settings: Settings = DEFAULTS
        self.settings_digest: str = "defaults"
        self.device_config = DeviceConfig()
        self.node_configs: Mapping[str, NodeConfig] = {}
        self.vocabularies: tuple[Vocabulary, ...] = VOCABULARIES
        self.pulses: dict[str, WatchHealth] = {kind: WatchHealth() for kind in KINDS}

    async def run(self) -> None:
        """Follow everything, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._gpu_nodes())
            group.create_task(self._nodes())
            group.create_task(self._follow_namespaces())
            group.create_task(self._config("settings", SETTINGS_NAME, self._new_settings))
            group.create_task(self._config("devices", DEVICE_CONFIG_NAME, self._new_devices))
            group.create_task(self._config("nodeconfig", NODE_CONFIG_NAME, self._new_node_configs))

    async def _follow(self, source: WatchSource[T], publish: Publish[T], kind: str) -> None:
        pulse = self.pulses[kind]
        await follow_changes(self._client, source, publish, pulse=pulse, clock=self._clock)

    async def _gpu_nodes(self) -> None:
        source = WatchSource(path=GPU_NODES, decode=gpu_node, key=lambda listed: listed.name)

        def publish(gpu_nodes: Mapping[str, GpuNodeObject], touched: Collection[str]) -> None:
            self._listed, self._ledgers, self._dirty = gpu_nodes, None, True
            self._touched.update(touched)
            for name in touched:
                self._holders.put(name, gpu_nodes[name].promises if name in gpu_nodes else ())

        await self._follow(source, publish, "gpunodes")

    async def _nodes(self) -> None:
        source = WatchSource(path=NODES, decode=decode_node, key=lambda node: node.name)

        def publish(nodes: Mapping[str, NodeObject], touched: Collection[str]) -> None:
            self._texts, self._dirty = nodes, True
            self._touched.update(touched)
            if any(name not in nodes for name in touched):
                self._registers.forget(nodes.keys())

        await self._follow(source, publish, "nodes")

    async def _follow_namespaces(self) -> None:
        source = WatchSource(path=NAMESPACES, decode=namespace, key=lambda found: found.name)

        def publish(namespaces: Mapping[str, Namespace], _: Collection[str]) -> None:
            self._namespaces = namespaces

        await self._follow(source, publish, "namespaces")

    async def _config(
        self, kind: str, name: str, accept: Callable[[Mapping[str, str]], None]
    ) -> None:
        # Our own settings lie where we run; the others are those of Volcano's device plugin.
        namespace = self._namespace if kind == "settings" else "kube-system"
        source = WatchSource(
            path=f"/api/v1/namespaces/{namespace}/configmaps",
            decode=config_map,
            key=lambda found: found.name,
            selectors={"fieldSelector": f"metadata.name={name}"},
        )

        def publish(config_maps: Mapping[str, ConfigMap], _: Collection[str]) -> None:
            if name in config_maps:
                accept(config_maps[name].data)

        await self._follow(source, publish, kind)

    def _new_settings(self, data: Mapping[str, str]) -> None:
        found = settings_in(data)
        if found is not None:
            self.settings, self.settings_digest = found
            self._touched.update(self._texts)  # whose word stands may be another matter now
            self._dirty = True  # another way of scoring
            self._update_vocabularies()

    def _new_devices(self, data: Mapping[str, str]) -> None:
        device_config = device_config_in(data)
        if device_config is not None:
            self.device_config = device_config
            self._update_vocabularies()
            self._forget_upstream()

    def _new_node_configs(self, data: Mapping[str, str]) -> None:
        node_configs = node_configs_in(data)
        if node_configs is not None:
            self.node_configs = node_configs
            self._forget_upstream()

    def _forget_upstream(self) -> None:
        """Read every register annotation anew, under the configuration that holds now."""
        factor = self.device_config.memory_factor
        self._registers.configure(factor=factor, configs=self.node_configs)
        self._touched.update(self._texts)
        self._dirty = True

    def _update_vocabularies(self) -> None:
        """Speak the vocabularies as this cluster's configuration does."""
        self.vocabularies = configured_vocabularies(self.settings, self.device_config)

    @property
    def synced(self) -> bool:
        """Say whether every watch has delivered a whole picture."""
        return all(pulse.synced for pulse in self.pulses.values())

    def age(self) -> float | None:
        """Return the seconds since all of ``BASIS`` was last heard about, ``None`` before that."""
        now = self._clock.monotonic()
        ages = [age for kind in BASIS if (age := self.pulses[kind].age(now)) is not None]
        return max(ages) if len(ages) == len(BASIS) else None

    def learn_arrival(self, uid: str, request: PodRequest, failed: bool) -> None:  # noqa: FBT001 -- a callback
        """Learn from a pod's first attempt to be bound; later ones are no new demand."""
        if uid in self._arrivals:
            return
        self._arrivals[uid] = None
        if len(self._arrivals) > MOST_ARRIVALS:
            self._arrivals.popitem(last=False)
        known = self._folded.snapshot
        boards = {offer.board for offer in known.offers if offer.board is not None}
        demand = with_arrivals(known.demand, request, boards, failed=failed)
        version = str(next(self._versions))  # a decision must be replayed on what was known then
        self._folded = replace(
            self._folded, snapshot=replace(known, version=version, demand=demand)
        )

    def last_heard(self) -> dict[str, float]:
        """Return when each kind was last heard about, as Unix seconds."""
        monotonic, wall = self._clock.monotonic(), self._clock.wall().timestamp()
        ages = {kind: pulse.age(monotonic) for kind, pulse in self.pulses.items()}
        return {kind: wall - age for kind, age in ages.items() if age is not None}

    def namespace(self, name: str) -> Namespace | None:
        """Return what is known about a namespace."""
        return self._namespaces.get(name)

    def promising_nodes(self, uid: str) -> frozenset[str]:
        """Return the nodes that promise something to pod *uid*, as far as is known."""
        return self._holders.nodes_of(uid)

    def snapshot(self) -> Snapshot:
        """Return the cluster as one value; it never refuses for want of what it cannot see."""
        return self.index().snapshot

    def index(self) -> Index:
        """Return the same for questions about many nodes at a time."""
        if self._dirty:
            self._folded, self._dirty = self._fold(), False
        index, age = self._folded, self.age()
        if index.whole and (age is None or age > self.settings.stale_after_seconds):
            return replace(index, snapshot=replace(index.snapshot, complete=False), whole=False)
        return index

    def _fold(self) -> Index:
        """Bring what is folded up to date, at the cost of what changed."""
        for name in self._touched:
            node = self._node(name) if name in self._texts else None
            if node is None:
                self._indexer.drop(name)
            else:
                self._put(node)
        self._touched.clear()
        return self._indexer.index(
            version=str(next(self._versions)),
            complete=self.pulses["gpunodes"].synced and self.pulses["nodes"].synced,
            demand=self._folded.snapshot.demand,
            scorers=[scorer(packing, self.settings.score_weights) for packing in self._packings],
        )

    def _put(self, node: Node) -> None:
        listed = self._listed.get(node.name)
        if listed is None:
            self._indexer.put(node)
            return
        ledger = listed.ledger
        closed = bool(ledger.closed) or not self.is_current(ledger)
        self._indexer.put(node, ledger.entries, closed=closed)

    def _node(self, name: str) -> Node | None:
        """Return a node from its agent's inventory, else from the register annotation."""
        listed = self._listed.get(name)
        if listed is not None and listed.node is not None:
            return with_volcano_positions(listed.node) if self._texts[name].text else listed.node
        return self._registers.node(name, self._texts[name].full_register)

    def nodes(self) -> Mapping[str, NodeObject] | None:
        """Return all Nodes by name as they were read, ``None`` while not all are known."""
        return self._texts if self.synced else None

    def machine(self, node: NodeObject) -> NodeIdentity:
        """Return a Node with what its register annotation announces."""
        return self._registers.machine(node)

    def machines(self) -> Mapping[str, NodeIdentity] | None:
        """Return all Nodes by name, each the same object until it changes; ``None`` so far."""
        return self._registers.machines(self._texts) if self.synced else None

    def ledgers(self) -> Mapping[str, Ledger] | None:
        """Return all GPUNodes by name, the same map until one changes; ``None`` so far."""
        if self._ledgers is None:
            self._ledgers = {name: listed.ledger for name, listed in self._listed.items()}
        return self._ledgers if self.synced else None

    def ledger(self, name: str) -> Ledger | None:
        """Return a GPUNode as it was last heard of."""
        listed = self._listed.get(name)
        return None if listed is None else listed.ledger

    def is_current(self, ledger: Ledger) -> bool:
        """Say whether the status of *ledger* holds, as far as is known of its Node.

        One that is known to be gone takes nothing, though its GPUNode may not be shut yet.
        """
        node = self._texts.get(ledger.name)
        if node is None and self.pulses["nodes"].synced:
            return False
        uid, boot = (node.uid, node.boot) if node else ("", "")
        upstream = self.settings.node_agent is NodeAgent.UPSTREAM
        return status_is_current(ledger, node_uid=uid, boot=boot, upstream=upstream)
