"""Pods that no node took: they hear why, once, and are shown nodes that nobody asked about."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from allocator.controllers.unschedulable import (
    MOST_HINTS,
    MOST_WAITING,
    RECORD_LIFETIME,
    WRITTEN_AFTER,
)
from allocator.extender.filter import filter_nodes
from allocator.extender.pod import SchedulingPod
from allocator.extender.reasons import NO_INVENTORY, FailureReason
from allocator.ledger.assign import PodClaim
from allocator.scheduling.unschedulable import UnschedulablePod
from kube.errors import ApiError
from tests.builders.model import T4, ask, gpu, node, pod, soft_grant
from tests.unit.allocator.attendance import (
    CIRCUMSTANCES,
    FULL,
    ROOMY,
    SAMPLE,
    Scene,
    index_of,
    waiting_pod,
)


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
    scene.time.now += RECORD_LIFETIME + 1
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
    assert "3000 MiB on one GPU; the closest has 360 free" in scene.notes[0]
    assert scene.events[0].regarding.uid == "u"


def test_another_reason_is_recorded_and_other_numbers_are_not() -> None:
    """That it began to wait once for each pod, whichever replica was asked."""
    scene, other = (Scene(index=index_of(FULL)) for _ in range(2))
    other.look_after("full")

    scene.look_after("full")
    scene.index = index_of(node("full", gpu(T4, grants=[soft_grant(10, 90)])))
    for cores in (50, 60):
        scene.look_after("full", request=pod(ask(3000, cores=cores)))

    begun, changed = scene.records.of("waiting")
    assert [begun["state"], changed["state"]] == ["begun", "changed"]
    assert [begun["reason"], changed["reason"]] == ["GpuMemoryShort", "GpuCoresShort"]
    assert "the closest has 360 free" in begun["text"]
    assert (begun["pod_uid"], begun["id"]) == ("u", other.records[0]["id"])


def test_nothing_is_told_where_nothing_is_known() -> None:
    """Nodes without inventory have no numbers."""
    scene = Scene()
    wanted = PodClaim(uid="u", request=pod(ask(3000)))
    waiting = UnschedulablePod(
        SchedulingPod(uid="u", namespace="team-a", name="p", claim=wanted),
        ["x"],
        {"x": NO_INVENTORY},
    )

    asyncio.run(scene.attendant.handle(waiting))

    assert scene.notes == []


def test_a_hint_comes_after_what_the_scheduler_writes() -> None:
    """Which would wipe it out; asked about again, the pod is looked after once, that much later."""
    scene = Scene()
    wanted = PodClaim(uid="u", request=pod(ask(3000)))
    one = SchedulingPod(uid="u", namespace="team-a", name="p", claim=wanted)
    obstacles = filter_nodes(scene.index, one, SAMPLE, context=CIRCUMSTANCES).failures

    async def twice() -> None:
        began = scene.time.now
        scene.attendant.enqueue(UnschedulablePod(one, SAMPLE, obstacles))
        scene.time.now += WRITTEN_AFTER / 2
        scene.attendant.enqueue(UnschedulablePod(one, SAMPLE, obstacles))
        running = asyncio.create_task(scene.attendant.run())
        async with asyncio.timeout(60):
            while not scene.hints:  # noqa: ASYNC110 -- looked at from outside
                await asyncio.sleep(0)
        running.cancel()
        assert sum(scene.time.slept) == WRITTEN_AFTER
        assert scene.time.now >= began + 1.5 * WRITTEN_AFTER

    asyncio.run(twice())

    assert scene.nodes == ["roomy"]


def test_one_pod_too_many_is_dropped() -> None:
    """A flood of pods fills no memory, and is looked after as far as it was noted."""
    scene = Scene(index=index_of(FULL))
    short: dict[str, FailureReason] = {"full": FailureReason("insufficient GPU memory")}

    async def flood() -> None:
        for number in range(MOST_WAITING + 10):
            wanted = PodClaim(uid=f"u{number}", request=pod(ask(3000)))
            one = SchedulingPod(uid=f"u{number}", namespace="team-a", name="p", claim=wanted)
            scene.attendant.enqueue(UnschedulablePod(one, ["full"], short))
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
def test_what_makes_no_path_is_not_looked_after(one: SchedulingPod) -> None:
    """Anybody may ask, and would have us write where they like."""
    scene = Scene()

    async def attended() -> None:
        scene.attendant.enqueue(UnschedulablePod(one, SAMPLE, {}))
        running = asyncio.create_task(scene.attendant.run())
        for _ in range(100):
            await asyncio.sleep(0)
        running.cancel()

    asyncio.run(attended())

    assert (scene.hints, scene.events, scene.time.slept) == ([], [], [])
