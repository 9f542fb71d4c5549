"""Topology: which GPUs of a node are close to each other, as far as its inventory says so.

Two GPUs are closest where NVLink joins them, by as many links as any two GPUs of the node, then by
fewer, else where they hang on one PCIe switch, else where they sit on one NUMA node. Instances of
cut GPUs speak to no other GPU over either, so of those only the NUMA node counts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations
from typing import Final, NamedTuple

from allocator.model.allocation import Option
from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from allocator.placement.packing import Headrooms

# What the farthest pair of a set is worth, in thousandths, by its distance: joined by the most
# NVLinks and on one switch, on one NUMA node, on two; joined by fewer and the same; not joined and
# the same.
WORTH: Final = (1000, 1000, 900, 1000, 1000, 900, 700, 500, 0)
# What a pair is worth that a pod of one GPU breaks; half as much where it has fewer links.
_LOSSES: Final = (1000, 1000, 900, 500, 500, 450)
_FEWER: Final = 3  # what fewer links add to a distance
_APART: Final = 6  # what a missing link adds
_DIGITS: Final = 12  # bits: the 64 GPUs that a node may have are 2016 pairs
# One pair of a distance weighs more than all pairs of smaller ones together can.
_STRAINS: Final = (0, *(1 << _DIGITS * more for more in range(len(WORTH) - 1)))
# Looks of one search, several times what eight pairs of GPUs take: beyond, what was found is good
# enough. No machine that is built comes near.
LOOKS: Final = 4096
# Ways of choosing that are told apart: half of eight pairs of GPUs can be taken in 70 ways.
MOST_WAYS: Final = 128
Distances = tuple[tuple[int, ...], ...]  # between GPUs of two kinds, and within one


@dataclass(frozen=True, slots=True)
class LinkDistances:
    """How far the GPUs of a node are from each other."""

    kinds: tuple[int, ...]  # of each GPU; those of one kind are equally far from every other GPU
    distances: Distances  # by kind; empty where nothing is known


class Idle(NamedTuple):
    """The GPUs of a node that nobody uses."""

    distances: Distances  # between kinds
    counts: tuple[int, ...]  # of each kind


UNKNOWN: Final = Idle((), ())


def link_distances(gpus: Sequence[Gpu]) -> LinkDistances:
    """Return how far *gpus* are apart: one object for all machines that are built alike."""
    places = {gpu.uuid: position for position, gpu in enumerate(gpus)}
    return _link_distances(tuple([_location(gpu, places) for gpu in gpus]))


class _GpuLocation(NamedTuple):
    """What of a GPU decides who is close to it."""

    numa: int | None
    switch: str | None
    links: tuple[tuple[int, int], ...]  # position of the other GPU, and the number of NVLinks


def _location(gpu: Gpu, places: dict[str, int]) -> _GpuLocation:
    if gpu.mode is Mode.MIG:
        return _GpuLocation(gpu.numa, None, ())
    if not gpu.links:
        return _GpuLocation(gpu.numa, gpu.switch, ())
    known = len(gpu.link_counts) == len(gpu.links)
    counts = gpu.link_counts if known else (1,) * len(gpu.links)
    pairs = zip(gpu.links, counts, strict=True)
    links = tuple([(places[uuid], count) for uuid, count in pairs if uuid in places])
    return _GpuLocation(gpu.numa, gpu.switch, links)


@lru_cache(maxsize=256)
def _link_distances(gpus: tuple[_GpuLocation, ...]) -> LinkDistances:
    if not any(gpu.numa is not None or gpu.switch or gpu.links for gpu in gpus):
        return LinkDistances((0,) * len(gpus), ())
    positions = range(len(gpus))
    links = [dict(gpu.links) for gpu in gpus]
    pairs = combinations(positions, 2)
    most = max((min(links[a].get(b, 0), links[b].get(a, 0)) for a, b in pairs), default=0)
    distances = [
        [_distance(gpus, a, b, links=links, most=most) if a != b else 0 for b in positions]
        for a in positions
    ]
    firsts: list[int] = []  # one GPU of each kind
    kinds: list[int] = []
    within: list[int] = []
    for at in positions:
        like = (k for k, first in enumerate(firsts) if _alike(distances, at, first))
        kind = next(like, len(firsts))
        if kind == len(firsts):
            firsts.append(at)
            within.append(0)
        else:
            within[kind] = distances[at][firsts[kind]]
        kinds.append(kind)
    between = [[distances[a][b] for b in firsts] for a in firsts]
    for kind, distance in enumerate(within):
        between[kind][kind] = distance
    return LinkDistances(tuple(kinds), tuple(map(tuple, between)))


def _distance(
    gpus: Sequence[_GpuLocation], a: int, b: int, *, links: Sequence[dict[int, int]], most: int
) -> int:
    """Return an index into :data:`WORTH`; a link that only one end knows of is none.

    *most* is the largest number of links between two GPUs of the node.
    """
    one, other = gpus[a], gpus[b]
    joined = min(links[a].get(b, 0), links[b].get(a, 0))
    if one.switch and one.switch == other.switch:
        host = 0
    else:
        host = 1 if one.numa is not None and one.numa == other.numa else 2
    if not joined:
        return host + _APART
    return host if joined == most else host + _FEWER


def _alike(distances: Sequence[Sequence[int]], a: int, b: int) -> bool:
    return all(distances[a][c] == distances[b][c] for c in range(len(distances)) if c not in {a, b})


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
    chosen = _closest_gpus(known, list(firsts.values()), count)

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
        if distance < _APART:
            losses[a] += _LOSSES[distance]
            losses[b] += _LOSSES[distance]
    if not any(losses):  # GPUs in MIG mode too, whose options are not in the order of their ranks
        return options
    return sorted(options, key=lambda option: (option.rank, losses[option.position]))


def _closest_gpus(known: LinkDistances, options: Sequence[Option], count: int) -> frozenset[int]:
    """Return the positions of the closest *count* GPUs; *options* are one of each, best first."""
    groups: list[list[Option]] = [[] for _ in known.distances]
    for option in options:
        groups[known.kinds[option.position]].append(option)
    sets = (
        sorted(chain(*(group[:n] for group, n in zip(groups, mix, strict=True))), key=_rank)
        for mix in mixes(known.distances, tuple(map(len, groups)), count)
    )
    best = min(sets, key=lambda found: ([o.rank for o in found], [o.position for o in found]))
    return frozenset(option.position for option in best)


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
