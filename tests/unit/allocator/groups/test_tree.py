"""The tree of supernodes, read from an answer that nobody vouches for."""

import json
from typing import Any

import pytest

from allocator.groups.tree import (
    LARGEST,
    MOST_DOMAINS,
    MOST_NODES,
    MOST_PROBLEMS,
    Tier,
    TreeError,
    decode_tree,
)
from tests.builders.supernodes import node_group

SAMPLE = node_group(
    {
        "switchbox-sample1": {
            "dragonfly-sample1": ("node-sample1", "node-sample2"),
            "dragonfly-sample2": ("node-sample3", "node-sample4"),
        }
    }
)


def names(value: object) -> dict[str, tuple[str, ...]]:
    """Return the nodes of each domain that is read."""
    return {one.name: one.nodes for one in decode_tree(json.dumps(value)).tree.domains}


def group(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 -- any JSON
    nodes = [{"name": name, "kind": "node", "status": "Ready"} for name in ("n1", "n2")]
    return {"name": "df", "kind": "dragonfly", "child": nodes, "status": "Ready", **fields}


def test_the_published_sample_is_read_whole() -> None:
    """Two dragonflies of two nodes in one switchbox; each node knows the closer one first."""
    decoded = decode_tree(json.dumps(SAMPLE))
    assert decoded.problems == ()
    assert [(one.name, one.tier) for one in decoded.tree.domains] == [
        ("dragonfly-sample1", Tier.DRAGONFLY),
        ("dragonfly-sample2", Tier.DRAGONFLY),
        ("switchbox-sample1", Tier.SWITCHBOX),
    ]
    around = decoded.tree.around["node-sample3"]
    assert [one.name for one in around] == ["dragonfly-sample2", "switchbox-sample1"]
    assert around[1].nodes == ("node-sample1", "node-sample2", "node-sample3", "node-sample4")
    assert around[1].parts == ("dragonfly-sample1", "dragonfly-sample2")


@pytest.mark.parametrize("unready", ["node-sample1", "dragonfly-sample1", "switchbox-sample1"])
def test_only_what_is_ready_is_a_domain_or_in_one(unready: str) -> None:
    """A dragonfly that is not takes its nodes along; a switchbox does not."""
    decoded = decode_tree(
        json.dumps(
            node_group(
                {"switchbox-sample1": {"dragonfly-sample1": ("node-sample1", "n2")}},
                unready={unready},
            )
        )
    )
    domains = {one.name: one.nodes for one in decoded.tree.domains}
    assert unready not in domains
    assert ("node-sample1" in decoded.tree.around) == (unready == "switchbox-sample1")


@pytest.mark.parametrize(
    "hostile",
    [
        "",
        "null",
        "{}",
        '"switchbox"',
        "[",
        "[" * 100_000,
        '[{"name": "a"}',
        "\ud800",
        '{"items": []}',
        "NaN",
        " " * (LARGEST + 1),
        json.dumps([{"child": [{"child": [[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]}]}]),
    ],
)
def test_what_is_no_tree_at_all_is_an_error(hostile: str) -> None:
    """The last good tree then stays in force."""
    with pytest.raises(TreeError):
        decode_tree(hostile)


@pytest.mark.parametrize(
    "hostile",
    [
        None,
        7,
        "df",
        [],
        group(name=None),
        group(name="../../secrets"),
        group(name="UPPER"),
        group(name="a" * 254),
        group(name="a\nb"),
        group(kind="rack"),
        group(kind=None),
        group(kind=["dragonfly"]),
        group(kind="node"),
        group(child=None),
        group(child={"0": "n1"}),
        group(child="n1"),
        group(status=None),
        group(status=True),
        group(status="ready"),
        group(child=[group(name="inner")]),
    ],
)
def test_a_part_that_cannot_be_read_leaves_out_nothing_else(hostile: object) -> None:
    """What stands beside it is read all the same."""
    good = group(name="good", child=[{"name": "n9", "kind": "node", "status": "Ready"}])
    found = names([hostile, good])
    assert found.pop("good") == ("n9",)
    assert found in ({}, {"df": ()})


def test_a_node_is_in_the_first_group_that_has_it() -> None:
    """Else its GPUs would count as room twice."""
    found = names([group(), group(name="df2")])
    assert found == {"df": ("n1", "n2"), "df2": ()}


def test_a_group_of_a_name_that_is_taken_is_left_out() -> None:
    """The first one stays."""
    other = [{"name": "n7", "kind": "node", "status": "Ready"}]
    assert names([group(), group(child=other)]) == {"df": ("n1", "n2")}


def test_a_tree_without_end_is_read_up_to_a_bound() -> None:
    """Nodes, groups and problems each have one."""
    children = [
        {"name": f"n{number}", "kind": "node", "status": "Ready"}
        for number in range(MOST_NODES + 5)
    ]
    decoded = decode_tree(json.dumps([group(child=children)]))
    assert len(decoded.tree.around) == MOST_NODES
    many = [group(name=f"df{number}", child=[]) for number in range(MOST_DOMAINS + 50)]
    decoded = decode_tree(json.dumps(many))
    assert len(decoded.tree.domains) == MOST_DOMAINS
    assert len(decoded.problems) == MOST_PROBLEMS


def test_problems_name_the_place_and_quote_the_value() -> None:
    """No control character of the answer reaches a terminal."""
    decoded = decode_tree(json.dumps([group(child=[group(name="a\x1b[2J")])]))
    assert [problem.path for problem in decoded.problems] == ["[0].child[0].name"]
    assert "\x1b" not in str(decoded.problems[0])
