"""A node's topology maps are taken at their word where they can be read, and for nothing else."""

import json

import pytest

from allocator.metax.names import LOSSES_KEY, SCORES_KEY
from allocator.metax.topology_maps import LARGEST, TopologyMaps, topology_maps
from allocator.model.request import FillPolicy


def test_binpack_spares_the_links_that_are_left() -> None:
    """Of two nodes the one with the smaller loss is worth more for two GPUs (M10)."""
    first = topology_maps({LOSSES_KEY: '{"2":80}'}).value(2, FillPolicy.BINPACK)
    second = topology_maps({LOSSES_KEY: '{"2":400}'}).value(2, FillPolicy.BINPACK)

    assert first is not None
    assert second is not None
    assert first > second


def test_spread_takes_the_best_links_for_the_pod() -> None:
    """A node that says nothing has no value, so it beats none that does; in HAMi it would (M11)."""
    told = topology_maps({SCORES_KEY: '{"2":110}'})

    assert told.value(2, FillPolicy.SPREAD) == 110
    assert told.value(3, FillPolicy.SPREAD) is None
    assert told.value(2, FillPolicy.BINPACK) is None
    assert topology_maps({}).value(2, FillPolicy.SPREAD) is None


@pytest.mark.parametrize("key", [SCORES_KEY, LOSSES_KEY])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"0":1}',
        '{"01":1}',
        '{"+1":1}',
        '{"-1":1}',
        '{"1.0":1}',
        '{"65":1}',
        '{"x":1}',
        '{"":1}',
        '{"\u0661":1}',
        '{"1":-1}',
        '{"1":1.5}',
        '{"1":true}',
        '{"1":"10"}',
        '{"1":1000001}',
        '{"1":null}',
        '{"1":{"2":3}}',
        "{" * 5000,
        '{"1":' + "9" * 4200 + "}",
    ],
)
def test_a_malformed_map_says_nothing(key: str, text: str) -> None:
    """Half of a map would rank the node by what its writer did not mean."""
    maps = topology_maps({key: text})

    assert (maps.scores, maps.losses) == ({}, {})
    (problem,) = maps.problems
    assert str(problem).isprintable()
    assert len(str(problem)) < 512


def test_one_bad_map_spoils_no_other() -> None:
    """The two annotations are written apart."""
    maps = topology_maps({SCORES_KEY: '{"1":0,"2":110}', LOSSES_KEY: "x"})

    assert maps.scores == {1: 0, 2: 110}
    assert maps.losses == {}
    assert maps != TopologyMaps()


@pytest.mark.parametrize(
    "name", ["9" * 5000, "65", "064", "100", "\u0664", "1 ", " 1", "1.0", "1e1", "0x1", ""]
)
def test_a_number_of_gpus_is_plain_and_small(name: str) -> None:
    """Text of any length costs nothing, and is told in part."""
    maps = topology_maps({SCORES_KEY: json.dumps({name: 1})})

    assert maps.scores == {}
    [problem] = maps.problems
    assert len(str(problem)) < 1000


def test_numbers_up_to_their_limits_are_read() -> None:
    """64 GPUs, and a score of a million."""
    most = {"1": 0, "64": LARGEST}
    assert topology_maps({SCORES_KEY: json.dumps(most)}).scores == {1: 0, 64: LARGEST}
    assert topology_maps({SCORES_KEY: json.dumps({"1": LARGEST + 1})}).scores == {}


def test_a_map_has_as_many_characters_as_are_accepted() -> None:
    """A longer one is not read at all."""
    text = '{"2":1}'
    assert topology_maps({SCORES_KEY: text.ljust(4096)}).scores == {2: 1}
    assert topology_maps({SCORES_KEY: text.ljust(4097)}).scores == {}


def test_a_long_score_is_told_in_part() -> None:
    """Enough of it to find it."""
    [problem] = topology_maps({SCORES_KEY: json.dumps({"2": "x" * 3000})}).problems

    assert "x" * 64 in str(problem)
    assert "x" * 65 not in str(problem)
