"""Records of controllers: stamped, without what is unknown."""

from datetime import UTC, datetime

from allocator.audit.lines import line_of
from allocator.audit.record import Component, ReleasedRecord
from allocator.audit.record_source import RecordSource
from allocator.audit.record_writer import RecordWriter
from tests.harness.records import KeptRecords, strict_record

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def test_what_is_unknown_is_absent() -> None:
    """What is known to be empty stays."""
    kept = KeptRecords()
    writer = RecordWriter(
        sink=kept, source=RecordSource(Component.WEBHOOK, instance="i"), now=lambda: NOON
    )

    writer.write("released", {"why": "over", "node": None, "since": "", "containers": []})

    (record,) = kept
    assert "node" not in record
    assert (record["since"], record["instance"]) == ("", "i")
    read = strict_record(line_of(record) or b"")
    assert isinstance(read, ReleasedRecord)
    assert read.why == "over"


def test_a_record_of_content_keeps_its_identifier() -> None:
    """So that a store has it once."""
    kept = KeptRecords()
    writer = RecordWriter(sink=kept, source=RecordSource(Component.WEBHOOK), now=lambda: NOON)

    for _ in range(2):
        writer.write("snapshot", {"content_digest": "d", "content": {}}, record_id="f" * 32)

    assert [record["id"] for record in kept] == ["f" * 32] * 2
