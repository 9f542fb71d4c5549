"""Topology: which GPUs of a node are close to each other, as far as its inventory says so.

How far two GPUs are apart is for their family to say (:mod:`allocator.families.family`).
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, combinations
from typing import Final, NamedTuple

from allocator.families.family import LinkDistances
from allocator.families.registry import family_named
from allocator.model.allocation import Option
from allocator.model.gpu import Gpu
from allocator.placement.packing import Headrooms

# What the farthest pair of a set is worth, in thousandths, by its distance: joined by the most
# NVLinks and on one switch, on one NUMA node, on two; joined by fewer and the same; not joined and
# the same.
WORTH: Final = (1000, 1000, 900, 1000, 1000, 900, 700, 500, 0)
# What a pair is worth that a pod of one GPU breaks; half as much where it has fewer links.
_LOSSES: Final = (1000, 1000, 900, 500, 500, 450)
_UNLINKED: Final = 6  # from this distance on GPUs are not joined
_DIGITS: Final = 12  # bits: the 64 GPUs that a node may have are 2016 pairs
# One pair of a distance weighs more than all pairs of smaller ones together can.
_STRAINS: Final = (0, *(1 << _DIGITS * more for more in range(len(WORTH) - 1)))
# Looks of one search, several times what eight pairs of GPUs take: beyond, what was found is good
# enough. No machine that is built comes near.
LOOKS: Final = 4096
# Ways of choosing that are told apart: half of eight pairs of GPUs can be taken in 70 ways.
MOST_WAYS: Final = 128
Distances = tuple[tuple[int, ...], ...]  # between GPUs of two kinds, and within one


class Idle(NamedTuple):
    """The GPUs of a node that nobody uses."""

    distances: Distances  # between kinds
    counts: tuple[int, ...]  # of each kind


UNKNOWN: Final = Idle((), ())
_NOTHING_KNOWN: Final = LinkDistances((), ())


def link_distances(gpus: Sequence[Gpu]) -> LinkDistances:
    """Return how far *gpus*, which are of one family, are apart, as that family measures it."""
    return family_named(gpus[0].family).link_distances(gpus) if gpus else _NOTHING_KNOWN


def prefer_close(options: list[Option], headrooms: Headrooms, *, count: int) -> list[Option]:
    """Put first the options of those *count* GPUs that are closest together.

    Closest is what has fewest pairs at the largest distance, then at the next. Of sets that are
    equally close it is the one whose best options are the best. The others follow, those that
    are close to the set first; where closeness decides nothing the order stays.

    One GPU alone is close to itself: of equally good options the one that breaks least comes first.
    """
    if count <= 1:
        return _loosest_first(options, headrooms)
    known = link_distances([headroom.gpu for headroom in headrooms])
    firsts: dict[int, Option] = {}
    for option in options:
        firsts.setdefault(option.position, option)
    if len(known.distances) <= 1 or len(firsts) <= count:
        return options
    idle = frozenset(at for at, headroom in enumerate(headrooms) if not headroom.tenants)
    chosen = _closest_gpus(known, list(firsts.values()), count, idle=idle)

    def distance(option: Option) -> int:
        if option.position in chosen:
            return -1
        here = known.distances[known.kinds[option.position]]
        return max(here[known.kinds[position]] for position in chosen)

    return sorted(options, key=distance)


def _loosest_first(options: list[Option], headrooms: Headrooms) -> list[Option]:
    """Put first, of options of equal rank, the GPU whose links to idle GPUs are worth least.

    That one costs later sets least. A GPU that is in use already costs them nothing.
    """
    if len(options) <= 1 or not any(headroom.gpu.links for headroom in headrooms):
        return options
    known = link_distances([headroom.gpu for headroom in headrooms])
    idle = [at for at, headroom in enumerate(headrooms) if not headroom.tenants]
    losses = [0] * len(headrooms)
    for a, b in combinations(idle, 2) if known.distances else ():
        distance = known.distances[known.kinds[a]][known.kinds[b]]
        if distance < _UNLINKED:
            losses[a] += _LOSSES[distance]
            losses[b] += _LOSSES[distance]
    if not any(losses):  # GPUs in MIG mode too, whose options are not in the order of their ranks
        return options
    return sorted(options, key=lambda option: (option.rank, losses[option.position]))


def _closest_gpus(
    known: LinkDistances, options: Sequence[Option], count: int, *, idle: frozenset[int]
) -> frozenset[int]:
    """Return the positions of the closest *count* GPUs; *options* are one of each, best first.

    Of sets whose options are equally good, the one that breaks least links to *idle* GPUs is taken.
    """
    groups: list[list[Option]] = [[] for _ in known.distances]
    for option in options:
        groups[known.kinds[option.position]].append(option)
    sets = [
        sorted(chain(*(group[:n] for group, n in zip(groups, mix, strict=True))), key=_rank)
        for mix in mixes(known.distances, tuple(map(len, groups)), count)
    ]

    def worst(found: Sequence[Option]) -> tuple[list[tuple[int, ...]], int, list[int]]:
        positions = [option.position for option in found]
        broken = _broken_links(known, positions, idle) if len(sets) > 1 else 0
        return [option.rank for option in found], broken, positions

    return frozenset(option.position for option in min(sets, key=worst))


def _broken_links(known: LinkDistances, taken: Sequence[int], idle: frozenset[int]) -> int:
    """Return what the links between *taken* and the other *idle* GPUs are worth together."""
    left = idle.difference(taken)
    return sum(
        _LOSSES[distance]
        for a in taken
        if a in idle
        for b in left
        if (distance := known.distances[known.kinds[a]][known.kinds[b]]) < _UNLINKED
    )


def _rank(option: Option) -> tuple[tuple[int, ...], int]:
    return option.rank, option.position


@lru_cache(maxsize=512)
def mixes(distances: Distances, counts: tuple[int, ...], count: int) -> tuple[tuple[int, ...], ...]:
    """Return how many GPUs of each kind to take for the closest *count*: MOST_WAYS ways at most.

    *counts* are those that can be had of each kind, *count* together at least.
    """
    least, closest = -1, list[tuple[int, ...]]()
    looks = iter(range(LOOKS))
    waiting: list[tuple[tuple[int, ...], int]] = [((), 0)]
    while waiting and next(looks, None) is not None:
        taken, strain = waiting.pop()
        if closest and strain > least:
            continue
        if len(taken) == len(counts):
            if not closest or strain < least:
                least, closest = strain, []
            if len(closest) < MOST_WAYS:
                closest.append(taken)
            continue
        waiting += _extend(distances, counts, count, taken=taken, strain=strain)
    return tuple(closest)


def _extend(
    distances: Distances,
    counts: tuple[int, ...],
    count: int,
    *,
    taken: tuple[int, ...],
    strain: int,
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield *taken* with each number of GPUs of one kind more; the last one is tried first."""
    here = distances[len(taken)]
    wanted = count - sum(taken)
    later = sum(counts[len(taken) + 1 :])
    each = sum(number * _STRAINS[here[kind]] for kind, number in enumerate(taken))
    within = _STRAINS[here[len(taken)]]
    for number in range(max(0, wanted - later), min(wanted, counts[len(taken)]) + 1):
        pairs = number * (number - 1) // 2
        yield (*taken, number), strain + number * each + pairs * within


def idle_of(gpus: Sequence[Gpu]) -> Idle:
    """Return which of *gpus* nobody uses, as far as closeness goes."""
    known = link_distances(gpus)
    if not known.distances:
        return UNKNOWN
    counts = [0] * len(known.distances)
    for gpu, kind in zip(gpus, known.kinds, strict=True):
        counts[kind] += gpu.healthy and not gpu.grants
    return Idle(known.distances, tuple(counts))


@lru_cache(maxsize=1024)
def worth(idle: Idle, count: int) -> int | None:
    """Return how close together *count* idle GPUs can be, in thousandths; ``None`` is not known.

    The farthest pair of them decides. Too few are worth nothing.
    """
    distances, counts = idle
    if not distances:
        return None
    if sum(counts) < count:
        return 0
    mix = mixes(distances, counts, count)[0]
    apart = [distances[a][b] for a, b in combinations([k for k, n in enumerate(mix) if n], 2)]
    return WORTH[max([*apart, *(distances[k][k] for k, n in enumerate(mix) if n > 1)], default=0)]
