"""Nodes as records keep them."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given

from allocator.catalog.vocabularies import Vocabulary
from allocator.mig.geometry import Geometries
from allocator.model.demand import Demand
from allocator.model.gpu import Node
from allocator.model.request import Mode
from allocator.replay.content import ReplayContentError, canonical_json
from allocator.replay.node_codec import (
    decode_node,
    demand_fields,
    demand_of_fields,
    encode_node,
    live_rows,
    taken_positions,
    taken_rows,
    with_rows,
)
from tests.builders.model import A100_40, gpu, mig_grant, node, nodes_of, soft_grant
from tests.builders.recorded import DEMANDS, GEOMETRIES, WORDS, nodes

THERE = nodes_of(1, A100_40, mode=Mode.MIG)
PLAIN = encode_node(THERE)


@given(nodes(), GEOMETRIES, WORDS)
def test_a_node_reads_back(
    there: Node, geometries: Geometries | None, words: tuple[Vocabulary, ...]
) -> None:
    """Content and rows together are the node that was decided on."""
    content = encode_node(there, geometries=geometries, vocabularies=words)

    read = decode_node(msgspec.json.decode(canonical_json(content)))

    rows, names = taken_rows(there), taken_positions(there)
    assert with_rows(read.node, rows, live_rows(there), positions=names) == there
    assert read.vocabularies == words


@given(nodes(), GEOMETRIES)
def test_geometries_restrict_as_before(there: Node, geometries: Geometries | None) -> None:
    """What is left out of the content is about GPUs that the node does not have."""
    read = decode_node(encode_node(there, geometries=geometries)).geometries

    assert (read is None) == (geometries is None)
    for one in there.gpus:
        if read is not None and geometries is not None and one.board is not None:
            assert read.entry(one.model) == geometries.entry(one.model)


@given(nodes(), DEMANDS)
def test_demand_reads_back_exactly(there: Node, demand: Demand) -> None:
    """Slots are chosen by these numbers, so none is rounded."""
    fields = msgspec.json.decode(msgspec.json.encode(demand_fields(demand, there)))

    read = demand_of_fields(fields).boards

    boards = {one.board.name for one in there.gpus if one.board is not None}
    assert dict(read) == {name: demand.boards[name] for name in boards & demand.boards.keys()}


def test_pods_do_not_change_the_content() -> None:
    """Binds to one node share one content; what is taken is in each record."""
    busy = node(
        "n0",
        gpu(A100_40, mode=Mode.MIG, grants=[mig_grant("1g.5gb", 3)]),
        gpu(A100_40, index=1, grants=[soft_grant(100, 20)]),
    )
    idle = replace(busy, gpus=tuple(replace(one, grants=()) for one in busy.gpus))

    assert encode_node(busy) == encode_node(idle)
    assert taken_rows(busy) == ((0, 4864, 0, 3, 0), (1, 100, 20, -1, -1))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"gpus": ["x"]}, r"status.gpus\[0\]"),
        ({"boards": [{}]}, r"status.boards\[0\]"),
        ({"node": "n\n0"}, "matching regex"),
        ({"geometries": [[["A100"], [["g", [["1g.5gb", -1, 1]]]]]]}, ">= 0"),
        ({"more": 1}, "unknown field `more`"),
    ],
)
def test_what_cannot_be_read_is_named(change: dict[str, Any], why: str) -> None:
    """An error says which field is wrong."""
    with pytest.raises(ReplayContentError, match=why):
        decode_node({**PLAIN, **change})


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ((1, 1, 0, -1, -1), "names GPU 1 of n0; accepted: 0 to 0"),
        ((-1, 1, 0, -1, -1), "names GPU -1 of n0"),
        ((0, 1, 0, 8, 1), "names profile 1 at slot 8"),
        ((0, 1, 0, 0, 99), "names profile 99 at slot 0"),
    ],
)
def test_a_row_that_the_node_has_no_place_for_is_named(
    row: tuple[int, int, int, int, int], why: str
) -> None:
    """A record that does not go with its content is not replayed as if it did."""
    with pytest.raises(ReplayContentError, match=why):
        with_rows(decode_node(PLAIN).node, [row])


def test_positions_must_be_as_many_as_grants() -> None:
    """A name is never given to another grant than it was of."""
    with pytest.raises(ReplayContentError, match="1 positions for 2 grants"):
        with_rows(THERE, [(0, 1, 0, -1, -1), (0, 1, 0, -1, -1)], positions=["group1-0"])
