"""Where an instance should start: lookup table per board and demand.

Only the shape of a board counts: which of its slots each profile may take. So boards that differ in
names and amounts alone share one table, and a table costs what its shape allows
(``allocator.mig.board_bounds``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from operator import mul
from types import MappingProxyType
from typing import Final

from allocator.mig.learned_demand import LearnedDemand, demand_of
from allocator.model.board import Board, Profile
from allocator.model.demand import Demand

# Twice what any known board has, and all that the table of one GPU's slots may cost.
MOST_UNITS: Final = 8
# Tables that are kept, of some 30 KB each: several times what a fleet of all known boards needs.
MOST_TABLES: Final = 512
_MOST_LOOKED_UP: Final = 256  # answers kept by each table; only a few dozen masks occur


@dataclass(frozen=True, slots=True)
class BoardShape:
    """The part of a board that its table follows from.

    Memory slots that every placement takes or leaves together are one *unit*, so that a board of
    12 slots divided in threes has 16 masks, not 4,096. All masks here are masks of units. A start
    mask is the mask of the units that a profile takes at one legal start.
    """

    size: int  # of the board, in units
    start_masks: tuple[tuple[int, ...], ...]  # of each profile, lowest first
    sizes: tuple[int, ...]  # of its profiles, in units


@lru_cache(maxsize=MOST_TABLES)
def _shape(slots: int, profiles: tuple[Profile, ...]) -> tuple[int, BoardShape]:
    """Return the memory slots of one unit, and the shape of a board that offers *profiles*."""
    width = gcd(slots, *(n for p in profiles for n in (p.size, *p.starts)))
    return width, BoardShape(
        size=slots // width,
        start_masks=tuple(tuple(_start_masks(p, width)) for p in profiles),
        sizes=tuple(p.size // width for p in profiles),
    )


def shape_of_board(board: Board) -> BoardShape:
    """Return the shape of *board* with its plain profiles."""
    return _shape(board.slots, board.plain)[1]


def _start_masks(profile: Profile, width: int) -> Iterator[int]:
    run = (1 << profile.size // width) - 1
    return (run << start // width for start in sorted(profile.starts))


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardFacts:
    """The facts about one shape that do not depend on demand; all but ``shape`` are by mask."""

    shape: BoardShape
    capacity: tuple[tuple[int, ...], ...]  # by profile too: how many instances still fit
    surviving: tuple[int, ...]  # number of free start masks
    orders: tuple[int, ...]  # sequences of arrivals that could still be placed


@lru_cache(maxsize=MOST_TABLES)
def board_facts(shape: BoardShape) -> BoardFacts:
    """Return the facts about boards of one *shape*.

    Their size doubles with each unit. Raises ``ValueError`` above MOST_UNITS.
    """
    size = shape.size
    if size > MOST_UNITS:
        raise ValueError(f"a board of {size} units is too fine, up to {MOST_UNITS} can be planned")
    capacity, surviving = [], []
    orders = [0] * (1 << size)
    for mask in reversed(range(1 << size)):  # what is placed makes a mask larger
        free = [[x for x in ps if not x & mask] for ps in shape.start_masks]
        capacity.append(tuple([_most_disjoint(ps) for ps in free]))
        surviving.append(sum([len(ps) for ps in free]))
        orders[mask] = sum([1 + max([orders[mask | x] for x in ps]) for ps in free if ps])
    return BoardFacts(
        shape=shape,
        capacity=tuple(reversed(capacity)),
        surviving=tuple(reversed(surviving)),
        orders=tuple(orders),
    )


def _most_disjoint(masks: Sequence[int]) -> int:
    """Return how many of *masks*, equally long and lowest first, fit without overlap."""
    taken = count = 0
    for mask in masks:
        if not mask & taken:
            taken |= mask
            count += 1
    return count


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


@lru_cache(maxsize=MOST_TABLES)
def _tables(slots: int, profiles: tuple[Profile, ...], known: LearnedDemand | None) -> SlotPolicy:
    width, shape = _shape(slots, profiles)
    scores = _scores(shape, known)
    columns = {profile.name: i for i, profile in enumerate(profiles)}

    @lru_cache(maxsize=_MOST_LOOKED_UP)
    def look_up(mask: int, name: str) -> SlotChoice | None:
        return scores.choose(_units(mask, slots, width), columns[name], width)

    return SlotPolicy(
        weights=MappingProxyType(dict(zip(columns, scores.weights, strict=True))),
        look_up=look_up,
    )


def _units(mask: int, slots: int, width: int) -> int:
    """Return the units that the memory slots in *mask* touch.

    Raises ``ValueError`` for slots that the board does not have.
    """
    if mask >> slots:
        raise ValueError(f"slots {mask:#b} are taken, but a board has only {slots}")
    unit = (1 << width) - 1
    return sum([1 << i for i in range(slots // width) if mask >> i * width & unit])


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
    weights: Sequence[int]  # by profile
    kept: Sequence[int]  # weighted capacity for further instances, in units
    # sequences of arrivals that could still be placed; 0 once demand is known
    orders: Sequence[int]
    fill: Sequence[int]  # units, in FIXED, that the board is expected to take yet

    def choose(self, mask: int, profile: int, width: int) -> SlotChoice | None:
        """Return the best free start of one *profile* by its number; units have *width* slots.

        The start is chosen by expected fill, the rank by the least loss of weighted capacity:
        the latter compares GPUs well but is short-sighted on one GPU, the former the reverse.
        """
        free = [x for x in self.facts.shape.start_masks[profile] if not x & mask]
        choices = [(-self.fill[mask | x], self._rank(mask, mask | x), x) for x in free]
        if not choices:
            return None
        best = min(choices)[2]
        start = ((best & -best).bit_length() - 1) * width
        return SlotChoice(start, min([rank for _, rank, _ in choices]))

    def _rank(self, mask: int, after: int) -> tuple[int, ...]:
        return (
            (self.kept[mask] - self.kept[after]) * SHARE // self.facts.shape.size,
            -mask.bit_count() * SHARE // self.facts.shape.size,
            (self.orders[mask] - self.orders[after]) * SHARE // self.facts.orders[0],
            -self.facts.surviving[after] * SHARE // self.facts.surviving[0],
        )


@lru_cache(maxsize=MOST_TABLES)
def _scores(shape: BoardShape, known: LearnedDemand | None) -> _Scores:
    """Return scores by demand where it is known, else by what could arrive in any order."""
    facts = board_facts(shape)
    zeros = (0,) * len(facts.orders)
    if known is None:
        none = (0,) * len(shape.sizes)
        return _Scores(facts=facts, weights=none, kept=zeros, orders=facts.orders, fill=zeros)
    weights = _weights(known)
    return _Scores(
        facts=facts,
        weights=weights,
        kept=_remaining_capacity(facts, weights),
        orders=zeros,
        fill=_fill(shape, known.percents),
    )


def _remaining_capacity(facts: BoardFacts, weights: Sequence[int]) -> tuple[int, ...]:
    each = [w * n for w, n in zip(weights, facts.shape.sizes, strict=True)]
    return tuple(sum(map(mul, each, row)) for row in facts.capacity)


def _fill(shape: BoardShape, percents: Sequence[int]) -> tuple[int, ...]:
    """Return the units, in FIXED, that a board is expected to take from endless arrivals.

    The value of an arrival that is placed is its size plus three quarters of the value of
    what remains; one that does not fit costs one such quarter. With shares h this solves
    D = (sum over h that fit of h * (size + 3/4 * best D after)) / (1 - 3/4 * sum of h that do not).
    """
    fill = [0] * (1 << shape.size)
    columns = list(zip(percents, shape.sizes, shape.start_masks, strict=True))
    for mask in reversed(range(len(fill))):  # what is placed makes a mask larger
        value, missed = 0, 0
        for percent, size, start_masks in columns:
            after = [fill[mask | x] for x in start_masks if not x & mask]
            if after:
                value += percent * (4 * size * FIXED + 3 * max(after))
            else:
                missed += percent
        fill[mask] = value // (4 * sum(percents) - 3 * missed)
    return tuple(fill)
