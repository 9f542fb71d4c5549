"""Positions: the names that Volcano gives to MIG instances, and the one place that each stands for.

Its scheduler and plugin know an instance as ``[group-position]``: one of a listed group, counted
through the group's items in the table's order. They know nothing of memory slots, so every group
is laid out here once and for all. Whoever allocates beside them keeps to these places, and to the
group that a GPU is cut into already, so that a name on a pod stays true while others come and go.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from types import MappingProxyType

from allocator.mig.geometry import Geometries, GeometryEntry, GeometryGroup
from allocator.mig.profiles import canonical_profile
from allocator.model.board import Board, Placement, Profile
from allocator.model.gpu import Node


@dataclass(frozen=True, slots=True)
class PositionTable:
    """The groups that one kind of GPU may be cut into: where each instance of each sits.

    A group that no GPU of this board can hold as a whole is left out.
    """

    groups: Mapping[str, Mapping[Placement, int]]

    def position(
        self, placed: Placement, *, used: Collection[str] = (), preferred: Collection[str] = ()
    ) -> str | None:
        """Return the name of *placed* beside the positions *used*; ``None`` where it has none.

        A GPU in use keeps its group; on an empty one that of a scheduler's wish comes first.
        """
        cut = [group for group in map(_group, used) if group in self.groups]
        hoped = [group for group in map(_group, preferred) if group in self.groups]
        for group in cut[:1] or (*hoped, *self.groups):
            number = self.groups[group].get(placed)
            if number is not None:
                return f"{group}-{number}"
        return None


def _group(position: str) -> str:
    return position.rpartition("-")[0]


def position_table(geometries: Geometries, product: str, board: Board) -> PositionTable | None:
    """Return what deviceshare can name on a GPU of this product; ``None`` where it lists nothing.

    The tables that Volcano is shipped with count: there its scheduler knows nothing else.
    """
    entry = geometries.entry(product)
    return None if entry is None else _position_table(entry, board)


@lru_cache(maxsize=256)
def _position_table(entry: GeometryEntry, board: Board) -> PositionTable:
    found = {group.name: _layout(group, board) for group in entry.groups}
    return PositionTable(MappingProxyType({name: seats for name, seats in found.items() if seats}))


def _layout(group: GeometryGroup, board: Board) -> Mapping[Placement, int]:
    """Return the position of each place; nothing where the instances do not fit together."""
    numbered: list[tuple[Profile, int]] = []
    before = 0
    for item in group.items:
        profile = canonical_profile(board, item.profile)
        if profile is not None:
            numbered += [(profile, before + index) for index in range(item.count)]
        before += item.count  # one that the board lacks is counted all the same
    numbered.sort(key=lambda pair: (-pair[0].size, pair[1]))
    if sum(profile.size for profile, _ in numbered) > board.slots:
        return {}
    starts = _starts([profile for profile, _ in numbered], board.slots) or ()
    return {
        Placement(profile, start): number
        for (profile, number), start in zip(numbered, starts, strict=False)
    }


def _starts(profiles: Sequence[Profile], slots: int) -> tuple[int, ...] | None:
    """Return a start for each of *profiles*, the lowest ones first, or ``None``."""

    @cache  # by what is placed and where: at most profiles times masks
    def place_from(index: int, mask: int) -> tuple[int, ...] | None:
        if index == len(profiles):
            return ()
        profile = profiles[index]
        for start in sorted(profile.starts):
            if profile.mask(start) & mask or start + profile.size > slots:
                continue
            rest = place_from(index + 1, mask | profile.mask(start))
            if rest is not None:
                return (start, *rest)
        return None

    return place_from(0, 0)


def with_volcano_positions(node: Node) -> Node:
    """Return *node* as one that Volcano's scheduler keeps account of too."""
    return replace(node, gpus=tuple(replace(gpu, deviceshare=True) for gpu in node.gpus))


def keep_volcano_positions(node: Node, known: Node | None) -> Node:
    """Return *node* with that said of it, if it is so as last *known*."""
    same = known is not None and any(gpu.deviceshare for gpu in known.gpus)
    return with_volcano_positions(node) if same else node
