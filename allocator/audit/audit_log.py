"""The audit log: records as lines, written by a thread so that answers never wait."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from allocator.audit.lines import line_of

_MOST_PENDING: Final = 4096  # lines waiting for a slow reader of our standard output
_EVERY: Final = 0.05  # seconds between writes
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


class AuditLog:
    """A bounded queue in front of one writing thread; a full queue drops and counts."""

    def __init__(self, sinks: Sequence[Sink], *, dropped: Callable[[], None]) -> None:
        """Write to all *sinks*; one that fails keeps nothing from the others.

        *dropped* is called for every record that finds the queue full or cannot be written.
        """
        self._sinks = tuple(sinks)
        self._dropped = dropped
        self._pending: list[bytes] = []
        self._failing: set[int] = set()  # positions of sinks whose last write failed
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")

    def remember(self, record: Mapping[str, Any]) -> None:
        """Take a note of *record*; costs one encoding, and neither waits nor fails."""
        line = line_of(record) if len(self._pending) < _MOST_PENDING else None
        if line is None:
            self._dropped()
            return
        self._pending.append(line)

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
        if self._pending:
            lines, self._pending = self._pending, []
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._put, b"".join(lines))

    def _put(self, data: bytes) -> None:
        for position, sink in enumerate(self._sinks):
            try:
                sink.write(data)
                sink.flush()
            except OSError as error:  # such as a full disk, or nobody who reads our output
                if position not in self._failing:
                    log.warning("records not written", sink=type(sink).__name__, why=str(error))
                self._failing.add(position)
            else:
                self._failing.discard(position)
