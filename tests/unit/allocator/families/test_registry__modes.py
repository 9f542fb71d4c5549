"""What follows from the families: who serves a vocabulary, and the mode where no GPU is known."""

import msgspec
import pytest

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.families.inventory_facts import inventory_facts
from allocator.families.registry import FAMILIES, agent_vocabularies, modes_of, usual_mode
from allocator.ledger.ledger import parse_ledger
from allocator.metax.names import CARDS_KEY, GPU, LOSSES_KEY, MEMORY_LABEL, MODEL_LABEL, SGPU
from allocator.model.request import METAX, NVIDIA, Mode, PodRequest
from tests.builders.acme import ACME_WORDS, known_family
from tests.builders.gpunodes import gpu_node
from tests.builders.model import ask, nodes_of, pod

MIG, SOFT, SGPU_MODE = Mode.MIG, Mode.HAMI_CORE, Mode.SGPU


def test_our_agent_serves_the_vocabularies_of_nvidias_gpus_alone() -> None:
    """Another device plugin answers for the others, and would be taken the slots."""
    found = agent_vocabularies(VOCABULARIES)

    assert [one.name for one in found] == [one.name for one in VOCABULARIES if one.family == NVIDIA]
    assert found
    assert {one.family for one in VOCABULARIES} > {NVIDIA}


def test_a_family_with_a_plugin_of_its_own_is_not_our_agents() -> None:
    """Whoever adds one need not say so elsewhere."""
    with known_family():
        assert ACME_WORDS not in agent_vocabularies((*VOCABULARIES, ACME_WORDS))


def request(*, count: int = 1, family: str = NVIDIA) -> PodRequest:
    """Return a request that names no mode."""
    return msgspec.structs.replace(pod(ask(1000, count=count)), family=family)


@pytest.mark.parametrize(
    ("asked", "default", "mode"),
    [
        (request(), MIG, MIG),
        (request(), SOFT, SOFT),
        (request(count=2), MIG, SOFT),
        (request(count=2), SOFT, SOFT),
        (request(), Mode.MPS, SOFT),
        (request(family=METAX), MIG, SGPU_MODE),
        (request(family=METAX), SOFT, SGPU_MODE),
        (request(count=2, family=METAX), MIG, SGPU_MODE),
    ],
)
def test_the_default_mode_holds_where_the_family_tries_it(
    asked: PodRequest, default: Mode, mode: Mode
) -> None:
    """Instances of MIG cannot speak to each other; a mode that must be named is never a default."""
    assert usual_mode(asked, default) is mode


def test_what_is_tried_is_what_gpus_may_be_in() -> None:
    """A named mode is the only one; mps is never tried unasked."""
    assert modes_of(request()) == (MIG, SOFT)
    assert modes_of(msgspec.structs.replace(request(), mode=Mode.MPS)) == (Mode.MPS,)
    for family in FAMILIES.values():
        assert set(family.default_modes) <= set(family.gpu_modes)


@pytest.mark.parametrize("mode", [MIG, SOFT, Mode.MPS])
def test_a_gpu_of_nvidias_may_be_in_each_mode_that_an_agent_reports(mode: Mode) -> None:
    """A mode that the family does not know would leave the GPU out."""
    (found,) = parse_ledger(gpu_node(nodes_of(1, mode=mode))).node.gpus

    assert found.mode is mode


NOTHING: dict[str, str] = {}


@pytest.mark.parametrize(
    ("annotations", "capacity", "found"),
    [
        ({CARDS_KEY: "[]"}, NOTHING, True),
        ({LOSSES_KEY: "{}"}, NOTHING, True),
        (NOTHING, {GPU: "8"}, True),
        (NOTHING, {SGPU: "0"}, True),
        ({"other": "x"}, {"cpu": "8", "nvidia.com/gpu": "8"}, False),
        (NOTHING, NOTHING, False),
    ],
)
def test_a_node_is_of_the_family_whose_plugin_wrote_on_it(
    annotations: dict[str, str], capacity: dict[str, str], *, found: bool
) -> None:
    """An annotation or a resource is enough; a label, which anybody writes, is not."""
    facts = inventory_facts(
        "n0", annotations, labels={MODEL_LABEL: "C500"}, capacity=capacity, allocatable=NOTHING
    )

    assert (facts is not None) is found
    assert facts is None or (facts.name, facts.family) == ("n0", METAX)


def test_only_what_the_family_reads_is_kept_of_a_node() -> None:
    """Everything else may change every second, and would be decided about each time."""
    facts = inventory_facts(
        "n0",
        {CARDS_KEY: "[]", "other": "x"},
        labels={MODEL_LABEL: "C500", MEMORY_LABEL: "64GB", "zone": "z"},
        capacity={GPU: "8", "cpu": "64"},
        allocatable={GPU: "7", SGPU: "3", "cpu": "63"},
    )

    assert facts is not None
    assert facts.annotations == {CARDS_KEY: "[]"}
    assert facts.labels == {MODEL_LABEL: "C500", MEMORY_LABEL: "64GB"}
    assert facts.capacity == {GPU: "8"}
    assert facts.allocatable == {GPU: "7", SGPU: "3"}
    assert facts.configured == ""
