"""Nominees: who is waiting for which node, whatever order a watch tells of it in."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from allocator.cluster.nominated_pods import REMEMBERED_SECONDS, NominatedPods
from allocator.extender.index import IndexBuilder
from allocator.extender.pod import SchedulingPod
from tests.fakes.kube_clock import FakeClock

FIRST = SchedulingPod(
    uid="a", namespace="t", name="a", priority=5, nominated="n0", created="2026-01-01"
)
OTHERS = (
    replace(FIRST, uid="b", priority=9),
    replace(FIRST, uid="c", created="2025-01-01"),
    replace(FIRST, uid="d", node="n0"),
    replace(FIRST, uid="e", deleting=True),
    replace(FIRST, uid="f", over=True),
    replace(FIRST, uid="g", nominated=""),
    replace(FIRST, uid="h", nominated="n1"),
)
EMPTY = IndexBuilder().index(version="1", complete=True)


def tell(
    nominees: NominatedPods, pods: Mapping[str, SchedulingPod], touched: Collection[str]
) -> None:
    """Let *nominees* know what became of the pods *touched*."""
    nominees.update({uid: pods.get(uid) for uid in touched})


def waiting(nominees: NominatedPods) -> Mapping[str, list[str]]:
    index = nominees.with_nominations(EMPTY)
    return {
        node: [pod.uid for pod in nominations] for node, nominations in index.nominations.items()
    }


def test_only_who_waits_for_a_node_counts() -> None:
    """Bound and ending pods wait for none; the most important comes first, then the oldest."""
    nominees = NominatedPods()
    pods = {pod.uid: pod for pod in (FIRST, *OTHERS)}

    tell(nominees, pods, pods.keys())

    assert waiting(nominees) == {"n0": ["b", "c", "a"], "n1": ["h"]}
    assert nominees.with_nominations(EMPTY).pods == pods


def test_changes_are_followed() -> None:
    """A pod that is bound, renominated or gone leaves its place."""
    nominees = NominatedPods()
    pods = {pod.uid: pod for pod in (FIRST, *OTHERS)}
    tell(nominees, pods, pods.keys())

    moved = replace(FIRST, nominated="n1")
    bound = replace(OTHERS[0], node="n0")
    left = {**pods, "a": moved, "b": bound}
    del left["c"]
    tell(nominees, left, {"a", "b", "c"})

    assert waiting(nominees) == {"n1": ["a", "h"]}


HINTED = replace(FIRST, hinted=True)


def test_a_hint_claims_nothing() -> None:
    """A pod that we sent to a node may not suit it otherwise, and must keep nobody from it."""
    clock = FakeClock()
    nominees = NominatedPods(clock.clock())

    tell(nominees, {"a": HINTED}, {"a"})
    while_hinted = waiting(nominees)
    tell(nominees, {"a": replace(FIRST, nominated="")}, {"a"})

    assert (while_hinted, waiting(nominees)) == ({}, {})


def test_hints_are_known_to_who_gives_them() -> None:
    """One pod that is sent to a place is enough."""
    nominees = NominatedPods()
    pods = {"a": HINTED, "h": OTHERS[-1]}

    tell(nominees, pods, pods.keys())

    nominations = nominees.with_nominations(EMPTY, hinted=True).nominations
    assert waiting(nominees) == {"n1": ["h"]}
    assert {name: [pod.uid for pod in there] for name, there in nominations.items()} == {
        "n0": ["a"],
        "n1": ["h"],
    }


@pytest.mark.parametrize("first", [True, False], ids=["before-it-is-nominated", "after-that"])
@pytest.mark.parametrize(
    "leaving",
    [
        pytest.param({"deleting": True}, id="leaving"),
        pytest.param({"over": True}, id="over"),
        pytest.param(None, id="gone"),
    ],
)
def test_a_scheduler_that_makes_room_where_we_hinted_claims_it(
    leaving: Mapping[str, Any] | None, *, first: bool
) -> None:
    """Somebody less important leaves that node; the claim is remembered as any other is."""
    clock = FakeClock()
    nominees = NominatedPods(clock.clock())
    victim = SchedulingPod(uid="v", namespace="t", name="v", priority=1, node="n0")
    left = {} if leaving is None else {"v": replace(victim, **leaving)}
    waits = {"a": replace(FIRST, nominated="")}

    tell(nominees, {**waits, "v": victim}, {"a", "v"})
    if first:
        tell(nominees, {**waits, **left}, {"v"})
        tell(nominees, {"a": HINTED, **left}, {"a"})
    else:
        tell(nominees, {"a": HINTED, "v": victim}, {"a"})
        tell(nominees, {"a": HINTED, **left}, {"v"})
    claimed = waiting(nominees)
    tell(nominees, {"a": replace(HINTED, created="2026-01-01"), **left}, {"a"})
    touched = waiting(nominees)
    tell(nominees, {**waits, **left}, {"a"})
    remembered = waiting(nominees)
    clock.now += REMEMBERED_SECONDS + 1

    assert claimed == touched == remembered == {"n0": ["a"]}
    assert waiting(nominees) == {}


@pytest.mark.parametrize(
    "victim",
    [
        pytest.param(
            SchedulingPod(uid="v", namespace="t", name="v", priority=5, node="n0"), id="equal"
        ),
        pytest.param(
            SchedulingPod(uid="v", namespace="t", name="v", priority=1, node="n1"), id="elsewhere"
        ),
        pytest.param(SchedulingPod(uid="v", namespace="t", name="v", priority=1), id="never-bound"),
    ],
)
def test_who_leaves_otherwise_proves_no_claim(victim: SchedulingPod) -> None:
    """Nobody is evicted for a pod of the same importance, nor on other nodes."""
    nominees = NominatedPods()
    tell(nominees, {"a": HINTED, "v": victim}, {"a", "v"})

    tell(nominees, {"a": HINTED}, {"v"})

    assert waiting(nominees) == {}


def test_who_left_long_ago_proves_no_claim() -> None:
    """A hint that comes later has nothing to do with it."""
    clock = FakeClock()
    nominees = NominatedPods(clock.clock())
    victim = SchedulingPod(uid="v", namespace="t", name="v", priority=1, node="n0")
    tell(nominees, {"v": victim}, {"v"})
    tell(nominees, {}, {"v"})

    clock.now += REMEMBERED_SECONDS + 1
    tell(nominees, {"a": HINTED}, {"a"})

    assert waiting(nominees) == {}
