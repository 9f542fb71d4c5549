"""Pods that no node took: they hear why, once, and are shown nodes that nobody asked about."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from allocator.core.choose import Terms
from allocator.core.commitment import Wanted
from allocator.core.index import Index, Indexer
from allocator.core.obstacles import NO_INVENTORY, Obstacle
from allocator.core.pods import FIRST, Pod
from allocator.core.steering import Circumstances, filtered
from allocator.core.waiting import LEAST_SAMPLE
from allocator.model.gpu import Node
from allocator.model.request import PodRequest
from allocator.shell.extender import Waiting
from allocator.shell.underway import EXPECTED, Underway
from allocator.shell.waiting import (
    AGAIN,
    MOST_HINTS,
    MOST_WAITING,
    SETTLED,
    WRITTEN,
    Attendant,
)
from kube.errors import ApiError, KubeError
from kube.events import Event
from tests.builders import T4, ask, gpu, node, pod, soft_grant
from tests.fakes.kube_clock import FakeClock

CIRCUMSTANCES = Circumstances(terms=Terms())
SAMPLE = [f"other-{i}" for i in range(LEAST_SAMPLE)]
ROOMY = node("roomy", gpu(T4))
FULL_GRANT = soft_grant(15000)
FULL = node("full", gpu(T4, grants=[FULL_GRANT]))


def index_of(*nodes: Node) -> Index:
    indexer = Indexer()
    for found in nodes:
        indexer.put(found)
    return indexer.index(version="1", complete=True)


@dataclass(slots=True)
class Scene:
    """One attendant, what it wrote and what it told."""

    index: Index = field(default_factory=lambda: index_of(ROOMY, FULL))
    error: KubeError | None = None
    hints: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    time: FakeClock = field(default_factory=FakeClock)
    attendant: Attendant = field(init=False)

    def __post_init__(self) -> None:
        self.attendant = Attendant(
            self,
            self,
            index=lambda: self.index,
            circumstances=lambda _: CIRCUMSTANCES,
            clock=self.time.clock(),
        )

    async def merge_patch(self, path: str, changes: Mapping[str, Any]) -> bytes:
        self.hints.append((path, changes))
        if self.error is not None:
            raise self.error
        return b"{}"

    def record(self, event: Event, /) -> None:
        self.events.append(event)

    def look_after(self, *names: str, request: PodRequest | None = None, uid: str = "u") -> None:
        wanted = Wanted(uid=uid, request=request or pod(ask(3000)))
        found = Pod(uid=uid, namespace="team-a", name="p", wanted=wanted)
        obstacles = filtered(self.index, found, names, circumstances=CIRCUMSTANCES).obstacles
        asyncio.run(self.attendant.look_after(Waiting(found, names, obstacles)))

    @property
    def nodes(self) -> list[str]:
        return [changes["status"]["nominatedNodeName"] for _, changes in self.hints]

    @property
    def notes(self) -> list[str]:
        return [event.note for event in self.events]


def test_a_node_outside_the_sample_is_named() -> None:
    """The scheduler looks at the nominated node first, and the uid makes it this very pod."""
    scene = Scene()

    scene.look_after(*SAMPLE)

    assert scene.hints == [
        (
            "/api/v1/namespaces/team-a/pods/p/status",
            {
                "metadata": {"uid": "u", "annotations": {"vgpu-admission.io/hint": "roomy"}},
                "status": {"nominatedNodeName": "roomy"},
            },
        )
    ]
    assert scene.notes == []


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(SAMPLE[:-1], id="it-has-seen-all"),
        pytest.param([*SAMPLE, "roomy"], id="it-has-asked"),
    ],
)
def test_no_hint_where_it_would_be_none(names: Sequence[str]) -> None:
    """A scheduler that asks about few nodes has no others; one it asked about is no news."""
    scene = Scene()

    scene.look_after(*[name for name in names if name != "roomy"], request=pod(ask(20000)))
    if "roomy" not in names:
        scene.look_after(*names)

    assert scene.hints == []


def test_hints_come_to_an_end() -> None:
    """A scheduler that does not follow has reasons of its own; later it is tried again."""
    scene = Scene(index=index_of(*(node(f"n{i}", gpu(T4)) for i in range(9))))

    for _ in range(9):
        scene.look_after(*SAMPLE)
    before = list(scene.nodes)
    scene.time.now += SETTLED + 1
    scene.look_after(*SAMPLE)

    assert len(before) == len(set(before)) == MOST_HINTS
    assert len(scene.nodes) == MOST_HINTS + 1


def test_the_only_node_is_named_again() -> None:
    """A hint may be wiped out by what its scheduler writes of the try before."""
    scene = Scene()

    for _ in range(MOST_HINTS + 1):
        scene.look_after(*SAMPLE)

    assert scene.nodes == ["roomy"] * MOST_HINTS


def test_without_the_right_nothing_is_tried_again() -> None:
    """The component grants it; an installation without it only tells."""
    scene = Scene(error=ApiError(403, "Forbidden", "no", place="x"))

    scene.look_after(*SAMPLE)
    scene.look_after(*SAMPLE)

    assert len(scene.hints) == 1


def test_a_failed_hint_is_given_anew() -> None:
    """An API server that is away for a moment is no reason to give up."""
    scene = Scene(
        index=index_of(ROOMY, node("also", gpu(T4))),
        error=ApiError(500, "InternalError", "no", place="x"),
    )

    scene.look_after(*SAMPLE)
    scene.look_after(*SAMPLE)

    assert scene.nodes == ["also", "roomy"]


def test_amounts_are_told_once() -> None:
    """A sentence with numbers, and a new one only when other obstacles have come up."""
    scene = Scene(index=index_of(FULL))

    scene.look_after("full")
    scene.look_after("full")
    scene.index = index_of(node("full", gpu(T4, grants=[soft_grant(10, 90)])))
    scene.look_after("full", request=pod(ask(3000, cores=50)))

    assert [note.partition(":")[0] for note in scene.notes] == ["GpuMemoryShort", "GpuCoresShort"]
    assert "3000 MiB on one GPU, but the closest GPU has 360 free" in scene.notes[0]
    assert scene.events[0].regarding.uid == "u"


def test_nothing_is_told_where_nothing_is_known() -> None:
    """Nodes without inventory have no numbers."""
    scene = Scene()
    wanted = Wanted(uid="u", request=pod(ask(3000)))
    waiting = Waiting(
        Pod(uid="u", namespace="team-a", name="p", wanted=wanted), ["x"], {"x": NO_INVENTORY}
    )

    asyncio.run(scene.attendant.look_after(waiting))

    assert scene.notes == []


def test_a_hint_comes_after_what_the_scheduler_writes() -> None:
    """Which would wipe it out; asked about again, the pod is looked after once, that much later."""
    scene = Scene()
    wanted = Wanted(uid="u", request=pod(ask(3000)))
    one = Pod(uid="u", namespace="team-a", name="p", wanted=wanted)
    obstacles = filtered(scene.index, one, SAMPLE, circumstances=CIRCUMSTANCES).obstacles

    async def twice() -> None:
        began = scene.time.now
        scene.attendant.attend(Waiting(one, SAMPLE, obstacles))
        scene.time.now += WRITTEN / 2
        scene.attendant.attend(Waiting(one, SAMPLE, obstacles))
        running = asyncio.create_task(scene.attendant.run())
        async with asyncio.timeout(60):
            while not scene.hints:  # noqa: ASYNC110 -- looked at from outside
                await asyncio.sleep(0)
        running.cancel()
        assert sum(scene.time.slept) == WRITTEN
        assert scene.time.now >= began + 1.5 * WRITTEN

    asyncio.run(twice())

    assert scene.nodes == ["roomy"]


def waiting_pod(uid: str = "u") -> Pod:
    wanted = Wanted(uid=uid, request=pod(ask(9000)))
    return Pod(uid=uid, namespace="team-a", name="p", wanted=wanted)


@dataclass(slots=True)
class Crowd:
    """A small cluster whose one free GPU is in question, and a pod that waits for it."""

    scene: Scene = field(default_factory=lambda: Scene(index=index_of(ROOMY, FULL)))
    known: dict[str, Pod] = field(default_factory=dict)
    underway: Underway = field(init=False)
    bare: Index = field(init=False)

    def __post_init__(self) -> None:
        self.underway = Underway(self.scene.time.clock())
        self.bare = self.scene.index
        self.known["u"] = waiting_pod()

    def refused(self) -> list[str]:
        """Ask about the pod, and leave it to the attendant; return the nodes it is hinted at."""
        one, names = waiting_pod(), ("roomy", "full")
        self.scene.index = self._index()
        obstacles = filtered(self.scene.index, one, names, circumstances=CIRCUMSTANCES).obstacles
        assert obstacles.keys() == set(names)
        self.scene.attendant.attend(Waiting(one, names, obstacles))
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
        scene.attendant = Attendant(
            scene,
            scene,
            index=lambda: scene.index,
            circumstances=lambda _: CIRCUMSTANCES,
            clock=clock,
        )

    def _index(self) -> Index:
        return self.underway.beside(replace(self.bare, pods=self.known))


def test_who_was_crowded_out_hears_when_nobody_came() -> None:
    """A pod that was expected and never came stirs no scheduler: its going is no change."""
    crowd = Crowd()
    crowd.underway.expect(waiting_pod("other"), "roomy")

    assert crowd.refused() == ["roomy"]
    assert EXPECTED < sum(crowd.scene.time.slept) < 2 * EXPECTED + 2 * WRITTEN


def test_who_is_still_crowded_out_is_looked_at_again() -> None:
    """As long as others are on their way: here another bind takes its time, and fails."""
    crowd = Crowd()
    first = replace(waiting_pod("other"), nominated="roomy", priority=FIRST)
    crowd.underway.begin(first)

    async def fail_later(seconds: float) -> None:
        await FakeClock.sleep(crowd.scene.time, seconds)
        if crowd.scene.time.now > 1000 + 3 * AGAIN:
            crowd.underway.end(first, promised=False)

    crowd.sleep(fail_later)

    assert crowd.refused() == ["roomy"]
    assert sum(crowd.scene.time.slept) > 3 * AGAIN


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
    assert crowd.scene.time.now == pytest.approx(1000 + WRITTEN + 13 * AGAIN)


def test_one_pod_too_many_is_dropped() -> None:
    """A flood of pods fills no memory, and is looked after as far as it was noted."""
    scene = Scene(index=index_of(FULL))
    short: dict[str, Obstacle] = {"full": Obstacle("GPU memory short")}

    async def flood() -> None:
        for number in range(MOST_WAITING + 10):
            wanted = Wanted(uid=f"u{number}", request=pod(ask(3000)))
            one = Pod(uid=f"u{number}", namespace="team-a", name="p", wanted=wanted)
            scene.attendant.attend(Waiting(one, ["full"], short))
        running = asyncio.create_task(scene.attendant.run())
        async with asyncio.timeout(60):
            while len(scene.events) < MOST_WAITING:  # noqa: ASYNC110 -- looked at from outside
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        running.cancel()

    asyncio.run(flood())

    assert len(scene.events) == MOST_WAITING


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(replace(waiting_pod(), namespace="../.."), id="namespace"),
        pytest.param(replace(waiting_pod(), name="p?dryRun=All#"), id="name"),
        pytest.param(replace(waiting_pod(), uid=""), id="uid"),
    ],
)
def test_what_makes_no_path_is_not_looked_after(one: Pod) -> None:
    """Anybody may ask, and would have us write where they like."""
    scene = Scene()

    async def attended() -> None:
        scene.attendant.attend(Waiting(one, SAMPLE, {}))
        running = asyncio.create_task(scene.attendant.run())
        for _ in range(100):
            await asyncio.sleep(0)
        running.cancel()

    asyncio.run(attended())

    assert (scene.hints, scene.events, scene.time.slept) == ([], [], [])
