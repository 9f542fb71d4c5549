"""Nodes as device plugins of others have registered them, cached."""

from collections.abc import Iterable, Mapping

import structlog

from allocator.cluster.family_inventories import FamilyInventories, with_links_of
from allocator.cluster.objects import ConfigMap, NodeObject
from allocator.cluster.volcano_registers import VolcanoRegisters
from allocator.config.device_config import NodeConfig
from allocator.config.settings import DEFAULTS, NodeAgent, Settings
from allocator.hami.ownership import conflict_of_plugins
from allocator.hami.register import HamiNode, node_from_hami_register
from allocator.ledger.drift import MOST_PROBLEMS
from allocator.ledger.lifecycle import NodeIdentity
from allocator.model.gpu import Node

log = structlog.get_logger(__name__)


class HamiRegisters:
    """Decodes each register of HAMi's once, until its text changes."""

    def __init__(self) -> None:
        """Start without any."""
        self._nodes: dict[str, tuple[str, HamiNode]] = {}  # by name, with the text of the register

    def forget(self, names: Iterable[str]) -> None:
        """Forget the nodes *names*."""
        for name in names:
            self._nodes.pop(name, None)

    def node(self, node: NodeObject, count: str) -> HamiNode | None:
        """Return the node as it registered, ``None`` while its plugin is not alive.

        *count* is the resource that the plugin gives out. One that is gone leaves its register
        behind. HAMi too goes by what is allocatable.
        """
        name, text = node.name, node.hami.register
        if not text or not node.hami.is_alive(count):
            return None
        cached = self._nodes.get(name)
        if cached is None or cached[0] != text:
            registered = node_from_hami_register(name, text)
            for problem in registered.problems[:MOST_PROBLEMS]:
                log.warning("malformed register annotation", node=name, what=str(problem))
            cached = self._nodes[name] = (text, registered)
        return cached[1]


class NodeRegisters:
    """What device plugins of others say of their Nodes.

    A family's own plugin counts always. For the others it is Volcano's register, or HAMi's where
    the setting nodeAgent leaves the nodes to that.
    """

    def __init__(self) -> None:
        """Start with Volcano's, without configuration."""
        self._families = FamilyInventories()
        self._volcano = VolcanoRegisters()
        self._hami = HamiRegisters()
        self._settings = DEFAULTS

    def configure(
        self, *, factor: int, configs: Mapping[str, NodeConfig], settings: Settings
    ) -> None:
        """Read by *settings* from now on, Volcano's register in *factor* MiB and by *configs*."""
        self._volcano.configure(factor=factor, configs=configs)
        self._settings = settings

    def configure_family(self, family: str, config_map: ConfigMap | None) -> None:
        """Take the modes of nodes from the ConfigMap of *family*, ``None`` where there is none."""
        self._families.configure(family, None if config_map is None else config_map.data)

    def forget(self, names: Iterable[str]) -> None:
        """Forget the nodes *names*."""
        gone = tuple(names)
        self._families.forget(gone)
        self._volcano.forget(gone)
        self._hami.forget(gone)

    def node_of(self, node: NodeObject) -> Node | None:
        """Return *node* as it registered, ``None`` where it has not."""
        return self._registered(node)[0]

    def identity(self, node: NodeObject) -> NodeIdentity:
        """Return the identity of a Node, its register included."""
        registered, registered_by = self._registered(node)
        return node.identity(
            registered,
            registered_by=registered_by,
            registered_closed=self._closed(node, registered_by),
            conflict=self.conflict_of(node),
        )

    def with_links(self, known: Node, node: NodeObject) -> Node:
        """Return *known* with what the device plugin of *node* says of its links now."""
        return with_links_of(known, self._families.node(node.facts))

    def conflict_of(self, node: NodeObject) -> str:
        """Return why nobody may give out the GPUs of *node*; empty if one of us may."""
        return conflict_of_plugins(node.hami, self._settings, has_agent=node.has_agent)

    def _closed(self, node: NodeObject, registered_by: str) -> str:
        """Return why the plugin of *node*, called *registered_by*, gives out nothing, if so."""
        if registered_by == NodeAgent.HAMI:
            found = self._hami.node(node, self._settings.hami.count_name)
            return "" if found is None else found.closed
        return self._families.inventory(node.facts).closed

    def _registered(self, node: NodeObject) -> tuple[Node | None, str]:
        """Return *node* as it registered, and who says so; empty for Volcano's plugin."""
        described = self._families.node(node.facts)
        if described is not None and node.facts is not None:
            return described, node.facts.family
        if self._settings.node_agent is NodeAgent.HAMI:
            found = self._hami.node(node, self._settings.hami.count_name)
            return None if found is None else found.node, str(NodeAgent.HAMI)
        return self._volcano.node(node.name, node.full_register), ""
