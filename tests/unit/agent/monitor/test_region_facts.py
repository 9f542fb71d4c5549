"""Limits in sum: no region of a container ever allows more than what the others leave."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.monitor.region_facts import summed_limits
from agent.region.seed import Limit

PROMISED = (Limit(8, 30), Limit(4, 0))


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        pytest.param([], [], id="no-region"),
        pytest.param([(7, 4)], [(8, 4)], id="one-region-has-all"),
        pytest.param([(5, 0), (2, 1)], [(6, 3), (3, 4)], id="two-share"),
        pytest.param([(8, 0), (0, 0)], [(8, 4), (1, 4)], id="nothing-left-is-not-unlimited"),
        pytest.param([(9, 9), (9, 9)], [(1, 1), (1, 1)], id="more-than-all"),
        pytest.param([(5,), ()], [(8, 4), (3, 4)], id="no-devices-listed-yet"),
        pytest.param([(1, 1), (2, 1), (3, 1)], [(3, 2), (4, 2), (5, 2)], id="three-share"),
    ],
)
def test_each_region_gets_what_the_others_leave(
    used: list[tuple[int, ...]], expected: list[tuple[int, int]]
) -> None:
    """Compute is limited by what the driver sees, so its limit is the promise in each."""
    limits = summed_limits(PROMISED, used)

    assert [tuple(limit.memory for limit in of_region) for of_region in limits] == expected
    assert {tuple(limit.cores for limit in of_region) for of_region in limits} <= {(30, 0)}


@given(st.lists(st.lists(st.integers(0, 2**63), max_size=16), max_size=4))
def test_no_limit_is_none(used: list[list[int]]) -> None:
    """The library takes 0 for no limit, and a number below it cannot be written."""
    for of_region in summed_limits(PROMISED, used):
        assert all(1 <= limit.memory <= 8 for limit in of_region)
