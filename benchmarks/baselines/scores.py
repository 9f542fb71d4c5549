"""Placement by one number per set of taken slots: lowest start, capacity loss, reach."""

from collections.abc import Mapping
from functools import cache

from allocator.model.board import Profile
from benchmarks.baselines.greedy import Rank

Profiles = tuple[Profile, ...]


def lowest_start(mask: int, profile: Profile, start: int) -> tuple[float, ...]:
    """Take the fullest GPU and its lowest free start."""
    del profile
    return -mask.bit_count(), start


def capacity_loss(profiles: Profiles, weights: Mapping[str, int]) -> Rank:
    """Lose the least room for further instances, weighted by a demand that is given.

    Ties go to the fullest GPU, then to what leaves most placements free.
    """

    @cache
    def room(mask: int) -> int:
        return sum(weights[p.name] * p.size * _capacity(mask, p) for p in profiles)

    def rank(mask: int, profile: Profile, start: int) -> tuple[float, ...]:
        after = mask | profile.mask(start)
        left = sum(not p.mask(s) & after for p in profiles for s in p.starts)
        return room(mask) - room(after), -mask.bit_count(), -left

    return rank


def _capacity(mask: int, profile: Profile) -> int:
    count = 0
    for start in profile.starts:
        if not profile.mask(start) & mask:
            mask |= profile.mask(start)
            count += 1
    return count


def reach(profiles: Profiles) -> Rank:
    """Lose the fewest of the multisets of instances that could still be added."""

    @cache
    def addable(mask: int) -> frozenset[tuple[int, ...]]:
        found = {(0,) * len(profiles)}
        for i, profile in enumerate(profiles):
            for start in profile.starts:
                if not profile.mask(start) & mask:
                    found |= {
                        (*more[:i], more[i] + 1, *more[i + 1 :])
                        for more in addable(mask | profile.mask(start))
                    }
        return frozenset(found)

    def rank(mask: int, profile: Profile, start: int) -> tuple[float, ...]:
        after = mask | profile.mask(start)
        return len(addable(mask)) - len(addable(after)), -mask.bit_count(), start

    return rank
