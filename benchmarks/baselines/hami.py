"""HAMi's rules for where an instance goes on a GPU: release 2.10 and pull request 2855.

Neither looks at fragmentation when it chooses the GPU; both get the fullest one here,
which serves more than HAMi's own default of spreading.
"""

from allocator.model.board import Board, Profile
from benchmarks.baselines.greedy import Rank


def release_2_10(mask: int, profile: Profile, start: int) -> tuple[float, ...]:
    """Place 1g and 3g as high as possible and everything else as low as possible."""
    return -mask.bit_count(), -start if profile.slices in {1, 3} else start


def regions(board: Board) -> Rank:
    """Return the rule of pull request 2855: two halves, one reserved for half-sized profiles.

    Prefer, in this order: what leaves more halves untouched; half-sized profiles in the
    reserved half and others outside it; what is farther from the middle; the lower start.
    """
    half = board.slots // 2
    low = (1 << half) - 1
    halves = low, low << half
    placements = [p.mask(start) for p in board.profiles for start in p.starts]
    reserved = min(reversed(halves), key=lambda h: sum(1 for m in placements if not m & ~h))

    def rank(mask: int, profile: Profile, start: int) -> tuple[float, ...]:
        placed = profile.mask(start)
        untouched = sum(1 for h in halves if not h & (mask | placed))
        mismatch = (profile.size == half) != (placed & reserved == placed)
        distance = abs(start + profile.size / 2 - half)
        return -mask.bit_count(), -untouched, mismatch, -distance, start

    return rank
