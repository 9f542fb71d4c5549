"""Simulated fleets: a fleet file is a node's hardware, or is refused with a remedy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.driver.simulated_fleet import simulated_device, simulated_node
from agent.driver.simulated_machine import State, devices
from allocator.catalog.boards import MODELS
from allocator.config.fleet_file import load_fleet
from allocator.model.problem import Loaded, Rejected

FLEET = """
nodes:
- name: trainer
  gpus: [{model: A100-SXM4-80GB, mode: mig, count: 2}, {model: Tesla T4, count: 2}]
  idle: [{gpu: 1, profile: 3g.40gb, start: 4}]
  foreign: [{gpu: 2, memory: 500}]
  unhealthy: [3]
- name: "*"
  model: H200
  memory: 100000
"""

MEDIA = """
nodes:
- {name: w, model: RTX PRO 6000 Blackwell Server Edition, mode: mig, idle: [
    {gpu: 0, profile: 1g.24gb+me.all, start: 0}, {gpu: 0, profile: 1g.24gb, start: 3}]}
"""
LATER = ("H100", "H800", "H20", "B200", "B300", "RTX PRO", " L4", "Ada", "4090", "5090")


def load_node(text: str, node: str) -> State:
    loaded = simulated_node(text, node=node, boot="boot-1")
    assert isinstance(loaded, Loaded), str(loaded)
    return loaded.value


def test_a_node_plays_the_entry_of_its_name() -> None:
    """Mode, instances, foreign memory and health are as the file says; sockets are halves."""
    state = load_node(FLEET, "trainer")

    assert [g.mig is not None and g.mig.current for g in state.gpus] == [True, True, False, False]
    assert [len(g.instances) for g in state.gpus] == [0, 1, 0, 0]
    (instance,) = state.gpus[1].instances
    assert (instance.profile, instance.start) == (9, 4)
    assert instance.uuid is not None
    assert [[p.memory for p in g.processes] for g in state.gpus] == [[], [], [500], []]
    assert [g.faulty for g in state.gpus] == [False, False, False, True]
    assert [g.chip.numa for g in state.gpus] == [0, 0, 1, 1]
    first, second = state.gpus[0].chip, state.gpus[1].chip
    assert (first.links, second.links) == ((second.uuid,), (first.uuid,))
    assert state.gpus[2].chip.links == ()


def test_foreign_processes_are_nobody_on_this_computer() -> None:
    """Linux numbers processes up to 2 ** 22."""
    (process,) = load_node(FLEET, "trainer").gpus[2].processes

    assert process.pid > 2**22


def test_every_other_node_plays_the_star_with_uuids_of_its_own() -> None:
    """Nodes are alike but for UUIDs, which are those that plans on that node's file have."""
    first, other = load_node(FLEET, "worker-1"), load_node(FLEET, "worker-2")
    planned = load_fleet(FLEET.replace('"*"', "worker-1"))

    assert [d.memory for d in devices(first)] == [d.memory for d in devices(other)] == [100000]
    assert first.gpus[0].chip.uuid != other.gpus[0].chip.uuid
    assert isinstance(planned, Loaded)
    assert planned.value[-1].gpus[0].uuid == first.gpus[0].chip.uuid


@pytest.mark.parametrize(
    ("text", "place", "remedy"),
    [
        (
            "nodes: [{name: other, model: A30}]",
            "nodes: no entry for node 'w'",
            "the file has other",
        ),
        (
            "nodes: [{name: w, model: A30, busy: [{gpu: 0, memory: 5}]}]",
            "nodes.w.busy",
            "idle or foreign",
        ),
        (
            MEDIA,
            "nodes.w.idle: no free engines for profile 14",
            "fit on the GPU together",
        ),
        ("nodes: [{name: w, model: A300}]", "nodes[0].model", "A30"),
        ("nodes: [{name: w, model: Tesla T4, mode: mig}]", "nodes[0].mode", "hami-core"),
        ("", "document", "a mapping"),
        ("nodes: [", "fleet", "one YAML or JSON document"),
    ],
    ids=["no-entry", "busy", "engines", "model", "mode", "empty", "cut-off"],
)
def test_what_cannot_be_played_is_refused(text: str, place: str, remedy: str) -> None:
    """The message names the place and what would be accepted."""
    rejected = simulated_node(text, node="w", boot="boot-1")

    assert isinstance(rejected, Rejected)
    assert place in str(rejected)
    assert remedy in str(rejected)


@given(name=st.sampled_from(sorted(MODELS)), index=st.integers(0, 63))
def test_any_product_can_be_played(name: str, index: int) -> None:
    """Every model of the catalogue makes a GPU with a place on the bus of its own."""
    device = simulated_device(MODELS[name], node="n", index=index, mig=True)
    other = simulated_device(MODELS[name], node="n", index=(index + 1) % 64)

    assert (device.mig is None) == (MODELS[name].board is None)
    assert device.pci != other.pci
    assert device.uuid != other.uuid
    assert device.ampere_or_older != any(word in name for word in LATER)
