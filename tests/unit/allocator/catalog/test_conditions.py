"""Conditions that tell pods that ask for vGPU from all others."""

import pytest

from allocator.catalog.conditions import asks_for_none, asks_for_vgpu, is_ours, strings
from allocator.catalog.vocabularies import VOCABULARIES, Vocabulary


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
