"""MetaX machines: an entry of a fleet file is such a node, or is refused with a remedy."""

from pathlib import Path

import pytest
import yaml

from agent.metax.machine import MetaxMachine, metax_machine
from agent.serve.options import FleetError, simulated_driver, simulated_metax
from allocator.metax.names import GPU, SGPU
from allocator.metax.node_modes import NodeMode
from allocator.model.problem import Rejected

C500 = "model: C500, memory: 65536"
FLEET = f"""
nodes:
- {{name: whole, {C500}, gpus: 8, mode: native, unhealthy: [7]}}
- {{name: "*", {C500}, gpus: 2, mode: sgpu, slots: 16}}
- {{name: nvidia, model: A30}}
"""


def machine(text: str = FLEET, node: str = "any") -> MetaxMachine:
    """Return the machine of a node that is one of MetaX's."""
    found = metax_machine(text, node=node)
    assert isinstance(found, MetaxMachine), str(found)
    return found


def test_a_node_simulates_the_entry_of_its_name() -> None:
    """Native: whole GPUs with one share each, in rings of four, of which one may be broken."""
    whole = machine(node="whole")

    assert (whole.mode, whole.resource, whole.other_resource) == (NodeMode.NATIVE, GPU, SGPU)
    assert [card.shares for card in whole.cards] == [1] * 8
    assert [card.healthy for card in whole.cards] == [True] * 7 + [False]
    assert [card.zone for card in whole.cards] == [1] * 4 + [2] * 4
    assert [card.numa for card in whole.cards] == [0] * 4 + [1] * 4


def test_all_other_nodes_simulate_the_star() -> None:
    """Nodes are alike but for the UUIDs of their GPUs."""
    one, other = machine(node="n1"), machine(node="n2")

    assert (one.mode, one.resource, one.other_resource) == (NodeMode.SGPU, SGPU, GPU)
    assert [(card.model, card.memory, card.shares) for card in one.cards] == [
        ("C500", 65536, 16)
    ] * 2
    assert not {card.uuid for card in one.cards} & {card.uuid for card in other.cards}


@pytest.mark.parametrize("text", [FLEET, "nodes: 7", "nodes: [{name: other, model: A30}]"])
def test_other_nodes_are_left_to_the_simulation_of_nvidia(text: str) -> None:
    """Also where the file is malformed or has no entry, which that simulation says."""
    assert metax_machine(text, node="nvidia") is None


HOSTILE = [
    ("gpus: [{mode: sgpu}, {mode: native}]", "modes native, sgpu", "one mode for all GPUs"),
    ("gpus: [{mode: sgpu}, {mode: hami-core}]", "modes hami-core, sgpu", "one mode for all"),
    ("gpus: [{mode: native}, {mode: mps}]", "modes mps, native", "one mode for all"),
    ("mode: sgpu, busy: [{gpu: 0, memory: 10}]", "busy GPUs found", "entries come from"),
    ("mode: sgpu, foreign: [{gpu: 0, memory: 10}]", "foreign memory found", "does not tell"),
    ("mode: native, foreign: [{gpu: 0, memory: 10}]", "foreign memory found", "does not tell"),
    ("mode: native, slots: 2", "slots: 2", "1 in mode native"),
    ("mode: native, memory: 65535", "memory: 65535 MiB", "a multiple of 1024"),
    ("mode: native, memory: 16777216", "memory: 16777216 MiB", "up to 9999 GiB"),
    ("mode: native, model: MetaX C500", 'model: "MetaX C500"', "the value of a label"),
    ("mode: native, model: C500-", 'model: "C500-"', "the value of a label"),
    (f"mode: native, model: {'C' * 64}", "model: ", "the value of a label"),
    ('mode: native, model: "C500\\n"', "model: ", "the value of a label"),
    ('mode: sgpu, model: "C\\u00e9"', "model: ", "1 to 128 printable"),
    (f"mode: sgpu, model: {'C' * 129}", "model: ", "1 to 128 printable"),
    (
        "gpus: [{mode: native}, {mode: native, model: C600}]",
        "several kinds",
        "one model and memory",
    ),
    ("gpus: [{mode: native}, {mode: native, memory: 1024}]", "several kinds", "one model"),
]


@pytest.mark.parametrize(("entry", "what", "accepted"), HOSTILE)
def test_an_entry_that_no_metax_node_can_be_is_refused(
    entry: str, what: str, *, accepted: str, tmp_path: Path
) -> None:
    """The message has the file, the place, the value and what would be accepted."""
    named = {"model": "C500", "memory": "65536"}
    given = yaml.safe_load(f"{{{entry}}}").keys()
    common = "".join(f", {key}: {value}" for key, value in named.items() if key not in given)
    file = tmp_path / "fleet.yaml"
    file.write_text(f"nodes: [{{name: n{common}, {entry}}}]", encoding="utf-8")

    assert isinstance(metax_machine(file.read_text(encoding="utf-8"), node="n"), Rejected)
    with pytest.raises(FleetError) as refused:
        simulated_metax(file, node="n")

    message = str(refused.value)
    assert message.startswith(f"{file}: nodes.n.")
    assert what in message
    assert accepted in message


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("mode: SGPU", "mode"),
        ("mode: sgpu, memory: 0", "memory"),
        ("mode: sgpu, slots: 1001", "slots"),
        ("mode: sgpu, gpus: 65", "gpus"),
        ("mode: sgpu, gpus: -1", "gpus"),
        ("mode: sgpu, unhealthy: [1]", "unhealthy"),
        ("mode: sgpu, idle: [{gpu: 0, profile: 1g, start: 0}]", "idle"),
        ("mode: [sgpu]", "mode"),
        ("mode: sgpu, memory: 1e99", "memory"),
        ("mode: sgpu, zone: 3", "zone"),
    ],
)
def test_a_malformed_entry_is_refused_with_its_place(
    entry: str, message: str, tmp_path: Path
) -> None:
    """By the one reader of fleet files, whichever simulation the node would have run."""
    file = tmp_path / "fleet.yaml"
    memory = "" if "memory" in entry else ", memory: 65536"
    file.write_text(f"nodes: [{{name: n, model: C500{memory}, {entry}}}]")

    assert simulated_metax(file, node="n") is None
    with pytest.raises(FleetError, match=rf"nodes\[0\]\.?.*{message}"):
        simulated_driver(file, node="n", boot="b", state=tmp_path / "state")


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_refused(content: bytes | None, tmp_path: Path) -> None:
    """It is missing, or no UTF-8."""
    file = tmp_path / "fleet.yaml"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(FleetError, match="cannot be read"):
        simulated_metax(file, node="n")
