"""The demo's day: decisions that the real webhook made."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from importlib import resources

from allocator.audit.lines import line_of
from allocator.audit.record import (
    AdmissionRecord,
    AdmissionVerdict,
    AllocatedRecord,
    AnyRecord,
    BindRecord,
    BindVerdict,
    HealthRecord,
    ReleasedRecord,
    SettingsRecord,
    SnapshotRecord,
    StartedRecord,
    ViolationRecord,
    WaitingRecord,
    WorkloadRecord,
    parse_record,
)
from allocator.config.fleet_file import load_fleet
from allocator.model.problem import Loaded
from console.replay.outcome import NotReplayable, SameDecision
from console.replay.replay import replay_admission, replay_bind
from demo.day import Day, DayResult
from demo.story import shipped_story

END = datetime(2026, 11, 24, 23, 0, tzinfo=UTC)
VERSION = "1.2.3"


def told() -> DayResult:
    text = (resources.files("webhook") / "samples" / "fleet.yaml").read_text(encoding="utf-8")
    fleet = load_fleet(text)
    assert isinstance(fleet, Loaded)
    return asyncio.run(Day(shipped_story(), fleet.value, end=END, version=VERSION).run())


@cache
def day() -> tuple[DayResult, tuple[AnyRecord, ...]]:
    result = told()
    return result, tuple(parse_record(line_of(record) or b"") for record in result.records)


def test_each_day_is_the_same() -> None:
    """Nothing depends on chance or on the clock of the machine, except how long answers took."""
    _, first = day()
    again = [parse_record(line_of(record) or b"") for record in told().records]

    assert [(one.id, one.at, one.pod, one.digest) for one in first] == [
        (one.id, one.at, one.pod, one.digest) for one in again
    ]


def test_a_day_has_all_that_its_story_is_about() -> None:
    """People are admitted, refused for many reasons, wait, are bound and released."""
    _, records = day()
    refusals = Counter(
        one.reason
        for one in records
        if isinstance(one, AdmissionRecord) and one.outcome is AdmissionVerdict.REFUSED
    )
    binds = Counter(one.outcome for one in records if isinstance(one, BindRecord))

    assert refusals.keys() == {
        "GpuMemoryShort",
        "IsolationTooWeak",
        "ModeUnavailable",
        "ModelUnavailable",
        "PrivilegedContainer",
        "ReservedAnnotation",
        "ReservedVariable",
    }
    assert refusals["GpuMemoryShort"] > 5  # a controller tries again
    assert binds[BindVerdict.PROMISED] > 80
    assert binds[BindVerdict.REFUSED] > 5
    kinds = Counter(type(one) for one in records)
    assert kinds[ReleasedRecord] > 50
    assert kinds[AllocatedRecord] == kinds[StartedRecord] > 80
    assert kinds[WaitingRecord] > 10
    assert kinds[WorkloadRecord] > 30
    assert kinds[SettingsRecord] == 2
    assert kinds[ViolationRecord] == kinds[HealthRecord] == 1


def test_times_are_within_the_day_and_in_order() -> None:
    """The clock of the handlers is that of the story."""
    _, records = day()
    times = [datetime.fromisoformat(one.at) for one in records]

    assert times == sorted(times)
    assert (END - times[0]).total_seconds() <= 24 * 3600
    assert times[-1] <= END


def test_the_cluster_at_the_end_is_what_the_records_say() -> None:
    """Each entry is of a pod that was bound and not released, and the ledgers are in order."""
    result, records = day()
    bound = {
        one.pod_uid
        for one in records
        if isinstance(one, BindRecord) and one.outcome is BindVerdict.PROMISED
    }
    released = {one.pod_uid for one in records if isinstance(one, ReleasedRecord)}
    ledgers = result.cluster.ledgers().values()

    assert {entry.uid for ledger in ledgers for entry in ledger.entries} == bound - released
    assert [problem for ledger in ledgers for problem in ledger.problems] == []
    assert any(pod["status"]["phase"] == "Pending" for pod in result.cluster.pods.values())


def test_every_decision_of_the_day_comes_out_again() -> None:
    """Records as they are written hold all that decides; what cannot be replayed says why."""
    _, records = day()
    settings = {one.content_digest: one for one in records if isinstance(one, SettingsRecord)}
    snapshots = {one.content_digest: one for one in records if isinstance(one, SnapshotRecord)}
    outcomes: Counter[str] = Counter()
    for one in records:
        if isinstance(one, AdmissionRecord) and one.step == "mutate":
            again = replay_admission(
                one, settings.get(one.settings), snapshots.get(one.snapshot), version=VERSION
            )
        elif isinstance(one, BindRecord):
            again = replay_bind(
                one, settings.get(one.settings), snapshots.get(one.snapshot), version=VERSION
            )
        else:
            continue
        assert isinstance(again, SameDecision | NotReplayable), (one, again)
        outcomes[type(again).__name__] += 1

    assert outcomes["SameDecision"] > 200
    assert outcomes["NotReplayable"] < 10
