"""BatchQueue: batches of records that wait for the delivery. Runs for every record."""

from typing import Final

from allocator.audit.line_buffer import LineBuffer, LineEnd, line_size
from allocator.delivery.batch_text import BatchText

QUEUE_LIMIT: Final = 16 * 1024 * 1024  # bytes of batches that wait for the thread
LARGEST_RECORD: Final = 1024 * 1024  # bytes


class BatchQueue:
    """Batches in their order; the last one grows. Bounded; whoever uses it holds a lock."""

    def __init__(self, limit: int = QUEUE_LIMIT) -> None:
        """Hold nothing, and never more than *limit* bytes."""
        self._limit = limit
        self._size = 0  # bytes
        self._batches: list[BatchText] = []
        self.records = 0

    @property
    def batches(self) -> int:
        """Return how many batches there are, the one that grows included."""
        return len(self._batches)

    def add(self, lines: LineBuffer) -> int:
        """Add *lines*; return how many were dropped, because they are too large or too many."""
        dropped = 0
        for start, end in lines.lines():
            if not self._add(start, end):
                dropped += 1
        return dropped

    def _add(self, start: bytes, end: LineEnd | None) -> bool:
        size = line_size(start, end)
        if size > LARGEST_RECORD or self._size + size > self._limit:
            return False
        if not self._batches:
            self._batches.append(BatchText())
        batch = self._batches[-1]
        if not batch.has_room(start, end):
            batch = BatchText()
            self._batches.append(batch)
        before = batch.size
        batch.add(start, end)
        self._size += batch.size - before
        self.records += 1
        return True

    def take(self) -> list[BatchText]:
        """Return all batches, and hold nothing."""
        batches, self._batches = self._batches, []
        self._size = self.records = 0
        return batches
