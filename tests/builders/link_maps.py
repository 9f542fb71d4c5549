"""Topology maps of MetaX nodes, computed from the links between their GPUs."""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Final

from allocator.metax.topology_maps import TopologyMaps

# No table of MetaX's is public. With these a machine of two rings of four GPUs gives the map that
# HAMi's unit tests hold: a link is 110, a common PCIe switch 50, anything farther 10.
LINKED: Final = 110
SAME_SWITCH: Final = 50
APART: Final = 10
MOST_EXACT: Final = 16  # GPUs whose subsets are all compared
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
