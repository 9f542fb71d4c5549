"""Ratings: what each node scores by the usual ways of scoring, as JSON that is ready to be sent.

A score rests on how busy a node is and not on the pod, unless it asks for several GPUs. Made when
a node changes, it costs a question about thousands of nodes one look each.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from allocator.core.extenderwire import HostPriority
from allocator.core.scores import NodeLoad, Scorer


class ScoreTable(NamedTuple):
    """What nodes score by one way of scoring, by name; one that is not here scores 0."""

    parts: Mapping[str, bytes]
    scores: Mapping[str, int]


_encode = msgspec.json.Encoder().encode


def score_json(name: str, score: int) -> bytes:
    """Return the part of an answer that gives node *name* a *score*."""
    return _encode(HostPriority(host=name, score=score))


def favourite(table: ScoreTable, names: Sequence[str]) -> str:
    """Return the one of *names* that scores most; nothing where no other scores less."""
    best, found = 0, ""
    for name in table.scores.keys() & set(names):
        score = table.scores[name]
        if score > best:
            best, found = score, name
        elif score == best:
            found = ""
    return found


class Ratings:
    """Tables of all nodes, kept up to date node by node."""

    def __init__(self) -> None:
        """Know of no node, and rate by nothing yet."""
        self._tables: dict[Scorer, tuple[dict[str, bytes], dict[str, int]]] = {}

    def put(self, name: str, load: NodeLoad) -> None:
        """Rate node *name* anew."""
        for scorer, (parts, scores) in self._tables.items():
            if score := scorer(load):
                parts[name], scores[name] = score_json(name, score), score
            else:
                parts.pop(name, None)
                scores.pop(name, None)

    def drop(self, name: str) -> None:
        """Forget node *name*."""
        for parts, scores in self._tables.values():
            parts.pop(name, None)
            scores.pop(name, None)

    def tables_for(
        self, scorers: Collection[Scorer], loads: Iterable[tuple[str, NodeLoad]]
    ) -> Mapping[Scorer, ScoreTable]:
        """Return tables by *scorers*, which no later change touches; *loads* are of all nodes."""
        if self._tables.keys() != set(scorers):
            self._tables = {scorer: ({}, {}) for scorer in scorers}
            for name, load in loads:
                self.put(name, load)
        return {
            scorer: ScoreTable(parts.copy(), scores.copy())
            for scorer, (parts, scores) in self._tables.items()
        }
