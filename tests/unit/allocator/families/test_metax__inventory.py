"""A MetaX node as its components describe it: every part of it, and every fault in it."""

from dataclasses import replace

import pytest

from allocator.families.family import InventoryFacts, ReadInventory
from allocator.families.metax import load_modes, read_inventory
from allocator.metax.cards import MetaxCard, encode_cards
from allocator.metax.inventory import UNTOLD_MODEL
from allocator.metax.names import (
    CARDS_KEY,
    GPU,
    LOSSES_KEY,
    MEMORY_LABEL,
    MODEL_LABEL,
    SCORES_KEY,
    SGPU,
)
from allocator.model.gpu import Gpu, Node
from allocator.model.problem import Loaded
from allocator.model.request import METAX, Mode
from allocator.model.units import MiB

PLAIN = MetaxCard(
    uuid="GPU-a", model="C500", shares=16, memory=65536, healthy=True, numa=0, zone=None
)


def shared_node(*cards: MetaxCard, **more: str) -> InventoryFacts:
    """Return what is read of a node in mode sgpu with *cards*, and with *more* annotations."""
    return InventoryFacts(
        name="n0",
        family=METAX,
        annotations={CARDS_KEY: encode_cards(cards), **more},
        capacity={SGPU: "32"},
        allocatable={SGPU: "32"},
    )


def native_node(
    number: str = "4", *, allocatable: str | None = None, labels: dict[str, str] | None = None
) -> InventoryFacts:
    """Return what is read of a node with whole GPUs."""
    return InventoryFacts(
        name="n0",
        family=METAX,
        annotations={},
        labels=labels or {},
        capacity={GPU: number},
        allocatable={GPU: number if allocatable is None else allocatable},
    )


def node_of(facts: InventoryFacts) -> Node:
    found = read_inventory(facts).node
    assert found is not None
    return found


def test_every_part_of_a_card_is_kept() -> None:
    """The second of two cards, so that its index is not the one that everything begins with."""
    card = replace(PLAIN, uuid="GPU-b", model="C550", shares=8, memory=32768, numa=1, healthy=False)

    assert node_of(shared_node(PLAIN, card)).gpus[1] == Gpu(
        uuid="GPU-b",
        index=1,
        model="C550",
        memory=MiB(32768),
        mode=Mode.SGPU,
        slots=8,
        healthy=False,
        numa=1,
        family=METAX,
    )


def test_a_card_without_a_model_has_the_name_of_no_model() -> None:
    """An empty name would fit any filter that names a part of one."""
    (gpu,) = node_of(shared_node(replace(PLAIN, model=""))).gpus

    assert gpu.model == UNTOLD_MODEL


@pytest.mark.parametrize(
    ("zones", "links"),
    [
        ((1, 1), (("GPU-1",), ("GPU-0",))),
        ((1, 2), ((), ())),
        ((None, None), ((), ())),
        ((1, None), ((), ())),
        ((1, None, 1), (("GPU-2",), (), ("GPU-0",))),
        ((3, 3, 3), (("GPU-1", "GPU-2"), ("GPU-0", "GPU-2"), ("GPU-0", "GPU-1"))),
    ],
)
def test_a_card_is_linked_with_the_others_of_its_zone(
    zones: tuple[int | None, ...], links: tuple[tuple[str, ...], ...]
) -> None:
    """Never with itself, and without a zone with none."""
    cards = [replace(PLAIN, uuid=f"GPU-{n}", zone=zone) for n, zone in enumerate(zones)]

    assert tuple(gpu.links for gpu in node_of(shared_node(*cards)).gpus) == links


@pytest.mark.parametrize(
    ("facts", "path"),
    [
        (shared_node(PLAIN, replace(PLAIN, uuid="GPU-b", memory=0)), f"{CARDS_KEY}[1]"),
        (native_node(labels={MEMORY_LABEL: "much"}), MEMORY_LABEL),
    ],
)
def test_a_node_that_cannot_be_read_whole_refuses_nobody(facts: InventoryFacts, path: str) -> None:
    """What could not be read may be what a pod asks for."""
    found = read_inventory(facts)

    assert found.node is not None
    assert not found.node.fresh
    assert [problem.path for problem in found.problems] == [path]


def test_a_node_without_problems_is_fresh() -> None:
    """Also if a map of its links is malformed: those rank nodes only."""
    found = read_inventory(shared_node(PLAIN, **{SCORES_KEY: "{", LOSSES_KEY: "[]"}))

    assert found.node is not None
    assert found.node.fresh
    assert [problem.path for problem in found.problems] == [SCORES_KEY, LOSSES_KEY]


def test_problems_of_cards_and_of_maps_are_both_told() -> None:
    """The cards' first."""
    facts = shared_node(PLAIN, replace(PLAIN, shares=0), **{LOSSES_KEY: "{"})

    assert [problem.path for problem in read_inventory(facts).problems] == [
        f"{CARDS_KEY}[1]",
        LOSSES_KEY,
    ]


def test_the_order_of_a_map_does_not_matter() -> None:
    """A node that publishes the same in another order has not changed."""
    one = shared_node(PLAIN, **{SCORES_KEY: '{"2":50,"1":0}', LOSSES_KEY: '{"2":80,"1":40}'})
    other = shared_node(PLAIN, **{SCORES_KEY: '{"1":0,"2":50}', LOSSES_KEY: '{"1":40,"2":80}'})

    assert node_of(one) == node_of(other)
    assert node_of(one).link_scores == ((1, 0), (2, 50))
    assert node_of(one).link_losses == ((1, 40), (2, 80))


def test_whole_gpus_have_the_model_and_memory_of_the_labels() -> None:
    """And as many are healthy as may be given out."""
    labels = {MODEL_LABEL: "C600", MEMORY_LABEL: "128GB"}

    gpus = node_of(native_node("4", allocatable="3", labels=labels)).gpus

    assert [(gpu.model, gpu.memory, gpu.mode) for gpu in gpus] == [
        ("C600", 128 * 1024, Mode.NATIVE)
    ] * 4
    assert [gpu.healthy for gpu in gpus] == [True, True, True, False]


def test_a_node_that_offers_nothing_has_no_inventory() -> None:
    """Its plugin may have withdrawn all of it."""
    assert read_inventory(native_node("0")) == ReadInventory(None)


def test_why_a_node_is_closed_is_handed_on() -> None:
    """Here because its operator wants it in another mode."""
    found = read_inventory(replace(native_node(), configured="sgpu"))

    assert "sets its mode to sgpu" in found.closed
    assert read_inventory(native_node()).closed == ""
    assert read_inventory(replace(native_node(), configured="native")).closed == ""


def test_an_unknown_key_of_the_modes_is_a_warning() -> None:
    """The modes count all the same."""
    found = load_modes({"version": "v1", "cluster-config": "mode: sgpu", "more": ""})

    assert isinstance(found, Loaded)
    assert found.value("n0") == "sgpu"
    assert [warning.what for warning in found.warnings] == ['unknown key "more"']
