"""Decision records as lines, written behind the answers, never in their way."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

import orjson

_MOST_PENDING: Final = 4096  # lines waiting for a slow reader of our standard output
_EVERY: Final = 0.05  # seconds between writes


class Sink(Protocol):
    """Where lines go; may block."""

    def write(self, data: bytes, /) -> object:
        """Write *data*."""

    def flush(self) -> object:
        """Hand on what was written."""


class AuditLog:
    """A bounded queue in front of one writing thread; a full queue drops and counts."""

    def __init__(self, sink: Sink, *, dropped: Callable[[], None]) -> None:
        """Write to *sink*; *dropped* is called for every record that finds the queue full."""
        self._sink = sink
        self._dropped = dropped
        self._pending: list[bytes] = []
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")

    def remember(self, record: Mapping[str, Any]) -> None:
        """Take a note of *record*; costs one encoding."""
        if len(self._pending) >= _MOST_PENDING:
            self._dropped()
            return
        self._pending.append(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))

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
        self._sink.write(data)
        self._sink.flush()
