"""Link scores: what a set of GPUs is worth by the links between them, and what taking it costs.

Three measures. A native node publishes for each number of GPUs the best score and the least loss,
sums over pairs of GPUs (:func:`computed_maps`). For GPUs that a pod gets whole on a node in
mode sgpu HAMi knows link zones only: :func:`exclusive_value` is its formula, and
:func:`best_split` finds the best set, where HAMi walks from the smallest zone. For pods of class
``online`` it counts who shares a GPU: :func:`online_value`.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Final

from allocator.metax.topology_maps import TopologyMaps

# No table of MetaX's is public. With these a machine of two rings of four GPUs gives the map that
# HAMi's unit tests hold: a link is 110, a common PCIe switch 50, anything farther 10.
LINKED: Final = 110
SAME_SWITCH: Final = 50
APART: Final = 10
MOST_EXACT: Final = 16  # GPUs whose subsets are all compared
_ZONE_PAIR: Final = 10  # what HAMi counts for two GPUs of one link zone
_ALONE: Final = 0  # no link zone
PairScore = Callable[[int, int], int]


def set_score(gpus: Sequence[int], pair: PairScore) -> int:
    """Return the sum of *pair* over all pairs of *gpus*."""
    return sum(pair(a, b) for a, b in combinations(gpus, 2))


def computed_maps(free: Sequence[int], pair: PairScore) -> TopologyMaps:
    """Return the maps that a node with these *free* GPUs would publish.

    The loss of a set is the sum over its pairs with the GPUs that are left. Raises ``ValueError``
    for more than :data:`MOST_EXACT` GPUs.
    """
    if len(free) > MOST_EXACT:
        raise ValueError(f"{len(free)} GPUs are more than {MOST_EXACT}")
    total = set_score(free, pair)
    scores: dict[int, int] = {}
    losses: dict[int, int] = {}
    for count in range(1, len(free) + 1):
        for taken in combinations(free, count):
            score = set_score(taken, pair)
            loss = total - score - set_score([gpu for gpu in free if gpu not in taken], pair)
            scores[count] = max(scores.get(count, score), score)
            losses[count] = min(losses.get(count, loss), loss)
    return TopologyMaps(scores, losses)


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


def online_value(online: int, offline: int) -> int:
    """Return HAMi's value of a GPU for a pod of class online, by who is on it; 0 is the best.

    A GPU that only offline pods use comes last, because it would hold all of them back.
    """
    return -100 * offline if offline and not online else -20 * online - 2 * offline


def _zone_value(zone: int, free: int, taken: int) -> int:
    return exclusive_value({zone: free}, {zone: taken})


def _zone_score(counts: Mapping[int, int]) -> int:
    return sum(
        _ZONE_PAIR * number * (number - 1) // 2 for zone, number in counts.items() if zone != _ALONE
    )
