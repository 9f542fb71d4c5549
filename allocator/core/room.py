"""What still fits on one MIG board, for every set of memory slots that may be taken."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Final

from allocator.model.board import Profile

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
def room(slots: int, profiles: tuple[Profile, ...]) -> BoardFacts:
    """Return what fits where on a board of *slots* memory slots that offers *profiles*.

    The facts double with each unit. Raises ``ValueError`` above 16, twice what is known.
    """
    width = gcd(slots, *(n for p in profiles for n in (p.size, *p.starts)))
    size = slots // width
    if size > MOST_UNITS:
        raise ValueError(f"a board of {size} units is too fine, up to {MOST_UNITS} can be planned")
    spots = tuple(tuple(_spots(p, width)) for p in profiles)
    free = tuple(
        tuple(tuple(x for x in ps if not x & mask) for ps in spots) for mask in range(1 << size)
    )
    return BoardFacts(
        width=width,
        size=size,
        sizes=tuple(p.size // width for p in profiles),
        free=free,
        capacity=tuple(tuple(_most(ps) for ps in row) for row in free),
        surviving=tuple(sum(map(len, row)) for row in free),
        orders=_orders(free),
    )


def _spots(profile: Profile, width: int) -> Iterator[int]:
    run = (1 << profile.size // width) - 1
    return (run << start // width for start in sorted(profile.starts))


def _most(spots: Sequence[int]) -> int:
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
