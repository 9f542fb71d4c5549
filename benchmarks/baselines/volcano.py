"""Volcano's fixed geometries: a GPU opens one group of instances and never leaves it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from allocator.model.board import Board, Placement, Profile
from benchmarks.mig import SlotPick

GROUPS: Final = (
    (("1g.5gb", tuple(range(7))),),
    (("2g.10gb", (0, 2, 4)), ("1g.5gb", (6,))),
    (("3g.20gb", (0, 4)),),
    (("7g.40gb", (0,)),),
)
"""The groups of the shipped configuration for an A100, in its order, with legal starts."""

Group = tuple[Placement, ...]


@dataclass(slots=True)
class StickyGroup:
    """The matcher of vc-scheduler: by memory, the first GPU that can serve.

    Once a GPU has opened a group it keeps it even when it is empty again, and while it is not
    empty only profiles that are already in use are given out.
    """

    board: Board
    opened: dict[int, Group] = field(default_factory=dict)

    def __call__(self, masks: Sequence[int], profile: Profile) -> SlotPick | None:
        """Place one arrival, opening a group where none is open yet."""
        for gpu, mask in enumerate(masks):
            for group in self._open_to(gpu):
                instance = _pick(group, mask, profile)
                if instance is not None:
                    self.opened[gpu] = group
                    return SlotPick(gpu, instance.mask)
        return None

    def _open_to(self, gpu: int) -> Iterable[Group]:
        if gpu in self.opened:
            return (self.opened[gpu],)
        return (tuple(_group(self.board, names)) for names in GROUPS)


def _group(board: Board, names: Iterable[tuple[str, tuple[int, ...]]]) -> Iterable[Placement]:
    profiles = {profile.name: profile for profile in board.profiles}
    return (Placement(profiles[name], start) for name, starts in names for start in starts)


def _pick(group: Group, mask: int, wanted: Profile) -> Placement | None:
    in_use = {placed.profile.name for placed in group if placed.mask & mask}
    enough = (
        placed
        for placed in group
        if not placed.mask & mask
        and placed.profile.memory >= wanted.memory
        and (not in_use or placed.profile.name in in_use)
    )
    return min(enough, key=lambda placed: (placed.profile.memory, placed.start), default=None)
