"""Whose GPUs a Node describes, and which parts of it that family is given."""

from collections.abc import Iterator

import pytest

from allocator.families.family import InventoryFacts
from allocator.families.inventory_facts import inventory_facts
from allocator.metax.names import (
    CARDS_KEY,
    GPU,
    LOSSES_KEY,
    MEMORY_LABEL,
    MODEL_LABEL,
    SCORES_KEY,
    SGPU,
)
from tests.builders.acme import CARDS, known_family

NOTES = {key: f"text of {key}" for key in (CARDS_KEY, SCORES_KEY, LOSSES_KEY)}
LABELS = {MODEL_LABEL: "C500", MEMORY_LABEL: "64GB"}
AMOUNTS = {GPU: "8", SGPU: "0"}


@pytest.fixture(autouse=True)
def _acme() -> Iterator[None]:
    with known_family():
        yield


def facts(
    annotations: dict[str, str] | None = None,
    *,
    labels: dict[str, str] | None = None,
    capacity: dict[str, str] | None = None,
    allocatable: dict[str, str] | None = None,
) -> InventoryFacts | None:
    return inventory_facts(
        "n0",
        annotations or {},
        labels=labels or {},
        capacity=capacity or {},
        allocatable=allocatable or {},
    )


def test_a_family_is_given_what_it_names_and_nothing_else() -> None:
    """Everything else of a Node may change often, and whoever reads it would read it again."""
    found = facts(
        {**NOTES, "other": "x", CARDS: "of-the-other-family"},
        labels={**LABELS, "other": "x"},
        capacity={**AMOUNTS, "cpu": "8"},
        allocatable={**AMOUNTS, "cpu": "7"},
    )

    assert found == InventoryFacts(
        name="n0",
        family="metax",
        annotations=NOTES,
        labels=LABELS,
        capacity=AMOUNTS,
        allocatable=AMOUNTS,
    )


@pytest.mark.parametrize("key", NOTES)
def test_each_annotation_says_whose_the_node_is(key: str) -> None:
    """An empty one too: that is malformed, and not nothing."""
    found = facts({key: ""})

    assert found is not None
    assert (found.family, dict(found.annotations)) == ("metax", {key: ""})


@pytest.mark.parametrize("name", AMOUNTS)
def test_each_resource_in_capacity_says_whose_the_node_is(name: str) -> None:
    """Where all of it is withdrawn, capacity still has it."""
    found = facts(capacity={name: "0"})

    assert found is not None
    assert found.family == "metax"


@pytest.mark.parametrize(
    "found",
    [
        facts(),
        facts({"other": "x"}, labels=LABELS, allocatable=AMOUNTS, capacity={"cpu": "8"}),
        facts({"volcano.sh/node-vgpu-register": "x"}),
    ],
)
def test_a_node_on_which_no_plugin_wrote_has_no_inventory(found: InventoryFacts | None) -> None:
    """Labels may be anybody's, and our own agent's Nodes are not read."""
    assert found is None


def test_a_node_of_another_family_is_that_family_s() -> None:
    """Each is asked in its turn."""
    found = facts({CARDS: "{}"})

    assert found is not None
    assert (found.family, dict(found.annotations)) == ("acme", {CARDS: "{}"})
