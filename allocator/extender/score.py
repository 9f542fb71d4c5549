"""Scores of nodes, 0 to 10, by their load, and tables of scores that are kept ready.

The tables exist for ``benchmarks.extender``: prioritize then looks scores up, one node at a time,
and computes nothing. Without that benchmark they could go, and :func:`score` would do.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Final, NamedTuple

import msgspec

from allocator.config.settings import ScoreWeights
from allocator.extender.schema import HostPriority
from allocator.model.gpu import Gpu, Node
from allocator.model.request import FillPolicy, Mode, PodRequest
from allocator.model.units import WHOLE_GPU
from allocator.placement.topology import Idle, worth

MOST_SCORE: Final = 10  # the scale of kube-scheduler's extenders
_THOUSANDTHS: Final = 1000


class NodeLoad(NamedTuple):
    """How busy the healthy GPUs of a node are, in thousandths of their capacity."""

    memory: int  # promised or foreign; of a GPU in mode mig, its slots
    cores: int  # promised
    shares: int  # containers, of the number that may share the GPUs


IDLE: Final = NodeLoad(0, 0, 0)
Scorer = Callable[[NodeLoad], int]


def load_of(node: Node) -> NodeLoad:
    """Return the load of *node*; without a healthy GPU it is idle."""
    gpus = [gpu for gpu in node.gpus if gpu.healthy]
    if not gpus:
        return IDLE
    return NodeLoad(
        _mean([_memory_taken(gpu) for gpu in gpus], [gpu.memory for gpu in gpus]),
        _mean([_cores_taken(gpu) for gpu in gpus]),
        _mean([_thousandths_taken(len(gpu.grants), gpu.slots) for gpu in gpus]),
    )


def score(
    load: NodeLoad, fill_policy: FillPolicy, weights: ScoreWeights, *, closeness: int | None = None
) -> int:
    """Return the score of a node: binpack prefers busy nodes, spread idle ones.

    *closeness* is how close together, in thousandths, the pod's GPUs could be there; ``None`` does
    not count.
    """
    return scorer(fill_policy, weights, closeness=closeness)(load)


@lru_cache(maxsize=64)
def scorer(
    fill_policy: FillPolicy, weights: ScoreWeights, *, closeness: int | None = None
) -> Scorer:
    """Return a function that scores loads; what all nodes share is computed once."""
    parts = weights.memory, weights.cores, weights.shares
    total = sum(parts)
    spread = fill_policy is FillPolicy.SPREAD
    base, sign = (total * _THOUSANDTHS, -1) if spread else (0, 1)
    if closeness is not None:
        total += weights.topology
        base += weights.topology * closeness
    by_memory, by_cores, by_shares = (MOST_SCORE * sign * part for part in parts)
    whole = _THOUSANDTHS * total
    # Any load at all sets a node apart from idle ones: binpack rounds up, spread down.
    base = MOST_SCORE * base + (0 if spread else whole - 1)

    def score_load(load: NodeLoad) -> int:
        memory, cores, shares = load
        worth = by_memory * memory + by_cores * cores + by_shares * shares
        return (base + worth) // whole

    return score_load


def gpu_closeness(idle: Idle, request: PodRequest) -> int | None:
    """Return, in thousandths, how close together the GPUs of a container of *request* could be.

    ``None`` where no container asks for several GPUs, or the topology of the node is not known.
    Nodes of one class may differ in it.
    """
    count = max(container_request.count for container_request in request.containers)
    return worth(idle, count) if count > 1 else None


def _memory_taken(gpu: Gpu) -> int:
    if gpu.mode is Mode.MIG and gpu.board is not None:
        return _thousandths_taken(gpu.taken_slots.bit_count(), gpu.board.slots)
    return _thousandths_taken(gpu.memory_promised + gpu.foreign, gpu.memory)


def _cores_taken(gpu: Gpu) -> int:
    """Return the compute that is taken; a MIG instance takes its slots, whatever was asked."""
    return (
        _memory_taken(gpu)
        if gpu.mode is Mode.MIG
        else _thousandths_taken(gpu.cores_promised, WHOLE_GPU)
    )


def _thousandths_taken(taken: int, total: int) -> int:
    """Return the thousandths taken, at most 1000: foreign memory may exceed the total."""
    return min(_THOUSANDTHS, taken * _THOUSANDTHS // total) if total > 0 else _THOUSANDTHS


def _mean(parts: Sequence[int], sizes: Sequence[int] | None = None) -> int:
    by = sizes or [1] * len(parts)
    return sum(part * size for part, size in zip(parts, by, strict=True)) // max(1, sum(by))


class ScoreTable(NamedTuple):
    """Scores of all nodes by one way of scoring, by name; a missing node scores 0."""

    parts: Mapping[str, bytes]  # JSON of a HostPriority
    scores: Mapping[str, int]


_encode = msgspec.json.Encoder().encode


def score_json(name: str, score: int) -> bytes:
    """Return the part of an answer that gives node *name* a *score*."""
    return _encode(HostPriority(host=name, score=score))


def favourite(table: ScoreTable, names: Sequence[str]) -> str:
    """Return the one of *names* with the highest score; empty where several share it."""
    scores = list(map(table.scores.get, names, repeat(0)))
    best = max(scores, default=0)
    return names[scores.index(best)] if best and scores.count(best) == 1 else ""


class ScoreTables:
    """Score tables of all nodes, updated node by node."""

    def __init__(self) -> None:
        """Begin without nodes and without ways of scoring."""
        self._tables: dict[Scorer, tuple[dict[str, bytes], dict[str, int]]] = {}

    def put(self, name: str, load: NodeLoad) -> None:
        """Score node *name* again."""
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
