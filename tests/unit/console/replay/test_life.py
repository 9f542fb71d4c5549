"""The replay of a decision as it is shown."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from allocator.audit.record import AnyRecord, SettingsRecord, SnapshotRecord
from allocator.model.request import Mode
from allocator.replay.request_codec import RecordedRequest
from allocator.report.terminal_lines import Tone, plain_text, printed_lines
from console.records.rows import StoredRecord
from console.replay.life import (
    ReplayedLife,
    ReplaySource,
    replay_lines,
    replayed_life,
    terminal_lines,
)
from console.replay.outcome import DifferentDecision, NotReplayable, SameDecision
from tests.builders.audit import VERSION, Bound, Recorded, recorded_admission, recorded_bind
from tests.builders.gpunodes import gpu_node
from tests.builders.hostile_text import HOSTILE_TEXTS
from tests.builders.model import T4, ask, nodes_of, pod, snapshot
from tests.unit.console.sites import machine, site

HEAD = "decided again on its own snapshot: different"
ASKED = RecordedRequest(request=pod(ask(4000)))
THERE = nodes_of(1, T4, name="gpu-b")
ADMITTED = recorded_admission(ASKED, snapshot(THERE))
BOUND = recorded_bind(Bound(asked=replace(ASKED, final=Mode.HAMI_CORE), node=THERE))


def source(*found: Recorded, version: str = VERSION) -> ReplaySource:
    settings: Mapping[str, SettingsRecord] = {
        one.settings.content_digest: one.settings for one in found
    }
    snapshots: Mapping[str, SnapshotRecord] = {
        one.snapshot.content_digest: one.snapshot for one in found
    }
    return ReplaySource(settings=settings.get, snapshot=snapshots.get, version=version)


def life(*records: AnyRecord | None) -> tuple[StoredRecord, ...]:
    return tuple(StoredRecord(record=record) for record in records if record is not None)


def test_a_life_is_replayed_as_a_whole() -> None:
    """Admission and bind come out again, and the request is decided on the cluster of today."""
    cluster = site([gpu_node(THERE)], [machine("gpu-b")])

    view = replayed_life(
        life(ADMITTED.admission, BOUND.bind), source(ADMITTED, BOUND), site=cluster
    )

    assert isinstance(view.admission, SameDecision)
    assert isinstance(view.bind, SameDecision)
    assert [(line.label, line.text, line.tone) for line in replay_lines(view)] == [
        ("Admission", "decided again on its own snapshot: the same", Tone.GOOD),
        ("Bind", "decided again on its own snapshot: the same", Tone.GOOD),
        ("Today", "decided as then; fits now", Tone.GOOD),
    ]


def test_an_empty_life_has_nothing_to_replay() -> None:
    """A page shows no verdict where there was no decision."""
    view = replayed_life((), source(ADMITTED), site=site())

    assert view == ReplayedLife()
    assert list(replay_lines(view)) == []


def test_the_record_that_keeps_its_request_is_replayed() -> None:
    """The validating pass has a shorter record, which is the later one."""
    assert ADMITTED.admission is not None
    later = msgspec.structs.replace(ADMITTED.admission, step="validate", asked={})

    view = replayed_life(life(ADMITTED.admission, later), source(ADMITTED))
    only = replayed_life(life(later), source(ADMITTED))

    assert isinstance(view.admission, SameDecision)
    assert isinstance(only.admission, NotReplayable)


def test_a_difference_names_the_fields_and_the_versions() -> None:
    """A reader sees what differs, and whether the program has changed since."""
    assert ADMITTED.admission is not None
    other = msgspec.structs.replace(ADMITTED.admission, rule="so", version="1.0.0")
    same_version = msgspec.structs.replace(other, version=VERSION)

    by_version = replayed_life(life(other), source(ADMITTED))
    unexplained = replayed_life(life(same_version), source(ADMITTED))

    assert isinstance(by_version.admission, DifferentDecision)
    assert [line.text for line in replay_lines(by_version)] == [
        f"{HEAD}; version 1.0.0 decided then, version 1.2.3 now",
        'recorded "so", now "no other mode can serve it here"',
    ]
    first = next(iter(replay_lines(unexplained)))
    assert first.text.endswith("different, though version 1.2.3 decided both times")


def test_a_terminal_obeys_no_record() -> None:
    """What was recorded is shown, cut and without what would steer a terminal."""
    assert ADMITTED.admission is not None
    for text in HOSTILE_TEXTS.values():
        hostile = msgspec.structs.replace(ADMITTED.admission, rule=text * 50, version=text)
        view = replayed_life(life(hostile), source(ADMITTED))

        assert all(line.text.isprintable() for line in replay_lines(view))
        printed = [plain_text(line) for line in printed_lines(terminal_lines(view))]

        assert printed
        assert all(line.isprintable() for line in printed)
