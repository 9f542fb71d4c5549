"""What a board may be: every board that is known, and not much more."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from allocator.catalog.boards import MODELS
from allocator.mig.board_bounds import (
    MOST_PLAIN,
    MOST_PLAIN_STARTS,
    MOST_PROFILES,
    MOST_SLOTS,
    Excess,
    excess_of,
)
from allocator.mig.slot_policy import MOST_UNITS, slot_policy
from allocator.model.board import Board, Profile
from allocator.model.demand import NOTHING_LEARNED
from allocator.model.units import MiB
from tests.builders.model import A100_40, PRO_6000, board

BOARDS = [model.board for model in MODELS.values() if model.board is not None]


def shape(name: str, starts: Sequence[int], *, size: int = 1) -> Profile:
    return Profile(name=name, id=0, memory=MiB(1), sms=1, size=size, starts=tuple(starts))


def cut(slots: int, *profiles: Profile) -> Board:
    return Board(name="B", slots=slots, profiles=profiles)


def plain(count: int, starts: Sequence[int]) -> list[Profile]:
    return [shape(f"{n + 1}g.1gb", starts) for n in range(count)]


@pytest.mark.parametrize("known", BOARDS, ids=lambda board: board.name)
def test_every_known_board_is_within_half_the_bounds(known: Board) -> None:
    """A board of tomorrow may be twice as large as any of today."""
    assert excess_of(known) is None
    assert 2 * len(known.profiles) <= MOST_PROFILES
    assert 2 * sum(len(p.starts) for p in known.plain) <= MOST_PLAIN_STARTS


@pytest.mark.parametrize(
    ("hostile", "excess"),
    [
        pytest.param(
            cut(17, shape("1g.1gb", [0], size=17)), ("slots", "17", "at most 16"), id="slots"
        ),
        pytest.param(
            cut(8, *(shape(f"1g.1gb+x{n}", [0]) for n in range(25))),
            ("profiles", "25 profiles", "at most 24"),
            id="profiles",
        ),
        pytest.param(
            cut(8, shape("1g.1gb", [0] * 9)),
            ("profiles", "9 starts of 1g.1gb", "at most one for each of 8 slots"),
            id="one-start-again-and-again",
        ),
        pytest.param(
            cut(8, shape("1g.1gb+me", range(9))),
            ("profiles", "9 starts of 1g.1gb+me", "at most one for each of 8 slots"),
            id="starts-of-a-variant",
        ),
        pytest.param(
            cut(8, *plain(9, [0])),
            ("profiles", "9 profiles without attribute", "at most 8 such profiles"),
            id="plain-profiles",
        ),
        pytest.param(
            cut(8, *plain(5, range(7))),
            ("profiles", "35 starts of the profiles", "at most 32 together"),
            id="plain-starts",
        ),
        pytest.param(
            cut(16, shape("1g.1gb", range(16))),
            ("slots", "16 slots that its profiles divide into 16 parts", "at most 8 parts"),
            id="sixteen-parts",
        ),
        pytest.param(
            cut(12, *board(PRO_6000).profiles, shape("1g.1gb+x", [1], size=3)),
            ("slots", "12 slots that its profiles divide into 12 parts", "at most 8 parts"),
            id="one-start-out-of-step",
        ),
        pytest.param(
            cut(9, shape("1g.1gb", [0], size=9), shape("2g.1gb", [0, 8])),
            ("slots", "9 slots that its profiles divide into 9 parts", "at most 8 parts"),
            id="nine-parts",
        ),
        pytest.param(
            cut(8, *plain(64, range(8))),
            ("profiles", "64 profiles", "at most 24"),
            id="as-once-accepted",
        ),
    ],
)
def test_what_is_more_is_named(hostile: Board, excess: tuple[str, str, str]) -> None:
    """The place, what stands there and what would be accepted."""
    found = excess_of(hostile)

    assert isinstance(found, Excess)
    where, what, accepted = excess
    assert found.where == where
    assert found.what.startswith(what)
    assert found.accepted.startswith(accepted)


def test_a_fine_board_has_no_table() -> None:
    """Whoever passes by the bounds gets an error, not a table of 65,536 rows."""
    fine = cut(MOST_SLOTS, shape("1g.1gb", range(MOST_SLOTS)))

    with pytest.raises(ValueError, match="16 units is too fine, up to 8"):
        slot_policy(fine, NOTHING_LEARNED)


def test_the_bounds_are_reached() -> None:
    """A board at every bound is accepted."""
    starts = MOST_PLAIN_STARTS // MOST_PLAIN
    variants = [shape(f"1g.1gb+x{n}", range(MOST_UNITS)) for n in range(MOST_PROFILES - MOST_PLAIN)]

    assert excess_of(cut(MOST_UNITS, *plain(MOST_PLAIN, range(starts)), *variants)) is None


def test_boards_of_one_name_are_told_apart_by_their_hash() -> None:
    """Else each look-up in a table would compare an honest board with all that bear its name."""
    honest = board(A100_40)
    profiles = honest.profiles
    liars = [
        replace(honest, profiles=(*profiles[:-1], replace(profiles[-1], sms=sms)))
        for sms in range(1001, 1257)
    ]

    assert len({hash(one) for one in (honest, *liars)}) == 257
    assert hash(replace(honest)) == hash(honest)
