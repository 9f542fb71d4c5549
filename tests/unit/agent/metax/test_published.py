"""Published marks: what a simulated node writes is what the control plane reads from MetaX's."""

import pytest

from agent.metax.machine import MetaxMachine
from agent.metax.published import NO_MARKS, node_marks
from allocator.families.inventory_facts import inventory_facts
from allocator.families.metax import read_inventory
from allocator.model.gpu import Node
from tests.unit.agent.metax.test_machine import machine


def inventory(found: MetaxMachine, taken: frozenset[str] = frozenset()) -> Node:
    """Return the node as the control plane reads it, which must find no fault with it."""
    marks = node_marks(found, taken)
    amounts = {found.resource: str(sum(card.shares for card in found.cards if card.healthy))}
    facts = inventory_facts(
        "whole",
        {key: text for key, text in marks.annotations.items() if text is not None},
        labels={key: text for key, text in marks.labels.items() if text is not None},
        capacity={found.resource: str(sum(card.shares for card in found.cards))},
        allocatable=amounts,
    )
    assert facts is not None
    read = read_inventory(facts)
    assert read.problems == ()
    assert read.node is not None
    return read.node


def test_shares_are_read_as_they_are_simulated() -> None:
    """UUID, model, memory, shares, health and links of every card."""
    found = machine()

    gpus = inventory(found).gpus

    assert [(g.uuid, g.model, g.memory, g.slots, g.healthy) for g in gpus] == [
        (c.uuid, c.model, c.memory, c.shares, c.healthy) for c in found.cards
    ]
    assert gpus[0].links == (gpus[1].uuid,)


def test_whole_gpus_are_read_as_they_are_simulated() -> None:
    """Their number, model and memory; the broken one is no part of any set of linked GPUs."""
    node = inventory(machine(node="whole"))

    assert [(g.model, g.memory, g.healthy) for g in node.gpus] == [
        *[("C500", 65536, True)] * 7,
        ("C500", 65536, False),
    ]
    assert [count for count, _ in node.link_scores] == list(range(1, 8))


def test_gpus_that_are_taken_are_worth_nothing() -> None:
    """With GPU 0 in use its ring has no set of four any more."""
    found = machine(node="whole")

    node = inventory(found, frozenset({found.cards[0].uuid}))

    assert dict(node.link_scores)[4] < 540
    assert max(count for count, _ in node.link_losses) == 6


@pytest.mark.parametrize("node", ["whole", "any"])
def test_marks_that_are_there_are_not_written_again(node: str) -> None:
    """Those of the other mode are removed, and nobody else's are touched."""
    marks = node_marks(machine(node=node), ())
    written = {key: text for key, text in marks.annotations.items() if text is not None}
    labels = {key: text for key, text in marks.labels.items() if text is not None}

    assert marks.changes({**written, "other": "1"}, {**labels, "other": "1"}) == {}
    assert NO_MARKS.changes({"other": "1"}, {"other": "1"}) == {}
    assert NO_MARKS.changes(written, labels) == {
        part: gone
        for part, gone in (
            ("annotations", dict.fromkeys(written)),
            ("labels", dict.fromkeys(labels)),
        )
        if gone
    }


@pytest.mark.parametrize(("node", "other"), [("whole", "any"), ("any", "whole")])
def test_a_mode_removes_the_marks_of_the_other(node: str, other: str) -> None:
    """A native node that still named cards would look like one that shares them."""
    old, new = (node_marks(machine(node=name), ()) for name in (other, node))
    parts = [
        ({key: text for key, text in part.items() if text is not None}, wanted)
        for part, wanted in ((old.annotations, new.annotations), (old.labels, new.labels))
    ]

    changes = new.changes(parts[0][0], parts[1][0])

    for name, (before, wanted) in zip(("annotations", "labels"), parts, strict=True):
        patch = changes.get(name, {})
        assert isinstance(patch, dict)
        after = {key: text for key, text in (before | patch).items() if text is not None}
        assert after == {key: text for key, text in wanted.items() if text is not None}
