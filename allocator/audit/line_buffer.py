"""LineBuffer: the lines of records that wait to be written. Runs for every review."""
# ruff: noqa: SLF001 -- of another buffer, with which lines are exchanged

from collections.abc import Callable, Iterator
from typing import Final

MOST_PENDING: Final = 16 * 1024 * 1024  # bytes waiting for a slow reader of our standard output
_FIRST_SIZE: Final = 64 * 1024  # bytes
# Bytes that are written at a time, and the rest of a line. It is little, so that what is joined
# next takes the same memory, which the processor still has in its caches.
_CHUNK: Final = 8 * 1024
_LINES: Final = 8  # in parts, that are joined at a time


def _ignore() -> None:
    pass


class LineEnd:
    """How lines end that begin otherwise: their ``own`` text, and a ``tail`` others may have too.

    Whoever makes many gives them the same object as their tail, which then is in the processor's
    caches. It ends with a line break.
    """

    def __init__(self, own: bytes, tail: bytes) -> None:
        """End lines with *own* and *tail*."""
        self.own = own
        self.tail = tail
        self.size = len(own) + len(tail)  # bytes


# The start of a line and its end; without one, the start is the whole line.
Line = tuple[bytes, LineEnd | None]


def line_size(start: bytes, end: LineEnd | None) -> int:
    """Return the bytes of a line."""
    return len(start) if end is None else len(start) + end.size


def whole_line(start: bytes, end: LineEnd | None) -> bytes:
    """Return a line in one piece."""
    return start if end is None else b"".join((start, end.own, end.tail))


class LineBuffer:
    """Lines in one piece of memory that is used again and again.

    Memory that is new costs more than all else about a record: the kernel clears each page. So a
    line whose end others have too is kept in parts, and is joined when it is written.
    """

    def __init__(self, dropped: Callable[[], None] = _ignore) -> None:
        """Hold nothing; *dropped* is called for each record for which there is no room."""
        self._dropped = dropped
        self._memory = bytearray(_FIRST_SIZE)
        self._used = 0
        # Lines in parts, and how much memory is used by the lines before them.
        self._parts: list[tuple[int, list[bytes], list[LineEnd]]] = []
        self._size = 0  # bytes of all lines

    def __len__(self) -> int:
        """Return the number of bytes of all lines."""
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

    def add_parts(self, start: bytes, end: LineEnd) -> bool:
        """Add the line of *start* and *end*, which is kept as it is; as :meth:`add` does."""
        size = self._size + len(start) + end.size
        if size > MOST_PENDING:
            return False
        if not self._parts or self._parts[-1][0] != self._used:
            self._parts.append((self._used, [], []))
        _, starts, ends = self._parts[-1]
        starts.append(start)
        ends.append(end)
        self._size = size
        return True

    def remember_parts(self, start: bytes, end: LineEnd) -> None:
        """Add the line of *start* and *end*, or drop it."""
        if not self.add_parts(start, end):
            self._dropped()

    def exchange(self, other: "LineBuffer") -> None:
        """Give *other* all lines, and take those that it has."""
        self._memory, other._memory = other._memory, self._memory
        self._used, other._used = other._used, self._used
        self._parts, other._parts = other._parts, self._parts
        self._size, other._size = other._size, self._size

    def chunks(self) -> Iterator[bytes]:
        """Yield the lines in their order, some at a time."""
        parts, size = list[bytes](), 0
        for part in self._joined():
            parts.append(part)
            size += len(part)
            if size >= _CHUNK:
                yield b"".join(parts)
                parts, size = [], 0
        if parts:
            yield b"".join(parts)

    def _joined(self) -> Iterator[bytes]:
        """Yield whole lines in their order."""
        start = 0
        for used, starts, ends in (*self._parts, (self._used, [], [])):
            yield from self._lines(start, used)
            for at in range(0, len(starts), _LINES):
                parts = list[bytes]()
                for place in range(at, min(at + _LINES, len(starts))):
                    end = ends[place]
                    parts.append(starts[place])
                    parts.append(end.own)
                    parts.append(end.tail)
                yield b"".join(parts)
            start = used

    def _lines(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the lines between two places of the memory, in steps of a chunk."""
        while start < end:
            cut = self._memory.find(b"\n", start + _CHUNK - 1, end) + 1 or end
            yield bytes(memoryview(self._memory)[start:cut])
            start = cut

    def lines(self) -> Iterator[Line]:
        """Yield the lines in their order, one by one."""
        start = 0
        for used, starts, ends in (*self._parts, (self._used, [], [])):
            while start < used:
                cut = self._memory.find(b"\n", start, used) + 1 or used
                yield bytes(memoryview(self._memory)[start:cut]), None
                start = cut
            yield from zip(starts, ends, strict=True)

    def clear(self) -> None:
        """Forget the lines, and keep the memory."""
        self._used = self._size = 0
        self._parts = []
