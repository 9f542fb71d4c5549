"""Follows GPUNodes, Nodes, Namespaces and ConfigMaps, and keeps a Snapshot and an Index of them."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Final, TypeVar

import structlog

from allocator.catalog.vocabularies import VOCABULARIES, LostVocabulary, Vocabulary
from allocator.cluster.configmaps import (
    DEVICE_CONFIG_NAME,
    NO_SETTINGS,
    NODE_CONFIG_NAME,
    SETTINGS_NAME,
    config_map_source,
    device_config_in,
    modes_source,
    node_configs_in,
    settings_in,
    vocabularies_in,
)
from allocator.cluster.node_registers import NodeRegisters
from allocator.cluster.objects import (
    ConfigMap,
    Namespace,
    NodeObject,
    decode_gpu_node,
    decode_namespace,
    decode_node,
)
from allocator.cluster.picture import Picture
from allocator.config.device_config import DeviceConfig, NodeConfig
from allocator.config.settings import DEFAULTS, Settings
from allocator.extender.index import Index, IndexBuilder, NodesByPod
from allocator.extender.score import scorer
from allocator.families.family import NodeModesSource
from allocator.families.registry import family_modes
from allocator.ledger.ledger import Ledger
from allocator.ledger.lifecycle import NodeIdentity, status_is_current
from allocator.mig.fleet_shapes import FleetShapes
from allocator.mig.learned_demand import with_arrivals
from allocator.mig.positions import with_volcano_positions
from allocator.model.board import Board
from allocator.model.demand import NOTHING_LEARNED, Demand
from allocator.model.gpu import Node, Snapshot
from allocator.model.request import FillPolicy, PodRequest
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.watch import PublishUpdates, WatchHealth, WatchSource, follow_updates

GPU_NODES: Final = "/apis/vgpu-admission.io/v1alpha1/gpunodes"
NODES: Final = "/api/v1/nodes"
NAMESPACES: Final = "/api/v1/namespaces"
KINDS: Final = (
    *("gpunodes", "nodes", "namespaces", "settings", "devices", "nodeconfig"),
    *(f"{family} modes" for family in family_modes()),
)
REQUIRED_KINDS: Final = ("gpunodes", "nodes")  # every answer needs both
RETRY_SECONDS: Final = 1.0  # until nodes are asked about again whose boards were one too many
MOST_ARRIVALS: Final = 10_000  # uids remembered, so that no pod is learned from twice
T = TypeVar("T")
Accept = Callable[[Mapping[str, str]], None]  # takes the data of a ConfigMap
log = structlog.get_logger(__name__)


class DemandLearner:
    """Learns demand for MIG profiles from arriving pods, from each pod once."""

    def __init__(self) -> None:
        """Start without any arrival."""
        self.demand: Demand = NOTHING_LEARNED
        self._uids: OrderedDict[str, None] = OrderedDict()  # of pods learned from, the oldest first

    def learn(
        self, uid: str, request: PodRequest, boards: Collection[Board], *, failed: bool
    ) -> bool:
        """Learn from the first attempt to bind pod *uid*; return whether it was the first one.

        *failed* says that the attempt failed. Further attempts of a pod are ignored.
        """
        if uid in self._uids:
            return False
        self._uids[uid] = None
        if len(self._uids) > MOST_ARRIVALS:
            self._uids.popitem(last=False)
        self.demand = with_arrivals(self.demand, request, boards, failed=failed)
        return True


class Inventory:
    """The followed objects; its methods return immutable values only."""

    def __init__(
        self, client: Client, *, namespace: str, prepare_scores: bool = False, clock: Clock = SYSTEM
    ) -> None:
        """Follow through *client*; our settings are in *namespace*.

        *prepare_scores* keeps score tables ready, for an extender.
        """
        self._client = client
        self._namespace = namespace
        self._fill_policies = tuple(FillPolicy) if prepare_scores else ()
        self._clock = clock
        self._ledgers: Picture[Ledger] = Picture()
        self._nodes: Picture[NodeObject] = Picture()
        self._identities: Picture[NodeIdentity] = Picture()
        self._registers = NodeRegisters()
        self._namespaces: Picture[Namespace] = Picture()
        self._versions = count(1)
        self._builder = IndexBuilder()
        self._index = Index(snapshot=Snapshot(version="0"))
        self._nodes_by_pod = NodesByPod()
        self._changed: set[str] = set()  # nodes that may differ from those in the builder
        self._shapes = FleetShapes()
        self._retry_at = 0.0  # when nodes that wait are asked about again, monotonic seconds
        self._learner = DemandLearner()
        self._dirty = True  # _index is outdated
        self.settings: Settings = DEFAULTS
        self.settings_digest: str = NO_SETTINGS
        self._config_maps: dict[str, ConfigMap] = {}  # as they were last seen
        self.device_config = DeviceConfig()
        self.node_configs: Mapping[str, NodeConfig] = {}
        self.vocabularies: tuple[Vocabulary, ...] = VOCABULARIES
        self.lost: tuple[LostVocabulary, ...] = ()
        self.watches: dict[str, WatchHealth] = {kind: WatchHealth() for kind in KINDS}

    async def run(self) -> None:
        """Follow everything, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_gpu_nodes())
            group.create_task(self._follow_nodes())
            group.create_task(self._follow_namespaces())
            for kind, name, accept in (
                ("settings", SETTINGS_NAME, self._accept_settings),
                ("devices", DEVICE_CONFIG_NAME, self._accept_device_config),
                ("nodeconfig", NODE_CONFIG_NAME, self._accept_node_configs),
            ):
                group.create_task(self._follow_config_map(kind, name, accept))
            for family, source in family_modes().items():
                group.create_task(self._follow_family_modes(family, source))

    async def _follow(self, source: WatchSource[T], publish: PublishUpdates[T], kind: str) -> None:
        health = self.watches[kind]
        await follow_updates(self._client, source, publish, health=health, clock=self._clock)

    async def _follow_gpu_nodes(self) -> None:
        source = WatchSource(
            path=GPU_NODES,
            decode=lambda raw: decode_gpu_node(raw, self._ledgers.get),
            key=lambda ledger: ledger.name,
        )

        def publish(changes: Mapping[str, Ledger | None]) -> None:
            changed = self._ledgers.apply(changes)
            self._mark_changed(changed)
            for name in changed:
                ledger = self._ledgers.get(name)
                uids = () if ledger is None else (entry.uid for entry in ledger.entries)
                self._nodes_by_pod.put(name, uids)

        await self._follow(source, publish, "gpunodes")

    async def _follow_nodes(self) -> None:
        source = WatchSource(
            path=NODES,
            decode=lambda raw: decode_node(raw, self._nodes.get),
            key=lambda node: node.name,
        )

        def publish(changes: Mapping[str, NodeObject | None]) -> None:
            for name, node in changes.items():
                before = self._nodes.get(name)
                if before is None or node is None or before.gpu_facts != node.gpu_facts:
                    self._mark_changed((name,))
            self._nodes.apply(changes)
            self._update_identities(changes)

        await self._follow(source, publish, "nodes")

    def _mark_changed(self, names: Collection[str]) -> None:
        """Have the index updated with nodes *names* before it is next asked for."""
        self._changed.update(names)
        self._dirty = True

    def _update_identities(self, names: Iterable[str]) -> None:
        """Derive the identities of nodes *names*; one that is the same stays the same object."""
        self._registers.forget([name for name in names if name not in self._nodes])
        changes: dict[str, NodeIdentity | None] = {}
        for name in names:
            node = self._nodes.get(name)
            identity = None if node is None else self.node_identity(node)
            if identity != self._identities.get(name):
                changes[name] = identity
        self._identities.apply(changes)

    async def _follow_namespaces(self) -> None:
        source = WatchSource(
            path=NAMESPACES, decode=decode_namespace, key=lambda namespace: namespace.name
        )

        def publish(changes: Mapping[str, Namespace | None]) -> None:
            self._namespaces.apply(changes)

        await self._follow(source, publish, "namespaces")

    async def _follow_config_map(self, kind: str, name: str, accept: Accept) -> None:
        namespace = self._namespace if kind == "settings" else "kube-system"  # the plugin's

        def publish(changes: Mapping[str, ConfigMap | None]) -> None:
            config_map = changes.get(name)
            if config_map is not None:
                self._config_maps[name] = config_map
                accept(config_map.data)

        await self._follow(config_map_source(namespace, name), publish, kind)

    async def _follow_family_modes(self, family: str, modes: NodeModesSource) -> None:
        def publish(changes: Mapping[str, ConfigMap | None]) -> None:
            if modes.name in changes:
                self._registers.configure_family(family, changes[modes.name])
                self._reread_registers()

        await self._follow(modes_source(modes), publish, f"{family} modes")

    def _accept_settings(self, data: Mapping[str, str]) -> None:
        settings = settings_in(data)
        if settings is not None:
            self.settings, self.settings_digest = settings
            self._update_vocabularies()
            self._reread_registers()  # nodeAgent decides which count, and which status is current

    def _accept_device_config(self, data: Mapping[str, str]) -> None:
        device_config = device_config_in(data)
        if device_config is not None:
            self.device_config = device_config
            self._update_vocabularies()
            self._reread_registers()

    def _accept_node_configs(self, data: Mapping[str, str]) -> None:
        node_configs = node_configs_in(data)
        if node_configs is not None:
            self.node_configs = node_configs
            self._reread_registers()

    def _reread_registers(self) -> None:
        """Decode every register annotation again, with the current configuration."""
        self._registers.configure(
            factor=self.device_config.memory_factor,
            configs=self.node_configs,
            settings=self.settings,
        )
        self._mark_changed(self._nodes)
        self._update_identities(self._nodes)

    def _update_vocabularies(self) -> None:
        self.vocabularies, self.lost = vocabularies_in(self.settings, self.device_config)

    @property
    def synced(self) -> bool:
        """Say whether every watch has published a complete list."""
        return all(health.synced for health in self.watches.values())

    @property
    def knows_gpus(self) -> bool:
        """Say whether each of ``REQUIRED_KINDS`` has been listed completely."""
        return all(self.watches[kind].synced for kind in REQUIRED_KINDS)

    def age(self) -> float | None:
        """Return the age in seconds of the oldest of the ``REQUIRED_KINDS``' last messages.

        ``None`` until each kind had a message.
        """
        now = self._clock.monotonic()
        ages = [age for kind in REQUIRED_KINDS if (age := self.watches[kind].age(now)) is not None]
        return max(ages) if len(ages) == len(REQUIRED_KINDS) else None

    def learn_arrival(self, uid: str, request: PodRequest, failed: bool) -> None:  # noqa: FBT001 -- a callback
        """Learn demand from a pod that a scheduler binds; *failed* says that it did not fit."""
        snapshot = self._index.snapshot
        boards = {offer.board for offer in snapshot.offers if offer.board is not None}
        if not self._learner.learn(uid, request, boards, failed=failed):
            return
        # An audit record names the snapshot that its decision was based on.
        version = str(next(self._versions))
        snapshot = replace(snapshot, version=version, demand=self._learner.demand)
        self._index = replace(self._index, snapshot=snapshot)

    def namespace(self, name: str) -> Namespace | None:
        """Return a namespace as it was last seen, ``None`` where it is not known."""
        return self._namespaces.get(name)

    def nodes_with_entry(self, uid: str) -> frozenset[str]:
        """Return the nodes on which pod *uid* has an entry, as last seen."""
        return self._nodes_by_pod.nodes_of(uid)

    def snapshot(self) -> Snapshot:
        """Return the cluster as one value; while it is incomplete, no pod is refused for it."""
        return self.index().snapshot

    def index(self) -> Index:
        """Return the cluster prepared for questions about many nodes at a time."""
        if self._dirty or (self._changed and self._clock.monotonic() >= self._retry_at):
            self._index, self._dirty = self._rebuild(), False
        index, age = self._index, self.age()
        if index.all_nodes_known and (age is None or age > self.settings.stale_after_seconds):
            return replace(
                index, snapshot=replace(index.snapshot, complete=False), all_nodes_known=False
            )
        return index

    def _rebuild(self) -> Index:
        """Update the builder with the nodes that changed, and return its index."""
        now = self._clock.monotonic()
        self._shapes.begin()
        waiting = set()
        for name in self._changed:
            node = self._node(name) if name in self._nodes else None
            if node is None:
                self._builder.drop(name)
                self._shapes.drop(name)
            elif self._shapes.admit(name, node.gpus, now=now):
                self._put(node)
            else:
                waiting.add(name)
                self._builder.put(replace(node, gpus=(), fresh=False), closed=True)
        if waiting:
            log.warning("nodes with new kinds of MIG boards wait", nodes=sorted(waiting)[:8])
        self._changed, self._retry_at = waiting, now + RETRY_SECONDS
        return self._builder.index(
            version=str(next(self._versions)),
            complete=self.watches["gpunodes"].synced and self.watches["nodes"].synced,
            demand=self._learner.demand,
            scorers=[
                scorer(packing, self.settings.score_weights) for packing in self._fill_policies
            ],
        )

    def _put(self, node: Node) -> None:
        ledger = self._ledgers.get(node.name)
        if ledger is None:
            self._builder.put(node)
            return
        closed = bool(ledger.closed) or not self.is_current(ledger)
        self._builder.put(node, ledger.entries, closed=closed)

    def _node(self, name: str) -> Node | None:
        """Return a node from its GPUNode, or else from its register annotation.

        On a node with a register annotation, MIG instances use Volcano's positions.
        """
        ledger = self._ledgers.get(name)
        # A node whose status is not read has GPUs all the same: nothing is known of them.
        if ledger is not None and (ledger.node.gpus or ledger.excess is not None):
            registered = bool(self._nodes[name].register)
            node = with_volcano_positions(ledger.node) if registered else ledger.node
            return self._registers.with_links(node, self._nodes[name])
        return self._registers.node_of(self._nodes[name])

    def config_maps(self) -> Mapping[str, ConfigMap] | None:
        """Return the ConfigMaps that are read, by name, ``None`` until :attr:`synced`."""
        return self._config_maps if self.synced else None

    def nodes(self) -> Mapping[str, NodeObject] | None:
        """Return all Nodes by name, ``None`` until :attr:`synced`."""
        return self._nodes if self.synced else None

    def node_identity(self, node: NodeObject) -> NodeIdentity:
        """Return the identity of *node*, its register included."""
        return self._registers.identity(node)

    def node_identities(self) -> Mapping[str, NodeIdentity] | None:
        """Return the identities of all Nodes by name, ``None`` until :attr:`synced`.

        Each value stays the same object until its Node changes in what the value says.
        """
        return self._identities if self.synced else None

    def ledgers(self) -> Mapping[str, Ledger] | None:
        """Return all GPUNodes by name, ``None`` until :attr:`synced`."""
        return self._ledgers if self.synced else None

    def ledger(self, name: str) -> Ledger | None:
        """Return a GPUNode as it was last seen, ``None`` where there is none."""
        return self._ledgers.get(name)

    def is_current(self, ledger: Ledger) -> bool:
        """Say whether the status of *ledger* describes its Node as last seen.

        Not where the Node is gone, although its GPUNode may still be open, or has two owners.
        """
        node = self._nodes.get(ledger.name)
        gone = node is None and self.watches["nodes"].synced
        if gone or (node is not None and self._registers.conflict_of(node)):
            return False
        uid, boot = (node.uid, node.boot) if node else ("", "")
        upstream = self.settings.node_agent.is_other
        return status_is_current(ledger, node_uid=uid, boot=boot, upstream=upstream)
