"""The GPUs of a MetaX node follow from what MetaX's components publish, and from nothing else."""

import json

import pytest

from allocator.metax.inventory import (
    UNTOLD_MODEL,
    USUAL_MEMORY,
    MetaxGpus,
    PublishedGpus,
    metax_gpus,
)
from allocator.metax.names import CARDS_KEY, GPU, MEMORY_LABEL, MODEL_LABEL, SGPU
from allocator.metax.node_modes import NodeMode

CARD = {"uuid": "GPU-a", "totalDevCount": 16, "totalCompute": 100, "totalVRam": 65536}
CARDS = {CARDS_KEY: json.dumps([{**CARD, "healthy": True}])}


def native(number: str = "8", *, capacity: str = "", **labels: str) -> PublishedGpus:
    """Return what a native node publishes."""
    allocatable = {GPU: number}
    return PublishedGpus(labels=labels, capacity={GPU: capacity or number}, allocatable=allocatable)


def sgpu(annotations: dict[str, str] | None = None, shares: str = "16") -> PublishedGpus:
    """Return what a node in mode sgpu publishes."""
    amounts = {SGPU: shares}
    cards = CARDS if annotations is None else annotations
    return PublishedGpus(annotations=cards, capacity=amounts, allocatable=amounts)


def of(published: PublishedGpus, configured: NodeMode | None = None) -> MetaxGpus:
    """Return the GPUs of node n1, which must have some to offer."""
    gpus = metax_gpus("n1", published, configured=configured)
    assert gpus is not None
    return gpus


def test_a_native_node_has_as_many_whole_gpus_as_it_offers() -> None:
    """Named as HAMi names them, with the model and memory of its labels."""
    gpus = of(native("2", **{MODEL_LABEL: "MXC500", MEMORY_LABEL: "32GB"}))

    assert (gpus.mode, gpus.closed, gpus.problems) == (NodeMode.NATIVE, "", ())
    assert [(c.uuid, c.model, c.memory, c.shares) for c in gpus.cards] == [
        ("n1-metax-0", "MXC500", 32768, 1),
        ("n1-metax-1", "MXC500", 32768, 1),
    ]


def test_gpus_that_are_taken_out_of_allocatable_are_unhealthy() -> None:
    """HAMi counts capacity, and so gives out GPUs that kubelet does not have."""
    gpus = of(native("6", capacity="8"))

    assert [card.healthy for card in gpus.cards] == [True] * 6 + [False] * 2


def test_a_node_in_mode_sgpu_has_its_cards() -> None:
    """As long as kubelet has shares to give: the annotation outlives its plugin."""
    assert [card.uuid for card in of(sgpu()).cards] == ["GPU-a"]
    assert metax_gpus("n1", sgpu(shares="0")) is None


def test_a_node_that_offers_both_modes_is_closed() -> None:
    """The two resources are the same GPUs."""
    both = PublishedGpus(annotations=CARDS, allocatable={GPU: "1", SGPU: "16"})

    gpus = of(both)
    assert gpus.cards == ()
    assert "offers both metax-tech.com/gpu and metax-tech.com/sgpu" in gpus.closed


@pytest.mark.parametrize(
    ("published", "configured"), [(native(), NodeMode.SGPU), (sgpu(), NodeMode.NATIVE)]
)
def test_a_node_in_another_mode_than_it_should_be_is_closed(
    published: PublishedGpus, configured: NodeMode
) -> None:
    """It is about to change, and a pod of the old mode would be in the way."""
    gpus = of(published, configured)

    assert gpus.cards == ()
    assert f"sets its mode to {configured}" in gpus.closed


def test_a_node_in_its_configured_mode_is_open() -> None:
    """The ConfigMap and the node agree."""
    assert of(sgpu(), NodeMode.SGPU).closed == ""
    assert of(native(), NodeMode.NATIVE).closed == ""


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "[{}]", "{", json.dumps([CARD, CARD]), "[" * 9000, "\x00", "1", "x" * 9],
)
def test_a_node_whose_cards_cannot_be_read_is_closed(text: str) -> None:
    """It has GPUs, and nobody knows which."""
    gpus = of(sgpu({CARDS_KEY: text}))

    assert gpus.cards == ()
    assert "names no GPU that can be read" in gpus.closed


@pytest.mark.parametrize(
    "text",
    ["", "-1", "-8", "8.5", "1e1", "0x8", "eight", "9" * 400, "\u0668", " 8", "8\n", "1Gi", "0"],
)
def test_an_absurd_number_of_gpus_is_none(text: str) -> None:
    """What kubelet would never write offers nothing."""
    assert metax_gpus("n1", native(text)) is None


def test_a_large_number_of_gpus_is_bounded() -> None:
    """A GPUNode holds 64, and no machine has more."""
    assert len(of(native("5k")).cards) == 64


def test_a_long_node_name_gives_names_that_a_ledger_can_hold() -> None:
    """A device name has at most 96 characters."""
    gpus = metax_gpus("n" * 253, native("64"))

    assert gpus is not None
    assert max(len(card.uuid) for card in gpus.cards) <= 96


@pytest.mark.parametrize(
    "text",
    [
        "64",
        "64MB",
        "0GB",
        "-64GB",
        "64gb",
        "64 GB",
        "99999GB",
        "6.4GB",
        "64GBB",
        "GB",
        "\x1b64GB",
        "",
    ],
)
def test_an_odd_label_of_memory_is_told_and_not_used(text: str) -> None:
    """The usual memory counts then, as it does where there is no label."""
    gpus = of(native(**{MEMORY_LABEL: text}))

    assert {card.memory for card in gpus.cards} == {USUAL_MEMORY}
    (problem,) = gpus.problems
    assert str(problem).isprintable()


@pytest.mark.parametrize("text", ["", " ", "a b", "\x1b[31m", "-x", "x" * 64, "\u202eC500", "a,b"])
def test_an_odd_model_is_not_shown(text: str) -> None:
    """A label cannot hold such text, but this module need not rely on that."""
    assert {card.model for card in of(native(**{MODEL_LABEL: text})).cards} == {UNTOLD_MODEL}


@pytest.mark.parametrize("configured", [None, *NodeMode])
def test_a_node_that_offers_both_keeps_the_mode_that_it_should_have(
    configured: NodeMode | None,
) -> None:
    """Without one it is shown as shared, of which there may be pods."""
    both = PublishedGpus(annotations=CARDS, capacity={}, allocatable={GPU: "8", SGPU: "16"})

    assert of(both, configured).mode is (configured or NodeMode.SGPU)


@pytest.mark.parametrize(
    ("published", "configured", "offered"),
    [(native(), NodeMode.SGPU, GPU), (sgpu(), NodeMode.NATIVE, SGPU)],
)
def test_a_node_that_changes_its_mode_says_what_it_still_offers(
    published: PublishedGpus, configured: NodeMode, offered: str
) -> None:
    """By the name of the resource."""
    assert f"still offers {offered};" in of(published, configured).closed


@pytest.mark.parametrize("capacity", [{}, {GPU: ""}, {GPU: "x"}, {GPU: "-1"}, {GPU: "3"}])
def test_what_can_be_allocated_is_there(capacity: dict[str, str]) -> None:
    """Whatever capacity says; a number that is missing there is none."""
    found = of(PublishedGpus(capacity=capacity, allocatable={GPU: "8"}))

    assert [card.healthy for card in found.cards] == [True] * 8
