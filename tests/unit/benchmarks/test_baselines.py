"""Other projects' placement rules, as described by their owners."""

import pytest

from benchmarks.baselines import hami
from benchmarks.baselines.greedy import Greedy
from benchmarks.baselines.scores import capacity_loss, lowest_start, reach
from benchmarks.baselines.volcano import StickyGroup
from benchmarks.mig import A100, Policy, SlotPick
from tests.builders.model import placed, profile

ALIKE = {p.name: 1 for p in A100.plain}


def starts(policy: Policy, *names: str) -> list[int | None]:
    """Offer arrivals to one empty GPU and return the first slot that each is given."""
    mask, found = 0, list[int | None]()
    for name in names:
        choice = policy([mask], profile(name))
        found.append((choice.slots & -choice.slots).bit_length() - 1 if choice else None)
        mask |= choice.slots if choice else 0
    return found


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(Greedy(lowest_start), [0, 2, 4], id="lowest-start"),
        pytest.param(Greedy(hami.release_2_10), [6, 0, None], id="hami-2.10-scatters"),
        pytest.param(Greedy(hami.regions(A100)), [0, 2, 4], id="hami-2855-small-ones-low"),
        pytest.param(Greedy(reach(A100.plain)), [6, 4, 0], id="reach"),
        pytest.param(Greedy(capacity_loss(A100.plain, ALIKE)), [6, 4, 0], id="capacity-loss"),
        pytest.param(StickyGroup(A100), [0, None, None], id="sticky-group"),
    ],
)
def test_where_a_small_a_medium_and_a_half_board_go(
    policy: Policy, expected: list[int | None]
) -> None:
    """1g, 2g and 3g in that order on one empty A100."""
    assert starts(policy, "1g.5gb", "2g.10gb", "3g.20gb") == expected


def test_the_halves_rule_loses_the_only_4g_to_a_small_instance() -> None:
    """It puts a 1g in slot 0, and a 4g can start nowhere else."""
    assert starts(Greedy(hami.regions(A100)), "1g.5gb", "4g.20gb") == [0, None]


def test_the_halves_rule_reserves_the_upper_half_for_half_boards() -> None:
    """A 3g goes to the half that offers fewer placements."""
    assert starts(Greedy(hami.regions(A100)), "3g.20gb") == [4]


def test_a_sticky_group_gives_only_what_is_in_use() -> None:
    """A 1g on a GPU with a 2g gets another 2g, although its group holds a 1g."""
    assert starts(StickyGroup(A100), "2g.10gb", "1g.5gb") == [0, 2]


def test_a_sticky_group_outlives_its_last_instance() -> None:
    """A GPU that once held a 1g never serves a 7g again."""
    policy = StickyGroup(A100)
    policy([0], profile("1g.5gb"))

    assert policy([0], profile("7g.40gb")) is None


def test_ranked_policies_take_the_fullest_gpu_and_the_first_of_equals() -> None:
    """Of an empty and two equally used GPUs the first used one is taken."""
    policy = Greedy(lowest_start)

    choice = policy([0, 0b1, 0b1], profile("1g.5gb"))

    assert choice == SlotPick(1, placed("1g.5gb", 1).mask)
