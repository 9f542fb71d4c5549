"""Link scores: what a set of GPUs on a node in mode sgpu is worth by the links between them.

HAMi knows link zones only: :func:`exclusive_value` is its formula for GPUs that a pod gets whole.
:func:`best_split` finds the best set, where HAMi walks from the smallest zone.
"""

from collections.abc import Mapping
from typing import Final

_ZONE_PAIR: Final = 10  # what HAMi counts for two GPUs of one link zone
_ALONE: Final = 0  # no link zone


def exclusive_value(free: Mapping[int, int], taken: Mapping[int, int]) -> int:
    """Return HAMi's value of taking *taken* of the *free* GPUs, both counted by link zone.

    It is ten times the score of what is taken, less the links that are lost between it and the
    rest. Zone 0 stands for no link. A set that breaks a zone may be worth less than nothing.
    """
    available, allocated = _zone_score(free), _zone_score(taken)
    rest = _zone_score({zone: number - taken.get(zone, 0) for zone, number in free.items()})
    return 10 * allocated - (available - allocated - rest)


def best_split(free: Mapping[int, int], count: int) -> Mapping[int, int] | None:
    """Return how many GPUs of each zone to take for the best :func:`exclusive_value`.

    ``None`` where fewer than *count* are free. Zones that are worth the same are used in their
    order, so the answer does not depend on the order in which GPUs are told.
    """
    zones = sorted(free)
    # By the number taken so far: the best sum, and the split that reaches it.
    best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
    for zone in zones:
        following: dict[int, tuple[int, tuple[int, ...]]] = {}
        for taken, (value, split) in best.items():
            for number in range(min(free[zone], count - taken) + 1):
                candidate = value + _zone_value(zone, free[zone], number), (*split, number)
                known = following.get(taken + number)
                if known is None or candidate > known:
                    following[taken + number] = candidate
        best = following
    found = best.get(count)
    if found is None:
        return None
    return {zone: number for zone, number in zip(zones, found[1], strict=True) if number}


def _zone_value(zone: int, free: int, taken: int) -> int:
    return exclusive_value({zone: free}, {zone: taken})


def _zone_score(counts: Mapping[int, int]) -> int:
    return sum(
        _ZONE_PAIR * number * (number - 1) // 2 for zone, number in counts.items() if zone != _ALONE
    )
