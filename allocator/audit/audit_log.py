"""The audit log: records as lines, written by a thread so that answers never wait."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
import structlog

from allocator.audit.lines import line_of

MOST_PENDING: Final = 16 * 1024 * 1024  # bytes waiting for a slow reader of our standard output
BATCH: Final = 16  # records that are made at a time; the last review of them waits for it
LARGEST_BATCH: Final = 1024 * 1024  # bytes of reviews that are held for it
_FIRST_SIZE: Final = 64 * 1024  # bytes
_CHUNK: Final = 64 * 1024  # bytes that are written at a time, and the rest of a line
_ENCODED: Final = 16  # records that are encoded at a time
_EVERY: Final = 0.05  # seconds between writes
_ENCODER: Final = msgspec.json.Encoder()
log = structlog.get_logger(__name__)


class Sink(Protocol):
    """Where lines go; may block."""

    def write(self, data: bytes, /) -> object:
        """Write *data*, which is whole lines."""

    def flush(self) -> object:
        """Hand on what was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchedSink:
    """Writes to *sink* while *enabled* says so."""

    sink: Sink
    enabled: Callable[[], bool]

    def write(self, data: bytes, /) -> None:
        """Write *data*, or drop it."""
        if self.enabled():
            self.sink.write(data)

    def flush(self) -> None:
        """Hand on what was written."""
        self.sink.flush()


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


class AuditLog:
    """A bounded queue in front of one writing thread; a full queue drops and counts."""

    def __init__(self, sinks: Sequence[Sink], *, dropped: Callable[[], None]) -> None:
        """Write to all *sinks*; one that fails keeps nothing from the others.

        *dropped* is called for every record that finds the queue full or cannot be written.
        """
        self._sinks = tuple(sinks)
        self._dropped = dropped
        self._pending, self._written = LineBuffer(), LineBuffer()
        self._deferred: list[Callable[[], None]] = []
        self._deferred_size = 0  # bytes
        self._writing: asyncio.Future[None] | None = None  # of the thread
        self._failing: set[int] = set()  # positions of sinks whose last write failed
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")

    def remember(self, record: Mapping[str, Any]) -> None:
        """Take a note of *record*; costs one encoding, and neither waits nor fails."""
        line = line_of(record)
        if line is None or not self._pending.add(line):
            self._dropped()

    def remember_encodable(self, record: msgspec.Struct, size: int) -> None:
        """Take a note of *record*, whose JSON has at most *size* bytes; encoded when written.

        It must be within the bounds of a line, and is never cut.
        """
        if not self._pending.add_encodable(record, size):
            self._dropped()

    def defer(self, make: Callable[[], None], size: int) -> None:
        """Let *make* make a record soon, together with others: one by one takes twice the time.

        *size* is about the number of bytes that it holds until then.
        """
        self._deferred.append(make)
        self._deferred_size += size
        if len(self._deferred) >= BATCH or self._deferred_size >= LARGEST_BATCH:
            self._make_deferred()

    def _make_deferred(self) -> None:
        makers, self._deferred, self._deferred_size = self._deferred, [], 0
        for make in makers:
            try:
                make()
            except Exception:
                log.exception("record not made")  # that of another review must be
                self._dropped()

    async def run(self) -> None:
        """Write what is pending, again and again; on cancellation write the rest."""
        try:
            while True:
                await asyncio.sleep(_EVERY)
                await self._write()
        finally:
            await asyncio.shield(self._write())
            self._thread.shutdown(wait=False)

    async def _write(self) -> None:
        self._make_deferred()
        if self._writing is not None:  # we were cancelled meanwhile; its buffer is still in use
            await self._writing
        if len(self._pending):
            lines = self._pending
            self._pending, self._written = self._written, lines
            loop = asyncio.get_running_loop()
            self._writing = loop.run_in_executor(self._thread, self._put, lines)
            await asyncio.shield(self._writing)

    def _put(self, lines: LineBuffer) -> None:
        for position, sink in enumerate(self._sinks):
            try:
                for chunk in lines.chunks():
                    sink.write(chunk)
                sink.flush()
            except OSError as error:  # such as a full disk, or nobody who reads our output
                if position not in self._failing:
                    log.warning("records not written", sink=type(sink).__name__, why=str(error))
                self._failing.add(position)
            else:
                self._failing.discard(position)
        lines.clear()
