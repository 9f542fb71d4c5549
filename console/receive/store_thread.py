"""The one thread that writes to the store, and what may wait for it."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Never, TypeVar

import structlog

from console.records.rows import StoredRecord
from console.records.times import rfc3339
from console.store.store import RecordStore, Retention, StoreError
from kube.clock import SYSTEM, Clock

MOST_WAITING: Final = 16  # parts of batches
PRUNE_SECONDS: Final = 600.0  # between two looks for what need not be kept
PAUSE_SECONDS: Final = 0.05  # between two parts of what is removed, so that batches get their turn
log = structlog.get_logger(__name__)
T = TypeVar("T")


class QueueFullError(Exception):
    """As many batches as may wait are waiting."""


class StoreThread:
    """Appends batches one after another, and removes in between what is too old or too much."""

    def __init__(self, store: RecordStore, *, clock: Clock = SYSTEM) -> None:
        """Write to *store*, which the caller closes after :meth:`close`."""
        self._store = store
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Return how many batches wait or are being written."""
        return self._waiting

    async def append(self, records: Sequence[StoredRecord]) -> int:
        """Store *records* and return how many were new; they are on disk then.

        Raises :class:`QueueFullError` and :class:`StoreError`.
        """
        if self._waiting >= MOST_WAITING:
            raise QueueFullError
        self._waiting += 1
        # Written even if whoever sent it does not wait any more: then it is known the next time.
        future = asyncio.ensure_future(self._run(lambda: self._store.append(records)))
        future.add_done_callback(self._end)
        return await asyncio.shield(future)

    def _end(self, done: "asyncio.Future[int]") -> None:
        self._waiting -= 1
        if not done.cancelled():
            done.exception()  # whoever sent it may have gone

    async def prune(self, retention: Retention) -> int:
        """Remove what need not be kept; return how many records went. Raises StoreError."""
        removed = 0
        while True:
            now = rfc3339(int(self._clock.wall().timestamp() * 1000))
            part = await self._run(lambda: self._store.prune(retention, now))  # noqa: B023 -- awaited
            if not part:
                return removed
            removed += part
            await self._clock.sleep(PAUSE_SECONDS)

    async def prune_for_ever(self, retention: Retention) -> Never:
        """Remove what need not be kept, now and then."""
        while True:
            try:
                removed = await self.prune(retention)
            except StoreError as error:
                log.warning("old records not removed", why=str(error))
            else:
                if removed:
                    log.info("old records removed", records=removed)
            await self._clock.sleep(PRUNE_SECONDS)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Let the thread finish what was given to it."""
        self._thread.shutdown(wait=True)
