"""What waits for the delivery is bounded, and in batches that can be sent."""

from allocator.audit.line_buffer import LineBuffer, LineEnd, whole_line
from allocator.delivery.batch_queue import LARGEST_RECORD, BatchQueue
from allocator.delivery.batch_text import MOST_RECORDS, read_batch
from tests.harness.lines import lines_of

END = LineEnd(b'"rest":1', b"}\n")


def alike(count: int, end: LineEnd = END) -> LineBuffer:
    """Return lines which all have *end*."""
    lines = LineBuffer()
    for number in range(count):
        assert lines.add_parts(b'{"number":%d,' % number, end)
    return lines


def test_lines_are_gathered_into_batches() -> None:
    """A batch that is full is followed by another; both are whole by themselves."""
    queue = BatchQueue()
    assert queue.add(alike(MOST_RECORDS - 2)) == 0
    assert queue.add(lines_of(b"{}\n")) == 0
    assert (queue.batches, queue.records) == (1, MOST_RECORDS - 1)
    assert queue.add(alike(3)) == 0
    assert (queue.batches, queue.records) == (2, MOST_RECORDS + 2)

    first, second = queue.take()

    assert (first.records, second.records) == (MOST_RECORDS, 2)
    assert [whole_line(*line) for line in read_batch(second.text())] == [
        b'{"number":1,"rest":1}\n',
        b'{"number":2,"rest":1}\n',
    ]
    assert (queue.batches, queue.records, queue.take()) == (0, 0, [])


def test_a_record_that_is_too_large_is_dropped() -> None:
    """Its end counts, too."""
    queue = BatchQueue()
    largest = b"x" * (LARGEST_RECORD - 1) + b"\n"

    assert queue.add(lines_of(b"x" + largest + largest + b"{}\n")) == 1
    assert queue.add(alike(1, LineEnd(b"", largest))) == 1
    assert queue.records == 2


def test_what_finds_no_room_is_dropped() -> None:
    """An end that is there already takes none; after all was taken, there is room again."""
    queue = BatchQueue(10_000)
    end = LineEnd(b"x" * 4000, b"\n")

    assert queue.add(alike(100, end)) == 0
    assert queue.add(alike(1, LineEnd(b"x" * 4500, b"\n"))) == 1
    dropped = queue.add(alike(300, end))
    assert dropped == 400 - queue.records > 1
    (batch,) = queue.take()
    assert 5000 < len(batch.text()) <= 10_000
    assert queue.add(alike(100, end)) == 0
