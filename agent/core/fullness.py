"""Fullness: the most that one board holds at once, whatever the layout."""

from collections.abc import Sequence

from allocator.model.board import Board


def most(board: Board) -> int:
    """Return how many instances fit on *board* at once."""
    return fullest(board, [1] * len(board.profiles))


def fullest(board: Board, worth: Sequence[int]) -> int:
    """Return the largest sum of *worth*, by profile, over all layouts of *board*.

    Instances are intervals of memory slots, so the best from each slot on follows from the slots
    behind it. Caps on the number of instances are left out: the sum may only be too large.
    """
    best = [0] * (board.slots + 1)
    for slot in reversed(range(board.slots)):
        fitting = (
            value + best[slot + profile.size]
            for profile, value in zip(board.profiles, worth, strict=True)
            if slot in profile.starts and slot + profile.size <= board.slots
        )
        best[slot] = max(best[slot + 1], *fitting, 0)
    return best[0]
