"""Nominees: who is waiting for which node, whatever order a watch tells of it in."""

from collections.abc import Mapping
from dataclasses import replace

from allocator.core.index import Indexer
from allocator.core.pods import Pod
from allocator.shell.nominees import Nominees

FIRST = Pod(uid="a", namespace="t", name="a", priority=5, nominated="n0", created="2026-01-01")
OTHERS = (
    replace(FIRST, uid="b", priority=9),
    replace(FIRST, uid="c", created="2025-01-01"),
    replace(FIRST, uid="d", node="n0"),
    replace(FIRST, uid="e", deleting=True),
    replace(FIRST, uid="f", over=True),
    replace(FIRST, uid="g", nominated=""),
    replace(FIRST, uid="h", nominated="n1"),
)
EMPTY = Indexer().index(version="1", complete=True)


def waiting(nominees: Nominees) -> Mapping[str, list[str]]:
    index = nominees.beside(EMPTY)
    return {node: [pod.uid for pod in found] for node, found in index.nominations.items()}


def test_only_who_waits_for_a_node_counts() -> None:
    """Bound and ending pods wait for none; the most important comes first, then the oldest."""
    nominees = Nominees()
    pods = {pod.uid: pod for pod in (FIRST, *OTHERS)}

    nominees.know(pods, pods.keys())

    assert waiting(nominees) == {"n0": ["b", "c", "a"], "n1": ["h"]}
    assert nominees.beside(EMPTY).pods == pods


def test_changes_are_followed() -> None:
    """A pod that is bound, renominated or gone leaves its place."""
    nominees = Nominees()
    pods = {pod.uid: pod for pod in (FIRST, *OTHERS)}
    nominees.know(pods, pods.keys())

    moved = replace(FIRST, nominated="n1")
    bound = replace(OTHERS[0], node="n0")
    left = {**pods, "a": moved, "b": bound}
    del left["c"]
    nominees.know(left, {"a", "b", "c"})

    assert waiting(nominees) == {"n1": ["a", "h"]}
