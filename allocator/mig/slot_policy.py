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

MOST_UNITS: Final = 16  # twice as many as any known board has


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardFacts:
    """The facts about one board that do not depend on demand.

    Memory slots that every placement takes or leaves together are one *unit*, so that a board of
    12 slots divided in threes has 16 masks, not 4,096. All masks here are masks of units. A start
    mask is the mask of the units that a profile takes at one legal start.
    """

    width: int  # memory slots in one unit
    size: int  # of the board, in units
    sizes: tuple[int, ...]  # of its profiles, in units
    free: tuple[tuple[tuple[int, ...], ...], ...]  # [mask][profile]: free start masks, lowest first
    capacity: tuple[tuple[int, ...], ...]  # [mask][profile]: how many instances still fit
    surviving: tuple[int, ...]  # [mask]: number of free start masks
    orders: tuple[int, ...]  # [mask]: sequences of arrivals that could still be placed

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
    """Return the facts about a board of *slots* memory slots that offers *profiles*.

    Their size doubles with each unit. Raises ``ValueError`` above MOST_UNITS.
    """
    width = gcd(slots, *(n for p in profiles for n in (p.size, *p.starts)))
    size = slots // width
    if size > MOST_UNITS:
        raise ValueError(f"a board of {size} units is too fine, up to {MOST_UNITS} can be planned")
    start_masks = tuple(tuple(_start_masks(p, width)) for p in profiles)
    free = tuple(
        tuple(tuple(x for x in ps if not x & mask) for ps in start_masks)
        for mask in range(1 << size)
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


def _most_disjoint(masks: Sequence[int]) -> int:
    """Return how many of *masks*, equally long and lowest first, fit without overlap."""
    taken = count = 0
    for mask in masks:
        if not mask & taken:
            taken |= mask
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
    """The best placement of one profile on one GPU."""

    start: int  # memory slot
    # The lower one is the better GPU, across boards and models, because all its parts are shares
    # of a board. It does not compare the placements on one GPU.
    rank: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPolicy:
    """The best start of each profile for each set of taken slots, for one learned demand."""

    # By profile name: how much a loss of capacity for it counts. Part of the decision record.
    weights: Mapping[str, int]
    look_up: Callable[[int, str], SlotChoice | None]

    def choose(self, mask: int, profile: Profile) -> SlotChoice | None:
        """Return the best start for *profile* on a GPU whose memory slots in *mask* are taken.

        ``None`` means that no start is free. The caller checks ``Profile.limit``, because a mask
        does not count instances. Raises ``KeyError`` for a profile that the tables
        were not built with, ``ValueError`` for slots that the board does not have.
        """
        return self.look_up(mask, profile.name)


def slot_policy(
    board: Board, demand: Demand, profiles: tuple[Profile, ...] | None = None
) -> SlotPolicy:
    """Return the tables of *board* under *demand*, for its plain profiles or those given.

    Add a profile that the user named: ``(*board.plain, profile)``. Calls are cheap: tables are
    cached, and demand is rounded so that new ones are rarely built.
    """
    offered = board.plain if profiles is None else profiles
    return _tables(board.slots, offered, demand_of(demand, board, offered))


@lru_cache(maxsize=128)
def _tables(slots: int, profiles: tuple[Profile, ...], known: LearnedDemand | None) -> SlotPolicy:
    facts = board_facts(slots, profiles)
    weights = (0,) * len(profiles) if known is None else _weights(known)
    columns = {profile.name: i for i, profile in enumerate(profiles)}
    scores = _scores(facts, weights, known)

    @cache  # only a few dozen masks occur before demand changes
    def look_up(mask: int, name: str) -> SlotChoice | None:
        units = facts.units(mask)
        return scores.choose(units, facts.free[units][columns[name]])

    return SlotPolicy(
        weights=MappingProxyType(dict(zip(columns, weights, strict=True))),
        look_up=look_up,
    )


def _weights(known: LearnedDemand) -> tuple[int, ...]:
    """Return WEIGHTS divided by demand.

    Weights are integers, and 0 for rare profiles: even a small weight on a profile without
    demand would break ties before fullness does, and scatter pods over empty GPUs.
    """
    pull = [n ** (known.tilt / 4) if n >= RARE else 0.0 for n in known.percents]
    return tuple(round(WEIGHTS * q / sum(pull)) for q in pull)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scores:
    """The value of each set of taken units; all but ``facts`` are by mask."""

    facts: BoardFacts
    kept: Sequence[int]  # weighted capacity for further instances, in units
    orders: Sequence[
        int
    ]  # sequences of arrivals that could still be placed; 0 once demand is known
    fill: Sequence[int]  # units, in FIXED, that the board is expected to take yet

    def choose(self, mask: int, start_masks: Sequence[int]) -> SlotChoice | None:
        """Return the best of the free *start_masks* of one profile.

        The start is chosen by expected fill, the rank by the least loss of weighted capacity:
        the latter compares GPUs well but is short-sighted on one GPU, the former the reverse.
        """
        choices = [(-self.fill[mask | x], self._rank(mask, mask | x), x) for x in start_masks]
        if not choices:
            return None
        best = min(choices)[2]
        start = ((best & -best).bit_length() - 1) * self.facts.width
        return SlotChoice(start, min(rank for _, rank, _ in choices))

    def _rank(self, mask: int, after: int) -> tuple[int, ...]:
        return (
            (self.kept[mask] - self.kept[after]) * SHARE // self.facts.size,
            -mask.bit_count() * SHARE // self.facts.size,
            (self.orders[mask] - self.orders[after]) * SHARE // self.facts.orders[0],
            -self.facts.surviving[after] * SHARE // self.facts.surviving[0],
        )


def _scores(facts: BoardFacts, weights: Sequence[int], known: LearnedDemand | None) -> _Scores:
    """Return scores by demand where it is known, else by what could arrive in any order."""
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
    """Return the units, in FIXED, that a board is expected to take from endless arrivals.

    The value of an arrival that is placed is its size plus three quarters of the value of
    what remains; one that does not fit costs one such quarter. With shares h this solves
    D = (sum over h that fit of h * (size + 3/4 * best D after)) / (1 - 3/4 * sum of h that do not).
    """
    fill = [0] * len(facts.free)
    for mask in reversed(range(len(fill))):  # what is placed makes a mask larger
        value, missed = 0, 0
        for percent, size, start_masks in zip(percents, facts.sizes, facts.free[mask], strict=True):
            if start_masks:
                best = max(fill[mask | x] for x in start_masks)
                value += percent * (4 * size * FIXED + 3 * best)
            else:
                missed += percent
        fill[mask] = value // (4 * sum(percents) - 3 * missed)
    return tuple(fill)
