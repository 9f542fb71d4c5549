"""Link maps: what is computed zone by zone is what comparing all sets of GPUs finds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metax.link_maps import best_scores, least_losses, pair_score
from tests.builders.link_maps import computed_maps


def test_two_idle_rings_have_the_map_that_hami_has_in_its_tests() -> None:
    """By number of GPUs, from one to all eight."""
    assert best_scores(range(8)) == dict(
        zip(range(1, 9), (0, 110, 270, 540, 580, 730, 930, 1240), strict=True)
    )
    assert least_losses(range(8)) == dict(
        zip(range(1, 9), (310, 400, 390, 160, 390, 400, 310, 0), strict=True)
    )


@given(st.sets(st.integers(0, 11), max_size=9))
def test_maps_are_those_of_all_sets(free: set[int]) -> None:
    """Whichever GPUs are free, also where rings are incomplete."""
    maps = computed_maps(sorted(free), pair_score)

    assert best_scores(free) == maps.scores
    assert least_losses(free) == maps.losses


@pytest.mark.timeout(10)
def test_a_large_node_takes_no_time() -> None:
    """64 GPUs have more sets than could ever be compared."""
    assert len(best_scores(range(64))) == len(least_losses(range(64))) == 64
