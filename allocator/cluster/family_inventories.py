"""Nodes as their families' own device plugins describe them on the Node, cached."""

from collections.abc import Iterable

import structlog

from allocator.families.family import InventoryFacts
from allocator.families.registry import FAMILIES
from allocator.ledger.drift import MOST_PROBLEMS
from allocator.model.gpu import Node

log = structlog.get_logger(__name__)


class FamilyInventories:
    """Reads what was written on each Node once, until that changes."""

    def __init__(self) -> None:
        """Start without any Node."""
        self._nodes: dict[str, tuple[InventoryFacts, Node | None]] = {}  # by name

    def forget(self, names: Iterable[str]) -> None:
        """Forget the nodes *names*."""
        for name in names:
            self._nodes.pop(name, None)

    def node(self, facts: InventoryFacts | None) -> Node | None:
        """Return the node of *facts*, ``None`` where they describe no GPU."""
        if facts is None:
            return None
        cached = self._nodes.get(facts.name)
        if cached is None or cached[0] != facts:
            cached = self._nodes[facts.name] = facts, _read(facts)
        return cached[1]


def _read(facts: InventoryFacts) -> Node | None:
    inventory = FAMILIES[facts.family].inventory
    if inventory is None:
        return None
    read = inventory.read(facts)
    for problem in read.problems[:MOST_PROBLEMS]:
        log.warning("malformed inventory", node=facts.name, family=facts.family, what=str(problem))
    return read.node
