"""What a board may be: what hardware is, with a margin whose tables are cheap enough.

A node describes its own boards, and every replica plans with them. The largest boards known have 8
slots with 7 profiles, and 12 slots in threes with 11; NVML names 18 profiles altogether. A board
within these bounds costs a few milliseconds once (:func:`allocator.mig.slot_policy.board_facts`).
"""

from collections.abc import Sequence
from math import gcd
from typing import Final, NamedTuple

from allocator.mig.slot_policy import MOST_UNITS
from allocator.model.board import Board, Profile

MOST_SLOTS: Final = 16
MOST_PROFILES: Final = 24
MOST_PLAIN: Final = 8  # profiles that are used unless a user names another; 5 are known
MOST_PLAIN_STARTS: Final = 32  # of those together; 14 are known


class Excess(NamedTuple):
    """What of a board is more than is planned with."""

    where: str  # path in the board; empty for the board itself
    what: str
    accepted: str


def excess_of(board: Board) -> Excess | None:
    """Return the first bound that *board* exceeds; ``None`` where it is within all."""
    profiles = board.profiles
    if board.slots > MOST_SLOTS:
        return Excess("slots", str(board.slots), f"at most {MOST_SLOTS}")
    if len(profiles) > MOST_PROFILES:
        return Excess("profiles", f"{len(profiles)} profiles", f"at most {MOST_PROFILES}")
    for profile in profiles:
        if len(profile.starts) > board.slots:
            what = f"{len(profile.starts)} starts of {profile.name}"
            return Excess("profiles", what, f"at most one for each of {board.slots} slots")
    return _excess_together(board)


def _excess_together(board: Board) -> Excess | None:
    plain = board.plain
    if len(plain) > MOST_PLAIN:
        what = f"{len(plain)} profiles without attribute and double memory"
        return Excess("profiles", what, f"at most {MOST_PLAIN} such profiles")
    starts = sum(len(profile.starts) for profile in plain)
    if starts > MOST_PLAIN_STARTS:
        what = f"{starts} starts of the profiles without attribute and double memory"
        return Excess("profiles", what, f"at most {MOST_PLAIN_STARTS} together")
    units = _units(board.slots, board.profiles)
    if units > MOST_UNITS:
        what = f"{board.slots} slots that its profiles divide into {units} parts"
        return Excess("slots", what, f"at most {MOST_UNITS} parts, as of 12 slots taken in threes")
    return None


def _units(slots: int, profiles: Sequence[Profile]) -> int:
    """Return into how many parts the placements of *profiles* divide *slots*."""
    return slots // gcd(slots, *(n for p in profiles for n in (p.size, *p.starts)))
