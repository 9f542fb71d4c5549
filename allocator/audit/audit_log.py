"""The audit log: records as lines, written by a thread so that answers never wait."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from allocator.audit.line_buffer import LineBuffer
from allocator.audit.lines import line_of
from allocator.audit.record_writer import LARGEST_BATCH, RememberParts

BATCH: Final = 16  # records that are made at a time; the last review of them waits for it
_EVERY: Final = 0.05  # seconds between writes
log = structlog.get_logger(__name__)


class Sink(Protocol):
    """Where lines go; may block."""

    def write(self, lines: LineBuffer, /) -> object:
        """Write *lines*, of which it keeps no part that changes."""


class BytesFile(Protocol):
    """What can be written to, such as standard output."""

    def write(self, data: bytes, /) -> object:
        """Write *data*."""

    def flush(self) -> object:
        """Hand on what was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSink:
    """Writes whole lines to *file* while *enabled* says so."""

    file: BytesFile
    enabled: Callable[[], bool]

    def write(self, lines: LineBuffer, /) -> None:
        """Write *lines*, or drop them."""
        if not self.enabled():
            return
        for chunk in lines.chunks():
            self.file.write(chunk)
        self.file.flush()


class AuditLog:
    """A bounded queue in front of one writing thread; a full queue drops and counts."""

    def __init__(self, sinks: Sequence[Sink], *, dropped: Callable[[], None]) -> None:
        """Write to all *sinks*; one that fails keeps nothing from the others.

        *dropped* is called for every record that finds the queue full or cannot be written.
        """
        self._sinks = tuple(sinks)
        self._dropped = dropped
        self._pending, self._written = LineBuffer(dropped), LineBuffer()
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

    @property
    def remember_parts(self) -> RememberParts:
        """Return what takes a note of a record in parts.

        It must be within the bounds of a line, and is never cut.
        """
        return self._pending.remember_parts

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
            self._pending.exchange(self._written)
            loop = asyncio.get_running_loop()
            self._writing = loop.run_in_executor(self._thread, self._put, self._written)
            await asyncio.shield(self._writing)

    def _put(self, lines: LineBuffer) -> None:
        for position, sink in enumerate(self._sinks):
            try:
                sink.write(lines)
            except OSError as error:  # such as a full disk, or nobody who reads our output
                if position not in self._failing:
                    log.warning("records not written", sink=type(sink).__name__, why=str(error))
                self._failing.add(position)
            else:
                self._failing.discard(position)
        lines.clear()
