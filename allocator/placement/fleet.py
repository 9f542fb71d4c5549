"""The fleet: all nodes as one Snapshot, and which kinds of GPU they add up to."""

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Final

from allocator.model.board import Board
from allocator.model.demand import NOTHING_LEARNED, Demand
from allocator.model.gpu import Gpu, GpuKind, Node, Snapshot
from allocator.model.request import Mode
from allocator.model.units import MiB

# Stands in for an Offer while counting: of thousands of GPUs, only the few kinds that they add up
# to are worth an object each.
_Kind = tuple[str, MiB, Mode, Board | None, str]
_kind: Final = attrgetter("model", "memory", "mode", "board", "family")
Shape = frozenset[tuple[_Kind, int]]  # what a node carries: each kind of GPU, and how many of it


def shape_of(gpus: Iterable[Gpu]) -> Shape:
    """Return which kinds of GPU there are and how many of each, whatever they are busy with."""
    return frozenset(Counter(map(_kind, gpus)).items())


def offers_of(shapes: Iterable[Shape]) -> Mapping[GpuKind, int]:
    """Return each kind of GPU with the largest number of it on one node.

    In an order of their own, so that replicas agree whatever order they heard of nodes in.
    """
    most: dict[_Kind, int] = {}
    for shape in shapes:
        for kind, count in shape:
            if count > most.get(kind, 0):
                most[kind] = count
    ordered = sorted(most.items(), key=lambda item: item[0][:3])
    if len({kind[:3] for kind in most}) < len(most):  # rare: boards differ under one name
        ordered.sort(key=lambda item: (*item[0][:3], repr(item[0][3])))
    return MappingProxyType({_offer(kind): count for kind, count in ordered})


def is_mixed(shape: Shape) -> bool:
    """Say whether a node carries several kinds in one mode."""
    return len(shape) > 1 and len({mode for (_, _, mode, _, _), _ in shape}) < len(shape)


def snapshot_of(
    nodes: Iterable[Node], *, version: str, complete: bool, demand: Demand = NOTHING_LEARNED
) -> Snapshot:
    """Fold *nodes* into a Snapshot; a GPU that is unhealthy exists all the same.

    *complete* says that every node is among them; one that is not fresh makes the whole incomplete.
    """
    by_name = {node.name: node for node in nodes}
    shapes = {shape_of(node.gpus) for node in by_name.values()}
    return Snapshot(
        version=version,
        nodes=MappingProxyType(by_name),
        offers=offers_of(shapes),
        mixed=any(map(is_mixed, shapes)),
        complete=complete and all(node.fresh for node in by_name.values()),
        demand=demand,
    )


def _offer(kind: _Kind) -> GpuKind:
    model, memory, mode, board, family = kind
    return GpuKind(model=model, memory=memory, mode=mode, board=board, family=family)
