"""Events are counted, bounded and never in anyone's way."""

import asyncio
from dataclasses import replace

import pytest

from kube.events import (
    BUDGET,
    MOST_SERIES,
    MOST_WAITING,
    REFRESH,
    Event,
    Recorder,
    Reference,
    Severity,
    printable,
)
from tests.fakes.api_objects import Objects, parsed
from tests.fakes.api_rules import Json
from tests.fakes.direct_store import DirectStore, Line
from tests.fakes.kube_clock import FakeClock

POD = Reference(api_version="v1", kind="Pod", name="train-0", namespace="team-a", uid="6a7d")
NODE = Reference(api_version="v1", kind="Node", name="gpu-1")


def event(note: str = "GPU 1: Xid 79", *, regarding: Reference = POD) -> Event:
    return Event(
        regarding=regarding,
        severity=Severity.WARNING,
        reason="GpuUnhealthy",
        action="Check",
        note=note,
    )


class Desk:
    """A recorder with its store and its time."""

    def __init__(self) -> None:
        self.time = FakeClock()
        self.store = DirectStore(Objects(), self.time)
        self.recorder = Recorder(
            self.store,
            controller="vgpu-admission.io/agent",
            instance="agent-x7k",
            clock=self.time.clock(),
        )

    def write(self, one: Event) -> None:
        asyncio.run(self.recorder.write(one))

    def written(self, namespace: str = "team-a") -> list[Json]:
        return self.store.objects.at(
            parsed(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
        )


def test_an_event_says_who_about_what() -> None:
    """All that the API requires is there, and the server would take it."""
    desk = Desk()

    desk.write(event())

    [written] = desk.written()
    assert written["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "train-0",
        "namespace": "team-a",
        "uid": "6a7d",
    }
    assert written["note"] == "GPU 1: Xid 79"
    assert written["eventTime"] == "2026-11-21T17:16:40.000000Z"
    assert written["reportingController"] == "vgpu-admission.io/agent"
    assert written["metadata"]["name"].startswith("train-0.")


def test_cluster_scoped_objects_are_reported_in_default() -> None:
    """The API refuses an Event about a Node in any other namespace."""
    desk = Desk()

    desk.write(event(regarding=NODE))

    assert [e["regarding"]["kind"] for e in desk.written("default")] == ["Node"]


def test_a_repeated_sentence_is_counted() -> None:
    """Within ten minutes the same sentence is one Event whose count is written once a minute."""
    desk = Desk()

    for _ in range(7):
        desk.write(event())
        desk.time.now += 20

    [written] = desk.written()
    assert written["series"]["count"] == 7
    assert desk.recorder.tally.written == 3


def test_after_ten_minutes_it_is_news_again() -> None:
    """A sentence not heard for the whole window gets a new Event."""
    desk = Desk()

    desk.write(event())
    desk.time.now += 601
    desk.write(event())

    assert len(desk.written()) == 2


def test_a_flood_of_sentences_is_bounded() -> None:
    """One object and reason gets ten writes in ten minutes, whatever its sentences say."""
    desk = Desk()

    for n in range(50):
        desk.write(event(f"short by {n} MiB"))
        desk.time.now += 0.1
    desk.write(event(regarding=NODE))

    assert len(desk.written()) == BUDGET
    assert desk.recorder.tally.dropped == 50 - BUDGET
    assert len(desk.written("default")) == 1


def test_an_event_that_expired_is_written_anew() -> None:
    """When the server has forgotten the Event, the next repetition makes a new one."""
    desk = Desk()
    desk.write(event())
    [first] = desk.written()
    path = f"/apis/events.k8s.io/v1/namespaces/team-a/events/{first['metadata']['name']}"
    desk.store.objects.delete(parsed(path))
    desk.time.now += 61

    desk.write(event())

    assert len(desk.written()) == 1


def test_failure_is_counted_and_forgotten() -> None:
    """A server that cannot be reached costs the Event, not the caller."""
    desk = Desk()
    desk.store.line = Line.REQUEST_LOST

    desk.write(event())

    assert desk.recorder.tally.failed == 1
    assert desk.written() == []


def test_a_full_queue_drops() -> None:
    """Recording never waits: beyond the queue an Event is dropped and counted."""
    desk = Desk()

    for _ in range(MOST_WAITING + 3):
        desk.recorder.record(event())

    assert desk.recorder.tally.dropped == 3


def test_recorded_events_are_written_by_run() -> None:
    """The task writes in the order of recording."""
    desk = Desk()

    async def record_and_run() -> None:
        running = asyncio.create_task(desk.recorder.run())
        desk.recorder.record(event())
        desk.recorder.record(event(regarding=NODE))
        for _ in range(20):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(record_and_run())

    assert len(desk.written()) == len(desk.written("default")) == 1


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        pytest.param("7x1g.5gb → 2x3g.20gb", "7x1g.5gb → 2x3g.20gb", id="plain"),
        pytest.param("a\nb\x1b[31m", "a\\nb\\x1b[31m", id="control-characters"),
        pytest.param("a\u202eb", "a\\u202eb", id="direction-override"),
        pytest.param("\ud800", "\\ud800", id="lone-surrogate"),
        pytest.param("é" * 600, "é" * 510 + "…", id="cut-between-characters"),
        pytest.param("x" * 1024, "x" * 1024, id="just-fits"),
    ],
)
def test_notes(note: str, expected: str) -> None:
    """A note cannot move a terminal's cursor and never exceeds 1,024 bytes."""
    text = printable(note)

    assert text == expected
    assert len(text.encode()) <= 1024


def test_what_is_remembered_of_series_is_bounded() -> None:
    """Sentences about ever new objects do not fill the memory."""
    desk = Desk()

    async def write_all() -> None:
        for number in range(MOST_SERIES + 20):
            pod = Reference(api_version="v1", kind="Pod", name=f"p-{number}", namespace="team-a")
            await desk.recorder.write(event(regarding=pod))

    asyncio.run(write_all())

    assert desk.recorder.tally.written == MOST_SERIES + 20
    assert len(desk.recorder._series) == MOST_SERIES  # noqa: SLF001 -- what grows is inside
    assert len(desk.recorder._spent) == MOST_SERIES  # noqa: SLF001 -- the same


def test_events_of_one_series_are_one_whatever_their_notes() -> None:
    """The first note is told; what names another series, or none, is another Event."""
    desk = Desk()

    for number in range(5):
        desk.write(replace(event(f"try {number}"), series="short"))
    desk.time.now += REFRESH
    desk.write(replace(event("try 5"), series="long"))
    desk.time.now += 1
    desk.write(event("try 6"))
    desk.write(replace(event("try 7"), series="short"))

    counts = {one["note"]: one.get("series", {}).get("count", 1) for one in desk.written()}
    assert counts == {"try 0": 6, "try 5": 1, "try 6": 1}
