"""Positions: Volcano's names of MIG instances, and the one placement that each of them means.

Volcano's scheduler and plugin name an instance ``[group-position]``: its number within a listed
group, counted through the items of the group in order. They do not know memory slots, so each
group gets one fixed layout here. An allocator that works beside them keeps to this layout, and to
the group that a GPU is already divided by, so that a name on a pod stays valid.
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
    """The layout of each group on one kind of GPU; groups that do not fit on it are left out."""

    # Position by placement, by name of the group.
    groups: Mapping[str, Mapping[Placement, int]]

    def position(
        self, placed: Placement, *, used: Collection[str] = (), preferred: Collection[str] = ()
    ) -> str | None:
        """Return the position of *placed*; ``None`` where it has none.

        A GPU keeps the group of its positions *used*; an empty one takes the first group that
        fits, those of the *preferred* positions first.
        """
        used_groups = [group for group in map(_group, used) if group in self.groups]
        preferred_groups = [group for group in map(_group, preferred) if group in self.groups]
        for group in used_groups[:1] or (*preferred_groups, *self.groups):
            number = self.groups[group].get(placed)
            if number is not None:
                return f"{group}-{number}"
        return None


def _group(position: str) -> str:
    return position.rpartition("-")[0]


def position_table(geometries: Geometries, product: str, board: Board) -> PositionTable | None:
    """Return the positions that deviceshare has on a GPU of *product*; ``None`` where it has none.

    The shipped tables count here too, because Volcano's scheduler uses them.
    """
    entry = geometries.entry(product)
    return None if entry is None else _position_table(entry, board)


@lru_cache(maxsize=256)
def _position_table(entry: GeometryEntry, board: Board) -> PositionTable:
    layouts = {group.name: _layout(group, board) for group in entry.groups}
    return PositionTable(
        MappingProxyType({name: layout for name, layout in layouts.items() if layout})
    )


def _layout(group: GeometryGroup, board: Board) -> Mapping[Placement, int]:
    """Return the position by placement; empty where the instances do not fit together."""
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
    """Return the lowest starts at which all *profiles* fit, or ``None``."""

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
    """Return *node* with GPUs on which Volcano's scheduler allocates too."""
    return replace(node, gpus=tuple(replace(gpu, deviceshare=True) for gpu in node.gpus))


def keep_volcano_positions(node: Node, known: Node | None) -> Node:
    """Return *node*, marked by :func:`with_volcano_positions` if *known* is."""
    same = known is not None and any(gpu.deviceshare for gpu in known.gpus)
    return with_volcano_positions(node) if same else node
