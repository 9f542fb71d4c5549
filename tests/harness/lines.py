"""Lines of records, as programs write them."""

from allocator.audit.line_buffer import LineBuffer
from allocator.delivery.batch_text import BatchText


def lines_of(data: bytes) -> LineBuffer:
    """Return the lines of *data*, each of which ends with a line break."""
    lines = LineBuffer()
    for line in data.splitlines(keepends=True):
        assert lines.add(line)
    return lines


def batch_of(*lines: bytes) -> BatchText:
    """Return a batch of *lines*, which end with a line break."""
    batch = BatchText()
    for line in lines:
        batch.add(line, None)
    return batch
