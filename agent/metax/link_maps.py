"""Topology maps that a simulated native node publishes, computed from the links of its free GPUs.

No table of MetaX's is public. With this one a machine of two rings of four GPUs publishes the map
that HAMi's unit tests hold: a link is 110, a common PCIe switch 50, anything farther 10.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Final

ZONE_GPUS: Final = 4  # that are linked in a ring, by their indexes
LINKED: Final = 110
SAME_SWITCH: Final = 50  # opposite each other in the ring
APART: Final = 10


def pair_score(one: int, other: int) -> int:
    """Return what two GPUs are worth to each other, by their indexes on the node."""
    if one // ZONE_GPUS != other // ZONE_GPUS:
        return APART
    return LINKED if (one - other) % 2 else SAME_SWITCH


def best_scores(free: Iterable[int]) -> dict[int, int]:
    """Return the best score that so many of the *free* GPUs can have: the sum over their pairs."""
    zones = _zones(free)
    best = _fold(zones, _links_beyond_apart, max)
    return {count: value + APART * _pairs(count) for count, value in best.items() if count}


def least_losses(free: Iterable[int]) -> dict[int, int]:
    """Return the least loss of taking so many of the *free* GPUs.

    That is the sum over the pairs of one that is taken and one that is left.
    """
    zones = _zones(free)
    total = sum(map(len, zones))
    least = _fold(zones, _cut_beyond_apart, min)
    return {
        count: value + APART * count * (total - count) for count, value in least.items() if count
    }


def _links_beyond_apart(_: Sequence[int], taken: Sequence[int]) -> int:
    """Return what the GPUs *taken* of one zone are worth more than if they were apart."""
    inside = sum(pair_score(one, other) for one, other in combinations(taken, 2))
    return inside - APART * _pairs(len(taken))


def _cut_beyond_apart(zone: Sequence[int], taken: Sequence[int]) -> int:
    """Return what the cut through *zone* costs more than if its GPUs were apart."""
    left = [gpu for gpu in zone if gpu not in taken]
    cut = sum(pair_score(one, other) for one in taken for other in left)
    return cut - APART * len(taken) * len(left)


def _fold(
    zones: Iterable[Sequence[int]],
    value: Callable[[Sequence[int], Sequence[int]], int],
    best_of: Callable[[int, int], int],
) -> Mapping[int, int]:
    """Return the best sum of *value* over all zones, by the number of GPUs that are taken.

    GPUs of different zones count alike, so each zone adds to the sum by itself. That makes 64 GPUs
    as easy as 8, where comparing all sets would never end.
    """
    best: dict[int, int] = {0: 0}
    for zone in zones:
        following: dict[int, int] = {}
        for count in range(len(zone) + 1):
            for taken in combinations(zone, count):
                added = value(zone, taken)
                for before, known in best.items():
                    total = known + added
                    found = following.get(before + count, total)
                    following[before + count] = best_of(found, total)
        best = following
    return best


def _zones(free: Iterable[int]) -> list[list[int]]:
    zones: defaultdict[int, list[int]] = defaultdict(list)
    for gpu in sorted(set(free)):
        zones[gpu // ZONE_GPUS].append(gpu)
    return list(zones.values())


def _pairs(count: int) -> int:
    return count * (count - 1) // 2
