"""The fleet: all nodes as one Snapshot, and which kinds of GPU they add up to."""

from collections import Counter
from collections.abc import Iterable
from operator import attrgetter
from types import MappingProxyType
from typing import Final

from allocator.model.board import Board
from allocator.model.demand import NOTHING_LEARNED, Demand
from allocator.model.gpu import Node, Offer, Snapshot
from allocator.model.request import Mode
from allocator.model.units import MiB

# Stands in for an Offer while counting. Inventory of thousands of GPUs is folded anew whenever
# some of it changes; only the few kinds that it holds are worth an object each.
_Kind = tuple[str, MiB, Mode, Board | None]
_kind: Final = attrgetter("model", "memory", "mode", "board")


def snapshot_of(
    nodes: Iterable[Node], *, version: str, complete: bool, demand: Demand = NOTHING_LEARNED
) -> Snapshot:
    """Fold *nodes* into a Snapshot; a GPU that is unhealthy exists all the same.

    *complete* says that every node is among them; one that is not fresh makes the whole incomplete.
    """
    by_name = {node.name: node for node in nodes}
    most: dict[_Kind, int] = {}
    mixed = False
    for node in by_name.values():
        kinds: Counter[_Kind] = Counter(map(_kind, node.gpus))
        complete = complete and node.fresh
        mixed = mixed or _several_in_one_mode(kinds)
        for kind, count in kinds.items():
            if count > most.get(kind, 0):
                most[kind] = count
    return Snapshot(
        version=version,
        nodes=MappingProxyType(by_name),
        offers=MappingProxyType({_offer(kind): count for kind, count in most.items()}),
        mixed=mixed,
        complete=complete,
        demand=demand,
    )


def _several_in_one_mode(kinds: Counter[_Kind]) -> bool:
    return len(kinds) > 1 and len({mode for _, _, mode, _ in kinds}) < len(kinds)


def _offer(kind: _Kind) -> Offer:
    model, memory, mode, board = kind
    return Offer(model=model, memory=memory, mode=mode, board=board)
