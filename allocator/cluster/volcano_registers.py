"""Nodes as decoded from the register annotation of Volcano's device plugin, cached."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import structlog

from allocator.cluster.objects import NodeObject
from allocator.config.device_config import NodeConfig
from allocator.ledger.drift import MOST_PROBLEMS
from allocator.ledger.lifecycle import NodeIdentity
from allocator.model.gpu import Node
from allocator.volcano.register import node_from_register

log = structlog.get_logger(__name__)


class VolcanoRegisters:
    """Decodes each register once, until its text or the plugin's configuration changes."""

    def __init__(self) -> None:
        """Start without configuration."""
        self._nodes: dict[str, tuple[str, Node]] = {}  # register text and its Node, by name
        self._factor = 1  # MiB per unit of memory
        self._configs: Mapping[str, NodeConfig] = {}

    def configure(self, *, factor: int, configs: Mapping[str, NodeConfig]) -> None:
        """Clear the cache; from now on use *factor* MiB per unit, and *configs* by node."""
        self._factor, self._configs = factor, configs
        self._nodes.clear()

    def forget(self, names: Iterable[str]) -> None:
        """Forget the nodes *names*."""
        for name in names:
            self._nodes.pop(name, None)

    def identity(self, node: NodeObject) -> NodeIdentity:
        """Return the identity of a Node."""
        return node.identity(registered=self.node(node.name, node.full_register))

    def node(self, name: str, text: str) -> Node | None:
        """Return node *name* as *text* describes it, ``None`` where there is no text."""
        if not text:
            return None
        cached = self._nodes.get(name)
        if cached is None or cached[0] != text:
            registered_node = node_from_register(name, text, factor=self._factor)
            for problem in registered_node.problems[:MOST_PROBLEMS]:
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
