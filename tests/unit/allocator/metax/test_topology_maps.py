"""A node's topology maps are taken at their word where they can be read, and for nothing else."""

import pytest

from allocator.metax.names import LOSSES_KEY, SCORES_KEY
from allocator.metax.topology_maps import TopologyMaps, topology_maps
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
