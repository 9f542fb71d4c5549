"""Ratings: what each node scores by the usual ways of scoring, as JSON that is ready to be sent.

A score rests on how busy a node is and not on the pod, unless it asks for several GPUs. Made when
a node changes, it costs a question about thousands of nodes one look each.
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from allocator.core.extenderwire import HostPriority
from allocator.core.scores import Load, Scorer

Table = Mapping[str, bytes]  # by node

_encode = msgspec.json.Encoder().encode


def rated(name: str, score: int) -> bytes:
    """Return the part of an answer that gives node *name* a *score*."""
    return _encode(HostPriority(host=name, score=score))


class Ratings:
    """Tables of all nodes, kept up to date node by node."""

    def __init__(self) -> None:
        """Know of no node, and rate by nothing yet."""
        self._tables: dict[Scorer, dict[str, bytes]] = {}

    def put(self, name: str, load: Load) -> None:
        """Rate node *name* anew."""
        for scorer, table in self._tables.items():
            table[name] = rated(name, scorer(load))

    def drop(self, name: str) -> None:
        """Forget node *name*."""
        for table in self._tables.values():
            table.pop(name, None)

    def by(
        self, scorers: Collection[Scorer], loads: Iterable[tuple[str, Load]]
    ) -> Mapping[Scorer, Table]:
        """Return tables by *scorers*, which no later change touches; *loads* are of all nodes."""
        for unused in self._tables.keys() - set(scorers):
            del self._tables[unused]
        missing = {scorer: dict[str, bytes]() for scorer in scorers if scorer not in self._tables}
        if missing:
            self._tables.update(missing)
            for name, load in loads:
                for scorer, table in missing.items():
                    table[name] = rated(name, scorer(load))
        return {scorer: self._tables[scorer].copy() for scorer in scorers}
