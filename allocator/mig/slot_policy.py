"""Where an instance should start: lookup table per board and demand."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import gcd
from operator import mul
from types import MappingProxyType
from typing import Final

from allocator.mig.learned_demand import LearnedDemand, demand_of
from allocator.model.board import Board, Profile
from allocator.model.demand import Demand

MOST_UNITS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardFacts:
    """The facts about one board that do not depend on demand.

    Memory slots that every placement takes or leaves together are one *unit* of ``width``
    slots, so that a board of 12 slots cut in threes has 16 masks, not 4,096; masks here are
    of units. A *spot* is the mask that a profile takes at one legal start. By mask and profile,
    ``free`` holds the spots left, lowest first, and ``capacity`` how many of them can be taken;
    by mask, ``surviving`` counts the free spots and ``orders`` the sequences of arrivals that
    could still be placed.
    """

    width: int
    size: int  # of the board
    sizes: tuple[int, ...]  # of its profiles
    free: tuple[tuple[tuple[int, ...], ...], ...]
    capacity: tuple[tuple[int, ...], ...]
    surviving: tuple[int, ...]
    orders: tuple[int, ...]

    def units(self, mask: int) -> int:
        """Return the units that the memory slots in *mask* touch.

        Raises ``ValueError`` for slots that the board does not have.
        """
        slots = self.size * self.width
        if mask >> slots:
            raise ValueError(f"slots {mask:#b} are taken, but a board has only {slots}")
        unit = (1 << self.width) - 1
        return sum(1 << i for i in range(self.size) if mask >> i * self.width & unit)


@lru_cache(maxsize=64)
def board_facts(slots: int, profiles: tuple[Profile, ...]) -> BoardFacts:
    """Return what fits where on a board of *slots* memory slots that offers *profiles*.

    The facts double with each unit. Raises ``ValueError`` above 16, twice what is known.
    """
    width = gcd(slots, *(n for p in profiles for n in (p.size, *p.starts)))
    size = slots // width
    if size > MOST_UNITS:
        raise ValueError(f"a board of {size} units is too fine, up to {MOST_UNITS} can be planned")
    spots = tuple(tuple(_start_masks(p, width)) for p in profiles)
    free = tuple(
        tuple(tuple(x for x in ps if not x & mask) for ps in spots) for mask in range(1 << size)
    )
    return BoardFacts(
        width=width,
        size=size,
        sizes=tuple(p.size // width for p in profiles),
        free=free,
        capacity=tuple(tuple(_most_disjoint(ps) for ps in row) for row in free),
        surviving=tuple(sum(map(len, row)) for row in free),
        orders=_orders(free),
    )


def _start_masks(profile: Profile, width: int) -> Iterator[int]:
    run = (1 << profile.size // width) - 1
    return (run << start // width for start in sorted(profile.starts))


def _most_disjoint(spots: Sequence[int]) -> int:
    """Count the most of equally long *spots*, lowest first, that do not overlap."""
    taken = count = 0
    for spot in spots:
        if not spot & taken:
            taken |= spot
            count += 1
    return count


def _orders(free: Sequence[Sequence[Sequence[int]]]) -> tuple[int, ...]:
    orders = [0] * len(free)
    for mask in reversed(range(len(free))):  # what is placed makes a mask larger
        orders[mask] = sum(1 + max(orders[mask | x] for x in ps) for ps in free[mask] if ps)
    return tuple(orders)


SHARE: Final = 720_720  # of a board; the lcm of 1 to 16, so that every size of board divides it
WEIGHTS: Final = 50  # what the weights of a board add up to, but for rounding
RARE: Final = 2  # per cent of arrivals below which no capacity is kept for a profile
FIXED: Final = 1 << 20  # fill values are integers in this fraction: equal situations tie exactly


@dataclass(frozen=True, slots=True)
class SlotChoice:
    """The best place for one profile on one GPU.

    The lower ``rank`` is the better GPU, across GPUs, boards and models: all its parts are
    shares of a board. It does not say which of several placements on that GPU is best;
    ``start``, a memory slot, does.
    """

    start: int
    rank: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPolicy:
    """The seat of each profile for each set of taken slots, as of some learned demand.

    ``weights`` are the integers by which the loss of room for a profile counts; they belong
    in the record of a decision.
    """

    weights: Mapping[str, int]
    look_up: Callable[[int, str], SlotChoice | None]

    def choose(self, mask: int, profile: Profile) -> SlotChoice | None:
        """Return the seat for *profile* on a GPU whose memory slots in *mask* are taken.

        ``None`` means that nothing is free. ``Profile.limit`` caps instances, which a mask
        does not count: the caller keeps it. Raises ``KeyError`` for a profile that the tables
        were not built with, ``ValueError`` for slots that the board does not have.
        """
        return self.look_up(mask, profile.name)


def slot_policy(
    board: Board, demand: Demand, profiles: tuple[Profile, ...] | None = None
) -> SlotPolicy:
    """Return the tables of *board* under *demand*, for its plain profiles or those given.

    A profile named by a user goes on top: ``board.plain + (profile,)``. Cheap to call for each
    decision: tables are kept, and demand is rounded so that new ones are rarely built.
    """
    offered = board.plain if profiles is None else profiles
    return _tables(board.slots, offered, demand_of(demand, board, offered))


@lru_cache(maxsize=128)
def _tables(slots: int, profiles: tuple[Profile, ...], known: LearnedDemand | None) -> SlotPolicy:
    facts = board_facts(slots, profiles)
    weights = (0,) * len(profiles) if known is None else _weights(known)
    columns = {profile.name: i for i, profile in enumerate(profiles)}
    scores = _scores(facts, weights, known)

    @cache  # a few dozen of the masks are ever met before demand moves on
    def look_up(mask: int, name: str) -> SlotChoice | None:
        units = facts.units(mask)
        return scores.choose(units, facts.free[units][columns[name]])

    return SlotPolicy(
        weights=MappingProxyType(dict(zip(columns, weights, strict=True))),
        look_up=look_up,
    )


def _weights(known: LearnedDemand) -> tuple[int, ...]:
    """Share out WEIGHTS by demand.

    Integers, and nothing for rare profiles: the least weight on a profile that nobody asks
    for would break ties ahead of fullness, and scatter pods over empty GPUs.
    """
    pull = [n ** (known.tilt / 4) if n >= RARE else 0.0 for n in known.percents]
    return tuple(round(WEIGHTS * q / sum(pull)) for q in pull)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scores:
    """What a set of taken units is worth; all but ``facts`` are by mask."""

    facts: BoardFacts
    kept: Sequence[int]  # weighted room for further instances, in units
    orders: Sequence[int]  # sequences of arrivals that could still be placed, while cold
    fill: Sequence[int]  # what this board will yet hold if it takes all that it can

    def choose(self, mask: int, spots: Sequence[int]) -> SlotChoice | None:
        """Choose among the free *spots* of one profile.

        Two questions, two answers: losing the least weighted room picks the right GPU but is
        myopic on it, and the expected fill is the other way round.
        """
        places = [(-self.fill[mask | x], self._rank(mask, mask | x), x) for x in spots]
        if not places:
            return None
        spot = min(places)[2]
        start = ((spot & -spot).bit_length() - 1) * self.facts.width
        return SlotChoice(start, min(rank for _, rank, _ in places))

    def _rank(self, mask: int, after: int) -> tuple[int, ...]:
        return (
            (self.kept[mask] - self.kept[after]) * SHARE // self.facts.size,
            -mask.bit_count() * SHARE // self.facts.size,
            (self.orders[mask] - self.orders[after]) * SHARE // self.facts.orders[0],
            -self.facts.surviving[after] * SHARE // self.facts.surviving[0],
        )


def _scores(facts: BoardFacts, weights: Sequence[int], known: LearnedDemand | None) -> _Scores:
    """Judge by demand where it is known, else by what could still arrive in any order."""
    zeros = (0,) * len(facts.orders)
    if known is None:
        return _Scores(facts=facts, kept=zeros, orders=facts.orders, fill=zeros)
    return _Scores(
        facts=facts,
        kept=_remaining_capacity(facts, weights),
        orders=zeros,
        fill=_fill(facts, known.percents),
    )


def _remaining_capacity(facts: BoardFacts, weights: Sequence[int]) -> tuple[int, ...]:
    each = [w * n for w, n in zip(weights, facts.sizes, strict=True)]
    return tuple(sum(map(mul, each, row)) for row in facts.capacity)


def _fill(facts: BoardFacts, percents: Sequence[int]) -> tuple[int, ...]:
    """Return the units, in FIXED, that a board will yet take from endless arrivals.

    The value of an arrival that is placed is its size plus three quarters of the value of
    what remains; one that does not fit costs one such quarter. With shares h this solves
    D = (sum over h that fit of h * (size + 3/4 * best D after)) / (1 - 3/4 * sum of h that do not).
    """
    fill = [0] * len(facts.free)
    for mask in reversed(range(len(fill))):  # what is placed makes a mask larger
        value, missed = 0, 0
        for percent, size, spots in zip(percents, facts.sizes, facts.free[mask], strict=True):
            if spots:
                best = max(fill[mask | x] for x in spots)
                value += percent * (4 * size * FIXED + 3 * best)
            else:
                missed += percent
        fill[mask] = value // (4 * sum(percents) - 3 * missed)
    return tuple(fill)
