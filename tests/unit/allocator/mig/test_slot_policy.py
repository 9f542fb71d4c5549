"""The placement policy."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from allocator.mig.learned_demand import with_arrival
from allocator.mig.slot_policy import SHARE, SlotChoice, SlotPolicy, slot_policy
from allocator.model.demand import NOTHING_LEARNED, BoardDemand, Demand
from tests.builders.model import A30, A100_40, PRO_6000, board, placed, profile

BOARD = board(A100_40)


def taught(counts: dict[str, float], failures: float = 0.0, product: str = A100_40) -> Demand:
    seen = BoardDemand(counts=MappingProxyType(counts), failures=failures)
    return Demand(boards=MappingProxyType({board(product).name: seen}))


def choice(policy: SlotPolicy, mask: int, name: str, *, product: str = A100_40) -> SlotChoice:
    best = policy.choose(mask, profile(name, product))
    assert best is not None
    return best


@pytest.mark.parametrize(
    ("arrivals", "starts"),
    [
        pytest.param(("1g.5gb", "2g.10gb"), (6, 4), id="lower-half-stays-whole"),
        pytest.param(("1g.5gb", "4g.20gb"), (6, 0), id="small-one-leaves-the-only-4g"),
        pytest.param(("1g.5gb",) * 4, (6, 4, 5, 0), id="small-ones-stand-together"),
        pytest.param(("3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"), (4, 0, 2, 3), id="eight-slots"),
        pytest.param(("3g.20gb", "4g.20gb"), (4, 0), id="3g-yields-to-4g"),
    ],
)
def test_an_empty_board_fills_without_regret(
    arrivals: tuple[str, ...], starts: tuple[int, ...]
) -> None:
    """While nothing is known, each arrival sits where it spoils least for any other."""
    policy = slot_policy(BOARD, NOTHING_LEARNED)
    mask, chosen = 0, []

    for name in arrivals:
        chosen.append(choice(policy, mask, name).start)
        mask |= placed(name, chosen[-1]).mask

    assert tuple(chosen) == starts


def test_a_full_gpu_has_no_start() -> None:
    """Slot 7 alone is no place for a 1g, though it is free."""
    policy = slot_policy(BOARD, NOTHING_LEARNED)

    assert policy.choose(0b0111_1111, profile("1g.5gb")) is None


def test_the_fuller_gpu_is_preferred_where_nothing_else_differs() -> None:
    """An arrival goes on a GPU in use before it opens an empty one."""
    policy = slot_policy(BOARD, taught({"1g.5gb": 100.0}))

    assert choice(policy, 0b1, "1g.5gb").rank < choice(policy, 0, "1g.5gb").rank


def test_a_gpu_is_kept_whole_where_whole_ones_are_asked_for() -> None:
    """With 7g in demand a 1g avoids the empty GPU even if another loses room for a 2g."""
    policy = slot_policy(BOARD, taught({"1g.5gb": 50.0, "2g.10gb": 20.0, "7g.40gb": 30.0}))

    assert choice(policy, 0b1, "1g.5gb").rank < choice(policy, 0, "1g.5gb").rank


def test_capacity_is_kept_alike_for_all_profiles_in_use_until_overload() -> None:
    """Shares of demand count only once pods are turned away."""
    counts = {"1g.5gb": 90.0, "7g.40gb": 10.0}

    calm = slot_policy(BOARD, taught(counts)).weights
    overloaded = slot_policy(BOARD, taught(counts, failures=0.2)).weights

    assert (calm["1g.5gb"], calm["7g.40gb"]) == (25, 25)
    assert (overloaded["1g.5gb"], overloaded["7g.40gb"]) == (45, 5)


def test_nothing_is_kept_for_a_profile_that_nobody_asks_for() -> None:
    """An unseen or rare profile has no weight, so that it cannot scatter pods."""
    weights = slot_policy(BOARD, taught({"1g.5gb": 995.0, "2g.10gb": 5.0})).weights

    assert weights == {"1g.5gb": 50, "2g.10gb": 0, "3g.20gb": 0, "4g.20gb": 0, "7g.40gb": 0}


def test_a_profile_named_by_a_user_is_seated_among_the_plain_ones() -> None:
    """Double memory goes to slots 6 and 7, the last of which nothing small can use."""
    double = profile("1g.10gb")

    best = slot_policy(BOARD, NOTHING_LEARNED, (*BOARD.plain, double)).choose(0, double)

    assert best is not None
    assert best.start == 6


def test_a_profile_that_is_not_on_offer_is_an_error() -> None:
    """Asking for an unknown profile is a bug, not a full GPU."""
    with pytest.raises(KeyError, match=r"1g\.10gb"):
        slot_policy(BOARD, NOTHING_LEARNED).choose(0, profile("1g.10gb"))


def test_a_slot_that_the_board_lacks_is_an_error() -> None:
    """A mask from another board is a bug, not a full GPU."""
    with pytest.raises(ValueError, match="has only 8"):
        slot_policy(BOARD, NOTHING_LEARNED).choose(1 << 8, profile("1g.5gb"))


def test_a_board_of_twelve_slots_is_seated_in_its_own_slots() -> None:
    """A profile of three slots sits at a multiple of three, wherever it fits."""
    policy = slot_policy(board(PRO_6000), NOTHING_LEARNED)

    best = choice(policy, 0b000_000_000_111, "1g.24gb", product=PRO_6000)

    assert best.start == 3


def test_boards_of_one_structure_rank_alike() -> None:
    """A quarter of an A30 counts as much as a quarter of an RTX PRO 6000."""
    small = slot_policy(board(A30), taught({"1g.6gb": 60.0, "4g.24gb": 40.0}, product=A30))
    large = slot_policy(
        board(PRO_6000), taught({"1g.24gb": 60.0, "4g.96gb": 40.0}, product=PRO_6000)
    )

    on_a30 = choice(small, 0b1100, "1g.6gb", product=A30)
    on_pro = choice(large, 0b111_111_000_000, "1g.24gb", product=PRO_6000)

    assert on_pro == SlotChoice(on_a30.start * 3, on_a30.rank)


@pytest.mark.parametrize(
    ("product", "name"),
    [
        pytest.param(A100_40, "7g.40gb", id="eight-slots"),
        pytest.param(A30, "4g.24gb", id="four-slots"),
        pytest.param(PRO_6000, "4g.96gb", id="twelve-slots"),
    ],
)
def test_a_whole_board_is_the_same_loss_everywhere(product: str, name: str) -> None:
    """Taking all of an empty board ranks equally on every model: it loses one board."""
    policy = slot_policy(board(product), NOTHING_LEARNED)

    assert choice(policy, 0, name, product=product).rank == (0, 0, SHARE, 0)


def test_a_board_too_fine_to_plan_is_refused_at_once() -> None:
    """A report of 32 single slots is an error, not four billion rows."""
    fine = replace(BOARD, slots=32)

    with pytest.raises(ValueError, match="32 units is too fine"):
        slot_policy(fine, NOTHING_LEARNED)


def test_tables_are_kept_while_demand_hardly_moves() -> None:
    """In a thousand arrivals of a steady mix the tables change a few dozen times at most."""
    names = ("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb")
    demand = NOTHING_LEARNED
    for i in range(2000):
        demand = with_arrival(demand, BOARD, profile(names[i % 4]), failed=False)

    met: list[SlotPolicy] = []
    for i in range(1000):
        demand = with_arrival(demand, BOARD, profile(names[i % 4]), failed=i % 25 == 0)
        now = slot_policy(BOARD, demand)
        met += [] if met and met[-1] is now else [now]

    assert len(met) < 50


def test_ids_and_memory_of_profiles_do_not_matter() -> None:
    """Seats follow from shapes alone, whatever a driver calls them or how much it reports."""
    renumbered = tuple(replace(p, id=p.id + 100, sms=1) for p in BOARD.plain)
    demand = taught({"1g.5gb": 70.0, "3g.20gb": 30.0}, failures=0.06)

    ours = slot_policy(BOARD, demand)
    theirs = slot_policy(BOARD, demand, renumbered)

    assert [ours.choose(m, p) for m in range(256) for p in BOARD.plain] == [
        theirs.choose(m, p) for m in range(256) for p in renumbered
    ]
