"""LineBuffer: the lines of records that wait to be written. Runs for every review."""

from collections.abc import Iterator
from typing import Final

import msgspec

MOST_PENDING: Final = 16 * 1024 * 1024  # bytes waiting for a slow reader of our standard output
_FIRST_SIZE: Final = 64 * 1024  # bytes
_CHUNK: Final = 64 * 1024  # bytes that are written at a time, and the rest of a line
_ENCODED: Final = 16  # records that are encoded at a time
_ENCODER: Final = msgspec.json.Encoder()


class LineBuffer:
    """Lines in one piece of memory that is used again and again.

    Memory that is new costs more than all else about a record: the kernel clears each page. So a
    record that can be encoded when it is written is kept as it is until then.
    """

    def __init__(self) -> None:
        """Hold nothing."""
        self._memory = bytearray(_FIRST_SIZE)
        self._used = 0
        # Records that are encoded later, and how much memory is used by the lines before them.
        self._encodable: list[tuple[int, list[msgspec.Struct]]] = []
        self._size = 0  # bytes of all lines, at most

    def __len__(self) -> int:
        """Return the number of bytes in it, at most."""
        return self._size

    def add(self, line: bytes) -> bool:
        """Add *line*; return false where that were over ``MOST_PENDING``."""
        size, end = self._size + len(line), self._used + len(line)
        if size > MOST_PENDING:
            return False
        while end > len(self._memory):
            self._memory.extend(bytes(len(self._memory)))
        self._memory[self._used : end] = line
        self._used, self._size = end, size
        return True

    def add_encodable(self, record: msgspec.Struct, size: int) -> bool:
        """Add *record*, a line of at most *size* bytes; as :meth:`add` does."""
        if self._size + size > MOST_PENDING:
            return False
        if not self._encodable or self._encodable[-1][0] != self._used:
            self._encodable.append((self._used, []))
        self._encodable[-1][1].append(record)
        self._size += size
        return True

    def chunks(self) -> Iterator[bytes]:
        """Yield the lines in their order, some at a time."""
        parts, size = list[bytes](), 0
        for part in self._parts():
            parts.append(part)
            size += len(part)
            if size >= _CHUNK:
                yield b"".join(parts)
                parts, size = [], 0
        if parts:
            yield b"".join(parts)

    def _parts(self) -> Iterator[bytes]:
        """Yield whole lines in their order."""
        start = 0
        for end, records in (*self._encodable, (self._used, [])):
            yield from self._lines(start, end)
            for at in range(0, len(records), _ENCODED):
                yield _ENCODER.encode_lines(records[at : at + _ENCODED])
            start = end

    def _lines(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the lines between two places of the memory, in steps of a chunk."""
        while start < end:
            cut = self._memory.find(b"\n", start + _CHUNK - 1, end) + 1 or end
            yield bytes(memoryview(self._memory)[start:cut])
            start = cut

    def clear(self) -> None:
        """Forget the lines, and keep the memory."""
        self._used = self._size = 0
        self._encodable = []
