"""Lines of records: bounded whatever a tenant wrote, and readable by the schema."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from allocator.audit.lines import LARGEST, LARGEST_CONTENT, line_of
from allocator.audit.record import AdmissionRecord, SnapshotRecord, parse_record
from allocator.model.untrusted import is_plain
from tests.harness.records import known_record, strict_record

ID = "0" * 32
BASE: dict[str, Any] = {
    "kind": "admission",
    "id": ID,
    "schema": 1,
    "at": "2026-05-04T12:00:00.000+00:00",
    "component": "webhook",
    "step": "mutate",
    "outcome": "refused",
}
TEXTS = st.text(max_size=30) | st.builds(
    lambda text, times: text * times,
    st.sampled_from(
        ["a", '"', "\\", "\x00", "\x1b[2J", "\u202e", "\ud800", "\U0001f600", "</script>"]
    ),
    st.integers(0, 40_000),
)
FINDINGS = st.lists(st.fixed_dictionaries({"reason": TEXTS, "text": TEXTS, "field": TEXTS}))
OWNERS = st.lists(st.fixed_dictionaries({"kind": TEXTS, "name": TEXTS, "uid": TEXTS}))
ASKED = st.lists(
    st.fixed_dictionaries({"name": TEXTS, "count": st.integers(-(2**70), 2**70)}), max_size=200
)
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "namespace": TEXTS,
        "pod": TEXTS,
        "user": TEXTS,
        "digest": TEXTS,
        "groups": st.lists(TEXTS, max_size=300),
        "warnings": st.lists(TEXTS, max_size=100),
        "findings": FINDINGS,
        "owners": OWNERS,
        "constraints": st.lists(TEXTS),
        "rule": TEXTS,
        "asked": st.dictionaries(TEXTS, st.lists(TEXTS)),
        "changes": st.lists(
            st.fixed_dictionaries({"op": TEXTS, "path": TEXTS, "value": st.lists(TEXTS)})
        ),
        "costs_per_mille": st.dictionaries(TEXTS, st.integers(-(2**31), 2**31), max_size=200),
    },
)


@given(fields=RECORDS)
@example(fields=dict.fromkeys(("namespace", "pod", "user", "rule"), "😀" * 50000))
@example(fields={"groups": ["\ud800" * 100_000] * 1000, "asked": {"a": ["b" * 17_000]}})
def test_no_record_is_too_large_to_store(fields: dict[str, Any]) -> None:
    """Whatever its texts are; it keeps who wrote it, when, and what was decided."""
    line = line_of({**BASE, **fields})

    assert line is not None
    assert len(line) <= LARGEST
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    record = parse_record(line)
    assert isinstance(record, AdmissionRecord)
    assert (record.id, record.at, record.outcome) == (ID, BASE["at"], "refused")


@given(ASKED)
def test_amounts_that_are_too_large_are_cut(asked: list[dict[str, Any]]) -> None:
    """A number that JSON cannot hold costs the record only that number."""
    line = line_of({**BASE, "asked": {"containers": asked}})

    assert line is not None
    known_record(line)


def test_a_usual_record_is_kept_as_it_is() -> None:
    """Nothing is cut of what fits."""
    fields = {**BASE, "warnings": ["w" * 1000] * 10, "asked": {"containers": [["main", 0]]}}
    line = line_of(fields)

    assert line is not None
    record = strict_record(line)
    assert isinstance(record, AdmissionRecord)
    assert not record.cut
    assert (list(record.warnings), record.asked) == (fields["warnings"], fields["asked"])


def test_what_replay_needs_goes_first() -> None:
    """Of a record that is too large, what people read stays."""
    changes = [{"op": "add", "path": "/spec/x", "value": "v" * 5000}]
    line = line_of({**BASE, "asked": {"a": "b" * 12_000}, "changes": changes, "rule": "why"})

    assert line is not None
    record = parse_record(line)
    assert isinstance(record, AdmissionRecord)
    assert (record.cut, record.asked, record.rule) == (True, {}, "why")
    assert len(record.changes) == 1


def test_what_is_cut_is_plain() -> None:
    """A terminal obeys nothing of it."""
    line = line_of({**BASE, "rule": "\x1b[2J\u202e" * 10_000, "user": "\ud800"})

    assert line is not None
    assert is_plain(line.decode().rstrip("\n"))


def test_snapshots_and_settings_are_whole_or_not_there() -> None:
    """A decision cannot be made again on half of what it rested on."""
    record = {
        **{name: BASE[name] for name in ("id", "schema", "at", "component")},
        "kind": "snapshot",
        "content_digest": "d",
    }
    large = line_of({**record, "content": {"kinds": ["k" * 100] * 1000}})

    assert large is not None
    found = strict_record(large)
    assert isinstance(found, SnapshotRecord)
    assert len(found.content["kinds"]) == 1000
    assert line_of({**record, "content": {"kinds": "k" * LARGEST_CONTENT}}) is None
