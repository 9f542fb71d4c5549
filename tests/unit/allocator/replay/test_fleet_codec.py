"""Fleets as records keep them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given

from allocator.catalog.vocabularies import Vocabulary
from allocator.model.gpu import Snapshot
from allocator.model.request import Mode
from allocator.replay.content import ReplayContentError, canonical_json
from allocator.replay.fleet_codec import decode_fleet, encode_fleet
from tests.builders.model import A100_40, T4, nodes_of, snapshot
from tests.builders.recorded import FLEETS, WORDS

PLAIN = encode_fleet(snapshot(nodes_of(2, T4), nodes_of(8, A100_40, mode=Mode.MIG, name="n1")))


@given(FLEETS, WORDS)
def test_a_fleet_reads_back(fleet: Snapshot, words: tuple[Vocabulary, ...]) -> None:
    """Kinds come back with their numbers and in their order, words as they were configured."""
    content = encode_fleet(fleet, words)

    read = decode_fleet(msgspec.json.decode(canonical_json(content)))

    assert read.snapshot == fleet
    assert list(read.offers) == list(fleet.offers)
    assert read.vocabularies == words


def test_what_runs_on_a_fleet_does_not_change_its_content() -> None:
    """Decisions at CREATE share one content until kinds of GPU come or go."""
    one, two = nodes_of(2, T4), nodes_of(2, T4, name="n1")

    assert encode_fleet(snapshot(one)) == encode_fleet(snapshot(one, two))
    assert encode_fleet(snapshot(one)) != encode_fleet(snapshot(nodes_of(3, T4)))


def _changed_board(**change: object) -> dict[str, Any]:
    board = msgspec.json.decode(msgspec.json.encode(PLAIN["boards"][0]))
    return {"boards": [{**board, **change}]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kinds": [["T4", 1, "hami-core", 7, 1]]}, r"kinds\[0\] names board 7; accepted: below 1"),
        ({"kinds": [["T4", -1, "hami-core", None, 1]]}, ">= 0"),
        ({"kinds": [["T\x1b4", 1, "hami-core", None, 1]]}, "matching regex"),
        ({"boards": ["x"]}, r"boards\[0\]"),
        (_changed_board(slots=60), r"boards\[0\].slots: 60; accepted: at most 16"),
        (_changed_board(profiles=[]), r"boards\[0\].profiles"),
        ({"vocabularies": [{"name": "x"}]}, "vocabulary 'x' is not known"),
        ({"vocabularies": [{"name": "volcano", "memory_factor": 0}]}, ">= 1"),
        (
            {"vocabularies": [{"name": "volcano", "memory": "volcano.sh/vgpu-number"}]},
            "one name for two resources",
        ),
        ({"nodes": 1}, "unknown field `nodes`"),
    ],
)
def test_what_cannot_be_read_is_named(change: dict[str, Any], why: str) -> None:
    """An error says which field is wrong and what is accepted."""
    with pytest.raises(ReplayContentError, match=why):
        decode_fleet({**PLAIN, **change})
