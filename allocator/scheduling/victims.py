"""The smallest, least important set of pods whose removal is enough."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Final

MOST_TRIALS: Final = 256  # beyond the first set that is enough: all sets of eight pods


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A pod that may be evicted."""

    uid: str
    priority: int
    created: str = ""  # RFC 3339
    proposed: bool = False  # by the scheduler, which has checked disruption budgets for it
    gpus: frozenset[str] = frozenset()  # UUIDs that it holds


VictimSet = tuple[Victim, ...]
IsEnough = Callable[[frozenset[str]], bool]  # whether the removal of pods by uid is enough


def least_victims(
    victims: Sequence[Victim], enough: IsEnough, *, same_gpu: bool, trials: int = MOST_TRIALS
) -> VictimSet | None:
    """Return the set to evict, ``None`` where all are not enough.

    By the order in which kube-scheduler compares nodes: the highest priority in it is as low as
    can be, then they are as few as can be, then their priorities add up to the least. None of
    them could stay. It is the best of all sets where that takes no more than *trials*; beyond,
    the best of those looked at. *enough* must stay true when more are removed. *same_gpu* says
    that only pods on one GPU help each other, because the pod wants a single GPU.
    """
    ordered = _sort_victims(victims)
    first = _minimal_set(ordered, enough)
    if not first:
        return first
    level = first[-1].priority
    pools = _pools([v for v in ordered if v.priority <= level], same_gpu=same_gpu)
    better = _better_sets(pools, first, trials=trials)
    return next((victim_set for victim_set in better if enough(_uids(victim_set))), first)


def most_important_first(victims: Sequence[Victim]) -> VictimSet:
    """Return *victims* as kube-scheduler orders them: by priority, then the oldest first."""
    return _sort_victims(victims)[::-1]


def _sort_victims(victims: Sequence[Victim]) -> VictimSet:
    """Order from the one to go first to the one to stay longest."""
    youngest = sorted(sorted(victims, key=_uid), key=_creation, reverse=True)
    return tuple(sorted(youngest, key=lambda v: (v.priority, not v.proposed)))


def _minimal_set(ordered: VictimSet, enough: IsEnough) -> VictimSet | None:
    """Remove all, then spare as many as can stay, the most important first."""
    gone = _uids(ordered)
    if not enough(gone):
        return None
    # The shortest run from the front that is enough: the important ones behind it all stay.
    low, high = 0, len(ordered)
    while low < high:
        middle = (low + high) // 2
        if enough(_uids(ordered[:middle])):
            high = middle
        else:
            low = middle + 1
    gone = _uids(ordered[:high])
    for victim in reversed(ordered[: max(0, high - 1)]):  # the last of the run is needed
        if enough(gone - {victim.uid}):
            gone -= {victim.uid}
    return tuple(victim for victim in ordered if victim.uid in gone)


def _pools(victims: Sequence[Victim], *, same_gpu: bool) -> list[VictimSet]:
    """Return the groups within which sets are looked for."""
    if not same_gpu:
        return [tuple(victims)]
    gpus = sorted({gpu for victim in victims for gpu in victim.gpus})
    return [tuple(v for v in victims if gpu in v.gpus) for gpu in gpus]


def _better_sets(
    pools: Sequence[VictimSet], first: VictimSet, *, trials: int
) -> Iterator[VictimSet]:
    """Yield sets that are better than *first*, the best first; few enough to try them all."""
    for size in range(1, len(first) + 1):
        number = sum(comb(len(pool), size) for pool in pools)
        if number > trials:
            return
        trials -= number
        sets = dict.fromkeys(victims for pool in pools for victims in combinations(pool, size))
        ranked = sorted(sets, key=_rank)
        yield from (
            victims for victims in ranked if size < len(first) or _rank(victims) < _rank(first)
        )


def _rank(victim_set: VictimSet) -> tuple[int, int]:
    """Lower is better, among sets of one size below one level of priority."""
    return sum(v.priority for v in victim_set), sum(not v.proposed for v in victim_set)


def _uids(victims: Sequence[Victim]) -> frozenset[str]:
    return frozenset(victim.uid for victim in victims)


def _uid(victim: Victim) -> str:
    return victim.uid


def _creation(victim: Victim) -> str:
    return victim.created
