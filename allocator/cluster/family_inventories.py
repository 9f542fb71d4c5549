"""Nodes as their families' own device plugins describe them on the Node, cached."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from allocator.families.family import InventoryFacts, ReadInventory
from allocator.families.registry import FAMILIES
from allocator.ledger.drift import MOST_PROBLEMS
from allocator.model.gpu import Node
from allocator.model.problem import Rejected

_NOTHING: Final = ReadInventory(None)
log = structlog.get_logger(__name__)


class FamilyInventories:
    """Reads what was written on each Node once, until that changes."""

    def __init__(self) -> None:
        """Start without any Node."""
        self._nodes: dict[str, tuple[InventoryFacts, ReadInventory]] = {}  # by name
        self._modes: dict[str, Callable[[str], str]] = {}  # of each node, by family

    def configure(self, family: str, data: Mapping[str, str] | None) -> None:
        """Take the modes of nodes from a ConfigMap's *data*; ``None``: there is none any more.

        A rejected ConfigMap changes none, and is logged.
        """
        inventory = FAMILIES[family].inventory
        if inventory is None or inventory.modes is None:
            return
        if data is None:
            self._modes.pop(family, None)
            return
        loaded = inventory.modes.load(data)
        if isinstance(loaded, Rejected):
            log.error("modes of nodes rejected, previous ones kept", of=family, why=str(loaded))
            return
        for warning in loaded.warnings:
            log.warning("malformed modes of nodes", of=family, what=str(warning))
        self._modes[family] = loaded.value

    def forget(self, names: Iterable[str]) -> None:
        """Forget the nodes *names*."""
        for name in names:
            self._nodes.pop(name, None)

    def node(self, facts: InventoryFacts | None) -> Node | None:
        """Return the node of *facts*, ``None`` where they describe no GPU."""
        return self.inventory(facts).node

    def inventory(self, facts: InventoryFacts | None) -> ReadInventory:
        """Return all that *facts* describe."""
        if facts is None:
            return _NOTHING
        if (mode_of := self._modes.get(facts.family)) is not None:
            facts = replace(facts, configured=mode_of(facts.name))
        cached = self._nodes.get(facts.name)
        if cached is None or cached[0] != facts:
            cached = self._nodes[facts.name] = facts, _read(facts)
        return cached[1]


def _read(facts: InventoryFacts) -> ReadInventory:
    inventory = FAMILIES[facts.family].inventory
    if inventory is None:
        return _NOTHING
    read = inventory.read(facts)
    for problem in read.problems[:MOST_PROBLEMS]:
        log.warning("malformed inventory", node=facts.name, family=facts.family, what=str(problem))
    return read


def with_links_of(node: Node, described: Node | None) -> Node:
    """Return *node* with what its device plugin says now of the links between its GPUs."""
    if described is None or not (described.link_scores or described.link_losses):
        return node
    scores, losses = described.link_scores, described.link_losses
    return replace(node, link_scores=scores, link_losses=losses)
