"""HyperNodes follow the tree, and those of other sources are nobody's business here."""

import json
from dataclasses import replace

from allocator.groups.hyper_nodes import HyperNode, changes, hyper_node_specs
from allocator.groups.tree import Tree, decode_tree
from tests.builders.supernodes import node_group

BOXES = {"sb1": {"df1": ("n1", "n2"), "df2": ("n3",)}}


def tree(*, unready: frozenset[str] = frozenset()) -> Tree:
    return decode_tree(json.dumps(node_group(BOXES, unready=unready))).tree


def there(of: Tree) -> list[HyperNode]:
    specs = hyper_node_specs(of)
    return [HyperNode(name=name, ours=True, spec=spec) for name, spec in specs.items()]


def test_a_dragonfly_has_nodes_and_a_switchbox_has_dragonflies() -> None:
    """Members are named exactly, and come before what contains them."""
    specs = hyper_node_specs(tree())
    assert list(specs) == ["df1", "df2", "sb1"]
    assert specs["df1"] == {
        "tier": 1,
        "tierName": "dragonfly",
        "members": [
            {"type": "Node", "selector": {"exactMatch": {"name": "n1"}}},
            {"type": "Node", "selector": {"exactMatch": {"name": "n2"}}},
        ],
    }
    names = [one["selector"]["exactMatch"]["name"] for one in specs["sb1"]["members"]]
    assert (specs["sb1"]["tier"], names) == (2, ["df1", "df2"])
    assert {one["type"] for one in specs["sb1"]["members"]} == {"HyperNode"}


def test_what_has_no_nodes_is_no_hyper_node() -> None:
    """Volcano refuses one without members."""
    specs = hyper_node_specs(tree(unready=frozenset({"n3"})))
    assert list(specs) == ["df1", "sb1"]
    assert len(specs["sb1"]["members"]) == 1
    assert hyper_node_specs(tree(unready=frozenset({"n1", "n2", "n3"}))) == {}


def test_what_is_as_it_should_be_is_not_written() -> None:
    """Not even to say so again."""
    plan = changes(hyper_node_specs(tree()), there(tree()))
    assert (plan.written, plan.deleted, plan.taken) == ({}, (), ())


def test_what_differs_is_written_and_what_is_gone_deleted() -> None:
    """What contains others is deleted first."""
    smaller = tree(unready=frozenset({"n1"}))
    assert list(changes(hyper_node_specs(smaller), there(tree())).written) == ["df1"]
    assert changes(hyper_node_specs(Tree()), there(tree())).deleted == ("sb1", "df1", "df2")


def test_what_another_source_made_is_left_alone() -> None:
    """A name that it has taken is told, and never taken over or deleted."""
    foreign = [replace(one, ours=False) for one in there(tree())]
    plan = changes(hyper_node_specs(tree()), foreign)
    assert (plan.written, plan.deleted) == ({}, ())
    assert plan.taken == ("df1", "df2", "sb1")
    assert changes({}, foreign).deleted == ()


def test_a_spec_that_somebody_spoiled_is_written_again() -> None:
    """Whatever it is now."""
    spoiled = [HyperNode(name="df1", ours=True, spec={"tier": "one", "members": None})]
    assert "df1" in changes(hyper_node_specs(tree()), spoiled).written
    assert changes({}, spoiled).deleted == ("df1",)
