"""Conditions that tell pods that ask for vGPU from all others."""

import pytest

from allocator.catalog.conditions import MOST_LIMITS, asks_for_none, asks_for_vgpu, is_ours, strings
from allocator.catalog.vocabularies import VOCABULARIES, Vocabulary
from tests.authorization.policies import value_of


@pytest.mark.parametrize("vocabulary", VOCABULARIES, ids=lambda v: v.name)
def test_every_resource_of_a_vocabulary_is_recognised(vocabulary: Vocabulary) -> None:
    """Each name is matched by one of the prefixes, or named itself."""
    condition = is_ours("r")

    for name in vocabulary.resources:
        prefixed = any(
            f"r.startsWith('{prefix}')" in condition
            for prefix in vocabulary.prefixes
            if name.startswith(prefix)
        )
        assert prefixed or f"r == '{name}'" in condition


def test_no_pod_meets_both_hooks_or_none() -> None:
    """One condition is the other's negation, to the letter."""
    assert asks_for_none() == f"!({asks_for_vgpu()})"


def test_lists_do_not_depend_on_the_order_of_a_set() -> None:
    """Generating twice writes the same bytes."""
    assert strings({"b", "a", "c"}) == "['a', 'b', 'c']"


def test_more_limits_than_are_searched_count_as_asking() -> None:
    """The hook that must answer decides then, and none of the API server's time is lost."""

    def asking(count: int) -> object:
        limits = {f"example.com/x{number}": "1" for number in range(count)}
        spec = {"containers": [{"name": "c", "resources": {"limits": limits}}]}
        return value_of(asks_for_vgpu(), {"object": {"spec": spec}})

    assert asking(MOST_LIMITS) is False
    assert asking(MOST_LIMITS + 1) is True
