"""The slot map: what is drawn is what is there, and the table says the same."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.model.request import Mode
from allocator.model.units import MiB
from console.pages.fleet.slot_map import WIDTH, drawings, slot_table, tenants_of
from console.pages.parts.visible import ANOTHER
from console.records.query import EVERYTHING, Scope
from tests.builders.gpunodes import entry, ledger
from tests.builders.model import A100_40, T4, gpu, mig_grant, node, placed, soft_grant

STRANGER = Scope(namespaces=frozenset({"b"}), cluster=True)


def test_mig_slots_are_where_the_instances_are() -> None:
    """Busy, idle and free slots cover the GPU without a gap, each with its words."""
    made = node("n", gpu(A100_40, mode=Mode.MIG, instances=[placed("2g.10gb", 2)]))
    book = ledger(made, [entry("p", mig_grant("3g.20gb", 4, gpu="GPU-n-0"))])
    [drawing] = drawings(book.node.gpus[0], tenants_of(book, book.node.gpus[0], EVERYTHING))

    assert [(box.state, box.label) for box in drawing.boxes] == [
        ("free", "slot 0: free"),
        ("free", "slot 1: free"),
        ("idle", "slots 2 to 3: 2g.10gb, idle"),
        ("busy", "slots 4 to 7: 3g.20gb, held by team-a/p"),
    ]
    edges = [(box.x, box.x + box.width + 1) for box in drawing.boxes]
    assert [end for _, end in edges] == [begin for begin, _ in edges[1:]] + [WIDTH]
    rows = slot_table(book.node.gpus[0], tenants_of(book, book.node.gpus[0], EVERYTHING)).rows
    assert [[cell.exact for cell in row[:6]] for row in rows] == [
        ["a", "team-a/p", "main", "3g.20gb", 4, 4],
        [None, "idle", None, "2g.10gb", 2, 2],
    ]


def test_shares_are_bars_of_memory_and_of_compute() -> None:
    """With what is foreign and what is free."""
    made = node("n", replace(gpu(T4), foreign=MiB(2000)))
    book = ledger(made, [entry("p", soft_grant(8000, 60, gpu="GPU-n-0"))])
    one = book.node.gpus[0]
    memory, compute = drawings(one, tenants_of(book, one, EVERYTHING))

    labels = [box.label for box in memory.boxes]
    assert labels == ["8,000 MiB, held by team-a/p", "2,000 MiB foreign", "5,360 MiB free"]
    assert sum(box.width for box in memory.boxes) == pytest.approx(WIDTH, abs=0.1)
    assert [box.label for box in compute.boxes] == ["60 %, held by team-a/p", "40 % free"]


def test_without_a_share_of_compute_there_is_no_bar_of_it() -> None:
    """A pod without a limit may use all, so nothing is called free."""
    book = ledger(node("n", gpu(T4)), [entry("p", soft_grant(8000, gpu="GPU-n-0"))])
    one = book.node.gpus[0]

    assert len(list(drawings(one, tenants_of(book, one, EVERYTHING)))) == 1


def test_a_stranger_has_no_name() -> None:
    """Neither in the drawing nor in the table."""
    book = ledger(node("n", gpu(T4)), [entry("p", soft_grant(8000, gpu="GPU-n-0"))])
    one = book.node.gpus[0]
    tenants = tenants_of(book, one, STRANGER)

    texts = [box.label for drawing in drawings(one, tenants) for box in drawing.boxes]
    cells = [cell.text for row in slot_table(one, tenants).rows for cell in row]
    assert f"8,000 MiB, held by {ANOTHER}" in texts
    assert ANOTHER in cells
    assert not any("team-a" in text for text in texts + cells)


@given(st.lists(st.integers(0, 40_000), max_size=6), st.integers(0, 40_000))
def test_a_bar_is_never_wider_than_its_drawing(amounts: list[int], foreign: int) -> None:
    """Even if more is promised than there is."""
    made = node("n", replace(gpu(T4), foreign=MiB(foreign)))
    grants = [entry(f"p{n}", soft_grant(amount, gpu="GPU-n-0")) for n, amount in enumerate(amounts)]
    book = ledger(made, grants)
    one = book.node.gpus[0]

    for drawing in drawings(one, tenants_of(book, one, EVERYTHING)):
        assert all(box.x >= 0 and box.x + box.width <= WIDTH + 0.1 for box in drawing.boxes)
