"""Scores of link topologies: MetaX's sample maps, HAMi's formula, and sets that are the best."""

from collections.abc import Iterator, Mapping
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.metax.link_scores import best_split, exclusive_value
from tests.builders.link_maps import APART, LINKED, SAME_SWITCH, computed_maps


def two_rings(one: int, other: int) -> int:
    """Score a pair of eight GPUs: two rings of four, whose opposite members share a switch."""
    if one // 4 != other // 4:
        return APART
    return LINKED if (one - other) % 4 in {1, 3} else SAME_SWITCH


def numbered(*scores: int) -> dict[int, int]:
    """Return *scores* by number of GPUs, from one."""
    return dict(enumerate(scores, 1))


@pytest.mark.parametrize(
    ("used", "scores", "losses"),
    [
        (
            (),
            numbered(0, 110, 270, 540, 580, 730, 930, 1240),
            numbered(310, 400, 390, 160, 390, 400, 310, 0),
        ),
        ((0,), numbered(0, 110, 270, 540, 580, 730), numbered(200, 240, 120, 120, 240, 200)),
        ((0, 1), numbered(0, 110, 270, 540, 580, 730), numbered(150, 80, 330, 80, 150, 0)),
        ((0, 4), numbered(0, 110, 270, 300, 440, 630), numbered(190, 220, 90, 220, 190, 0)),
    ],
)
def test_the_sample_map_of_a_machine_of_two_rings(
    used: tuple[int, ...], scores: Mapping[int, int], losses: Mapping[int, int]
) -> None:
    """Idle it is the map in HAMi's tests; with GPUs in use, what is left of it."""
    maps = computed_maps([gpu for gpu in range(8) if gpu not in used], two_rings)

    assert {count: maps.scores[count] for count in scores} == scores
    assert {count: maps.losses[count] for count in losses} == losses


def test_more_gpus_than_can_be_compared_are_refused() -> None:
    """Subsets of 17 GPUs are over a hundred thousand."""
    with pytest.raises(ValueError, match="17 GPUs are more than 16"):
        computed_maps(range(17), two_rings)


@pytest.mark.parametrize(
    ("free", "values"),
    [
        ({1: 4, 2: 4}, (-30, 60, 270, 600, 570, 660, 870, 1200)),
        ({1: 3, 2: 4}, (-20, 80, 300, 600, 580, 680, 900)),
        ({1: 2, 2: 4}, (-10, 100, 270, 600, 590, 700)),
        ({1: 3, 2: 3}, (-20, 80, 300, 280, 380, 600)),
        ({0: 8}, (0, 0, 0, 0, 0, 0, 0, 0)),
    ],
)
def test_the_best_value_of_each_number(free: Mapping[int, int], values: tuple[int, ...]) -> None:
    """Of idle GPUs in one, two or no link zones."""
    for count, value in enumerate(values, 1):
        split = best_split(free, count)
        assert split is not None
        assert sum(split.values()) == count
        assert exclusive_value(free, split) == value


def test_six_of_three_and_four_leave_the_zone_of_four_whole() -> None:
    """HAMi takes three and three, which is worth less than two and four."""
    assert best_split({1: 3, 2: 4}, 6) == {1: 2, 2: 4}


def test_one_gpu_without_links_is_taken_before_one_of_a_zone() -> None:
    """So linked machines stay whole for pods of several GPUs."""
    assert best_split({0: 1, 1: 4}, 1) == {0: 1}
    assert best_split({0: 2, 1: 4}, 2) == {1: 2}


def test_too_few_gpus_have_no_best_set() -> None:
    """Nothing is promised of what is not free."""
    assert best_split({1: 2}, 3) is None
    assert best_split({}, 1) is None


ZONES = st.dictionaries(st.integers(0, 3), st.integers(1, 4), min_size=1, max_size=3)


@given(ZONES, st.integers(1, 8))
def test_no_other_split_is_better(free: dict[int, int], count: int) -> None:
    """It is compared with every way to take so many, and its order of zones decides nothing."""
    best = best_split(free, count)
    ways = list(_ways(free, count))

    assert (best is None) == (not ways)
    if best is not None:
        assert exclusive_value(free, best) == max(exclusive_value(free, way) for way in ways)
        assert best_split(dict(reversed(free.items())), count) == best


def _ways(free: Mapping[int, int], count: int) -> Iterator[dict[int, int]]:
    for numbers in product(*(range(most + 1) for most in free.values())):
        if sum(numbers) == count:
            yield dict(zip(free, numbers, strict=True))


@given(st.dictionaries(st.sampled_from(list(combinations(range(6), 2))), st.integers(0, 500)))
def test_no_loss_is_negative_and_all_gpus_lose_nothing(pairs: dict[tuple[int, int], int]) -> None:
    """As long as no pair is worth less than nothing; a larger free set never scores less."""

    def pair(one: int, other: int) -> int:
        return pairs.get((min(one, other), max(one, other)), 0)

    maps, fewer = computed_maps(range(6), pair), computed_maps(range(5), pair)

    assert min(maps.losses.values()) >= 0
    assert maps.losses[6] == 0
    assert all(maps.scores[count] >= score for count, score in fewer.scores.items())
