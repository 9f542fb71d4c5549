"""Nodes as decoded from the register annotation of Volcano's device plugin, cached."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import structlog

from allocator.cluster.objects import NodeObject
from allocator.config.device_config import NodeConfig
from allocator.ledger.lifecycle import NodeIdentity
from allocator.model.gpu import Node
from allocator.volcano.register import node_from_register

log = structlog.get_logger(__name__)


class VolcanoRegisters:
    """Decodes each register once, until its text or the plugin's configuration changes."""

    def __init__(self) -> None:
        """Start without configuration."""
        self._nodes: dict[str, tuple[str, Node]] = {}  # register text and its Node, by name
        self._identities: dict[str, tuple[NodeObject, NodeIdentity]] = {}  # by name
        self._all_identities: tuple[Mapping[str, NodeObject], Mapping[str, NodeIdentity]] | None = (
            None
        )
        self._factor = 1  # MiB per unit of memory
        self._configs: Mapping[str, NodeConfig] = {}

    def configure(self, *, factor: int, configs: Mapping[str, NodeConfig]) -> None:
        """Clear the caches; from now on use *factor* MiB per unit, and *configs* by node."""
        self._factor, self._configs = factor, configs
        self._nodes.clear()
        self._identities.clear()
        self._all_identities = None

    def forget(self, known: Collection[str]) -> None:
        """Forget all nodes that are not in *known*."""
        for cache in (self._nodes, self._identities):
            for name in cache.keys() - known:
                del cache[name]

    def identity(self, node: NodeObject) -> NodeIdentity:
        """Return the identity of a Node, the same object until the Node changes."""
        cached = self._identities.get(node.name)
        if cached is None or cached[0] is not node:
            identity = node.identity(registered=self.node(node.name, node.full_register))
            cached = self._identities[node.name] = (node, identity)
        return cached[1]

    def identities(self, nodes: Mapping[str, NodeObject]) -> Mapping[str, NodeIdentity]:
        """Return the identities of all *nodes*, by name; the same mapping for the same argument."""
        if self._all_identities is None or self._all_identities[0] is not nodes:
            self._all_identities = (
                nodes,
                {name: self.identity(node) for name, node in nodes.items()},
            )
        return self._all_identities[1]

    def node(self, name: str, text: str) -> Node | None:
        """Return node *name* as *text* describes it, ``None`` where there is no text."""
        if not text:
            return None
        cached = self._nodes.get(name)
        if cached is None or cached[0] != text:
            registered_node = node_from_register(name, text, factor=self._factor)
            for problem in registered_node.problems:
                log.warning("malformed register annotation", node=name, what=str(problem))
            cached = self._nodes[name] = (text, self._without_excluded(registered_node.node))
        return cached[1]

    def _without_excluded(self, node: Node) -> Node:
        """Remove GPUs that the configuration excludes; its register may still list them."""
        config = self._configs.get(node.name)
        if config is None:
            return node
        kept = (gpu for gpu in node.gpus if not config.excludes(gpu.uuid, gpu.index))
        return replace(node, gpus=tuple(kept))
