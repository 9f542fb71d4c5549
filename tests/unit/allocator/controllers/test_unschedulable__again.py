"""Pods that wait are looked at again where no change of the cluster would have told of room."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from allocator.cluster.assumed_pods import EXPECTED_FOR, AssumedPods
from allocator.controllers.unschedulable import FIRST_RETRY, WRITTEN_AFTER, UnschedulableController
from allocator.extender.filter import filter_nodes
from allocator.extender.index import Index
from allocator.extender.pod import BINDING_PRIORITY, SchedulingPod
from allocator.scheduling.unschedulable import UnschedulablePod
from tests.builders.model import T4, gpu, node
from tests.fakes.kube_clock import FakeClock
from tests.unit.allocator.attendance import (
    CIRCUMSTANCES,
    FULL,
    FULL_GRANT,
    ROOMY,
    Scene,
    index_of,
    waiting_pod,
)


@dataclass(slots=True)
class Crowd:
    """A small cluster whose one free GPU is in question, and a pod that waits for it."""

    scene: Scene = field(default_factory=lambda: Scene(index=index_of(ROOMY, FULL)))
    known: dict[str, SchedulingPod] = field(default_factory=dict)
    underway: AssumedPods = field(init=False)
    bare: Index = field(init=False)

    def __post_init__(self) -> None:
        self.underway = AssumedPods(self.scene.time.clock())
        self.bare = self.scene.index
        self.known["u"] = waiting_pod()

    def refused(self) -> list[str]:
        """Ask about the pod, and leave it to the attendant; return the nodes it is hinted at."""
        one, names = waiting_pod(), ("roomy", "full")
        self.scene.index = self._index()
        obstacles = filter_nodes(self.scene.index, one, names, context=CIRCUMSTANCES).failures
        assert obstacles.keys() == set(names)
        self.scene.attendant.enqueue(UnschedulablePod(one, names, obstacles))
        asyncio.run(self._run())
        return self.scene.nodes

    async def _run(self) -> None:
        running = asyncio.create_task(self.scene.attendant.run())
        for _ in range(1000):  # far more than it sleeps within a minute
            await asyncio.sleep(0)
            self.scene.index = self._index()
        running.cancel()

    def sleep(self, instead: Callable[[float], Awaitable[None]]) -> None:
        """Have something happen while the attendant sleeps."""
        clock = replace(self.scene.time.clock(), sleep=instead)
        scene = self.scene
        scene.attendant = UnschedulableController(
            scene,
            scene,
            index=lambda: scene.index,
            context_of=lambda _: CIRCUMSTANCES,
            clock=clock,
        )

    def _index(self) -> Index:
        return self.underway.with_assumed(replace(self.bare, pods=self.known))


def test_who_was_crowded_out_hears_when_nobody_came() -> None:
    """A pod that was expected and never came stirs no scheduler: its going is no change."""
    crowd = Crowd()
    crowd.underway.expect(waiting_pod("other"), "roomy")

    assert crowd.refused() == ["roomy"]
    assert EXPECTED_FOR < sum(crowd.scene.time.slept) < 2 * EXPECTED_FOR + 2 * WRITTEN_AFTER


def test_who_is_still_crowded_out_is_looked_at_again() -> None:
    """As long as others are on their way: here another bind takes its time, and fails."""
    crowd = Crowd()
    first = replace(waiting_pod("other"), nominated="roomy", priority=BINDING_PRIORITY)
    crowd.underway.begin(first)

    async def fail_later(seconds: float) -> None:
        await FakeClock.sleep(crowd.scene.time, seconds)
        if crowd.scene.time.now > 1000 + 3 * FIRST_RETRY:
            crowd.underway.end(first, promised=False)

    crowd.sleep(fail_later)

    assert crowd.refused() == ["roomy"]
    assert sum(crowd.scene.time.slept) > 3 * FIRST_RETRY


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"node": "roomy"}, id="bound"),
        pytest.param({"over": True}, id="over"),
        pytest.param({"deleting": True}, id="leaving"),
        pytest.param(None, id="gone"),
    ],
)
def test_who_waits_no_more_is_left_alone(change: Mapping[str, Any] | None) -> None:
    """It found its node, or has gone, before anybody looked again."""
    crowd = Crowd()
    crowd.known = {} if change is None else {"u": replace(waiting_pod(), **change)}
    crowd.underway.expect(waiting_pod("other"), "roomy")

    assert crowd.refused() == []


def test_a_watch_that_was_behind_costs_no_pod_its_turn() -> None:
    """What frees room wakes schedulers at once; who is asked then may not have heard of it."""
    crowd = Crowd()
    roomy, crowd.bare = crowd.bare, index_of(FULL, node("roomy", gpu(T4, grants=[FULL_GRANT])))

    async def hear_later(seconds: float) -> None:
        await FakeClock.sleep(crowd.scene.time, seconds)
        if crowd.scene.time.now > 1020:
            crowd.bare = roomy

    crowd.sleep(hear_later)

    assert crowd.refused() == ["roomy"]


def test_who_fits_nowhere_is_left_to_the_scheduler_in_the_end() -> None:
    """Each look is later than the one before, and then there are none."""
    crowd = Crowd()
    crowd.bare = index_of(FULL)
    crowd.bare = index_of(FULL, node("roomy", gpu(T4, grants=[FULL_GRANT])))

    assert crowd.refused() == []
    assert crowd.scene.time.now == pytest.approx(1000 + WRITTEN_AFTER + 13 * FIRST_RETRY)
