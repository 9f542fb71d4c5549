"""Learning demand."""

from types import MappingProxyType

import pytest

from allocator.mig.learned_demand import COLD, demand_of, with_arrival, with_arrivals
from allocator.model.demand import NOTHING_LEARNED, BoardDemand, Demand
from allocator.model.request import Mode
from tests.builders.model import A30, A100_40, H100, ask, board, pod, profile

BOARD = board(A100_40)
SMALL = profile("1g.5gb")
LARGE = profile("7g.40gb")


def after(arrivals: int, *, failed: bool = False) -> Demand:
    demand = NOTHING_LEARNED
    for _ in range(arrivals):
        demand = with_arrival(demand, BOARD, SMALL, failed=failed)
    return demand


def known(counts: dict[str, float], failures: float = 0.0) -> Demand:
    seen = BoardDemand(counts=MappingProxyType(counts), failures=failures)
    return Demand(boards=MappingProxyType({BOARD.name: seen}))


def test_an_arrival_counts_once_for_its_profile() -> None:
    """A first arrival is one of its profile and nothing else."""
    demand = after(1)

    assert demand.boards[BOARD.name].counts == {"1g.5gb": 1.0}


def test_learning_leaves_the_demand_it_was_given_alone() -> None:
    """A snapshot that holds older demand does not change under its reader."""
    before = after(3)

    with_arrival(before, BOARD, LARGE, failed=True)

    assert before == after(3)


def test_old_arrivals_fade() -> None:
    """However long pods arrive, the memory is that of about a thousand of them."""
    demand = after(9000)

    assert demand.boards[BOARD.name].arrivals == pytest.approx(1000, rel=0.001)


def test_failures_are_a_share_of_recent_first_attempts() -> None:
    """Five hundred failures in a row bring the share most of the way from 0 to 1."""
    demand = after(500, failed=True)

    assert demand.boards[BOARD.name].failures == pytest.approx(0.632, abs=0.001)


def test_boards_learn_apart() -> None:
    """What is asked of one board says nothing about another."""
    demand = after(100)

    assert demand_of(demand, board(A30), board(A30).plain) is None


def test_a_few_arrivals_teach_nothing() -> None:
    """Shares of fewer than COLD arrivals are not used."""
    assert demand_of(known({"1g.5gb": COLD - 0.1}), BOARD, BOARD.plain) is None
    assert demand_of(known({"1g.5gb": COLD}), BOARD, BOARD.plain) is not None


def test_percents_follow_the_order_of_the_profiles_asked_about() -> None:
    """Shares refer to the profiles on offer, in their order, and leave the others out."""
    demand = known({"7g.40gb": 10.0, "1g.5gb": 30.0, "1g.5gb+me": 60.0})

    seen = demand_of(demand, BOARD, (SMALL, LARGE))

    assert seen is not None
    assert seen.percents == (75, 25)


@pytest.mark.parametrize(
    ("failures", "tilt"),
    [
        pytest.param(0.0, 0, id="idle"),
        pytest.param(0.04, 0, id="calm"),
        pytest.param(0.06, 2, id="strained"),
        pytest.param(0.08, 4, id="overloaded"),
        pytest.param(0.5, 4, id="drowning"),
    ],
)
def test_overload_tilts_reservations_towards_demand(failures: float, tilt: int) -> None:
    """Between 4 and 8 per cent of failed first attempts the tilt goes from nothing to full."""
    seen = demand_of(known({"1g.5gb": 100.0}, failures), BOARD, BOARD.plain)

    assert seen is not None
    assert seen.tilt == tilt


def test_a_pod_teaches_every_board_that_could_have_served_it() -> None:
    """Mixed fleets learn at one pace: each board counts its own smallest sufficient profile."""
    boards = (board(A100_40), board(H100))
    demand = with_arrivals(NOTHING_LEARNED, pod(ask(8000)), boards, failed=False)

    assert demand.boards[boards[0].name].counts == {"2g.10gb": 1.0}
    assert demand.boards[boards[1].name].counts == {"1g.10gb": 1.0}


def test_software_slices_teach_nothing_about_instances() -> None:
    """A pod that names hami-core never competes for a place on a board."""
    request = pod(ask(8000), mode=Mode.HAMI_CORE)

    assert (
        with_arrivals(NOTHING_LEARNED, request, (board(A100_40),), failed=False) is NOTHING_LEARNED
    )
