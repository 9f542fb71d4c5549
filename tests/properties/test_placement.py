"""The placement policy, held against exhaustive search and against its formulas."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from types import MappingProxyType

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.mig.learned_demand import demand_of
from allocator.mig.slot_policy import SHARE, slot_policy
from allocator.model.board import Board, Profile
from allocator.model.demand import NOTHING_LEARNED, BoardDemand, Demand
from allocator.model.units import MiB
from tests.builders.model import A100_40, board

A100 = board(A100_40)
COUNTS = st.lists(st.floats(0, 400), min_size=5, max_size=5)
FAILURES = st.floats(0, 0.2)


@st.composite
def boards(draw: st.DrawFn) -> Board:
    """Draw a board of up to eight slots with one to four profiles of any shape."""
    slots = draw(st.integers(1, 8))
    sizes = draw(st.lists(st.integers(1, slots), min_size=1, max_size=4))
    profiles = tuple(
        Profile(
            name=f"{i}g.{size}gb",
            id=i,
            memory=MiB(size),
            sms=size,
            size=size,
            starts=tuple(
                sorted(draw(st.sets(st.integers(0, slots - size), min_size=1, max_size=slots)))
            ),
        )
        for i, size in enumerate(sizes, start=1)
    )
    return Board(name="drawn", slots=slots, profiles=profiles)


def taught(subject: Board, counts: list[float], failures: float) -> Demand:
    names = (profile.name for profile in subject.profiles)
    seen = BoardDemand(
        counts=MappingProxyType(dict(zip(names, counts, strict=False))), failures=failures
    )
    return Demand(boards=MappingProxyType({subject.name: seen}))


def free(mask: int, profile: Profile) -> Iterator[int]:
    return (start for start in profile.starts if not profile.mask(start) & mask)


@settings(max_examples=60)
@given(boards(), COUNTS, FAILURES)
def test_a_seat_is_free_and_legal_and_found_exactly_when_there_is_one(
    subject: Board, counts: list[float], failures: float
) -> None:
    """Whatever is taken and whatever was learned, a seat agrees with trying every start."""
    seats = slot_policy(subject, taught(subject, counts, failures), subject.profiles)

    for mask in range(1 << subject.slots):
        for profile in subject.profiles:
            seat = seats.choose(mask, profile)

            legal = set(free(mask, profile))
            assert seat.start in legal if seat else not legal


@settings(max_examples=40)
@given(boards(), COUNTS, st.integers(2, 3))
def test_finer_slots_change_no_rank(subject: Board, counts: list[float], factor: int) -> None:
    """A model with the same shapes in finer slots has the same seats and comparable ranks."""
    finer = Board(
        name=subject.name,
        slots=subject.slots * factor,
        profiles=tuple(
            replace(p, size=p.size * factor, starts=tuple(s * factor for s in p.starts))
            for p in subject.profiles
        ),
    )
    demand = taught(subject, counts, failures=0.06)
    coarse_seats = slot_policy(subject, demand, subject.profiles)
    fine_seats = slot_policy(finer, demand, finer.profiles)

    for mask in range(1 << subject.slots):
        fine_mask = sum(
            ((1 << factor) - 1) << i * factor for i in range(subject.slots) if mask >> i & 1
        )
        for coarse, fine in zip(subject.profiles, finer.profiles, strict=True):
            seat = coarse_seats.choose(mask, coarse)
            scaled = seat and replace(seat, start=seat.start * factor)
            assert fine_seats.choose(fine_mask, fine) == scaled


@settings(max_examples=25)
@given(COUNTS, FAILURES)
def test_a_gpu_ranks_by_the_weighted_room_that_it_loses(
    counts: list[float], failures: float
) -> None:
    """The first part of a rank is the least weighted loss of slots, in shares of a board."""
    seats = slot_policy(A100, taught_plain(counts, failures))

    @cache
    def most(mask: int, profile: Profile) -> int:
        return max(
            (1 + most(mask | profile.mask(s), profile) for s in free(mask, profile)), default=0
        )

    def room(mask: int) -> int:
        return sum(seats.weights[p.name] * p.size * most(mask, p) for p in A100.plain)

    for mask in range(1 << A100.slots):
        for profile in A100.plain:
            losses = [room(mask) - room(mask | profile.mask(s)) for s in free(mask, profile)]
            seat = seats.choose(mask, profile)
            assert (seat and seat.rank[0]) == (
                Fraction(min(losses) * SHARE, A100.slots) if losses else None
            )


def taught_plain(counts: list[float], failures: float) -> Demand:
    return taught(replace(A100, profiles=A100.plain), counts, failures)


@settings(max_examples=15)
@given(COUNTS.filter(lambda counts: sum(counts) > 40), FAILURES)
def test_a_start_keeps_the_most_of_the_expected_fill(counts: list[float], failures: float) -> None:
    """Once demand is known, a start is best by the policy's formula for one board's future."""
    demand = taught_plain(counts, failures)
    known = demand_of(demand, A100, A100.plain)
    assert known is not None
    total = sum(known.percents)
    shares = {p: n / total for p, n in zip(A100.plain, known.percents, strict=True)}

    @cache
    def fill(mask: int) -> float:
        value, missed = 0.0, 0.0
        for profile, share in shares.items():
            later = [fill(mask | profile.mask(s)) for s in free(mask, profile)]
            value += share * (profile.size + 0.75 * max(later)) if later else 0
            missed += 0 if later else share
        return value / (1 - 0.75 * missed)

    seats = slot_policy(A100, demand)

    for mask in range(1 << A100.slots):
        for profile in A100.plain:
            seat = seats.choose(mask, profile)
            if seat is not None:
                best = max(fill(mask | profile.mask(s)) for s in free(mask, profile))
                assert fill(mask | profile.mask(seat.start)) > best - 1e-4


@settings(max_examples=40)
@given(boards())
def test_while_cold_every_sequence_that_is_counted_on_can_be_placed(subject: Board) -> None:
    """On an empty board, following the seats places as many orders as any policy could."""
    seats = slot_policy(subject, NOTHING_LEARNED, subject.profiles)

    @cache
    def placed(mask: int) -> int:
        chosen = [(p, seats.choose(mask, p)) for p in subject.profiles]
        return sum(1 + placed(mask | p.mask(seat.start)) for p, seat in chosen if seat)

    @cache
    def possible(mask: int) -> int:
        later = [[possible(mask | p.mask(s)) for s in free(mask, p)] for p in subject.profiles]
        return sum(1 + max(values) for values in later if values)

    assert placed(0) == possible(0)
