"""Parts of a control loop that works on many objects.

A controller is a sweep that :func:`run_while_leading` repeats. The sweep asks a :class:`Backoff`
which keys are due, hands them to a :class:`Workqueue`, which runs several at a time, and reports
failures back. :func:`isolated` keeps what goes wrong with one object from the others.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, Never, TypeVar

import structlog

from kube.clock import SYSTEM, Clock

MOST_CALLS: Final = 16  # concurrent calls of the API server by one controller
WAIT_SECONDS: Final = 0.5  # that a sweep waits for calls that hang
FIRST_BACKOFF: Final = 1.0  # seconds after a key's first failure, doubled with each further one
LONGEST_BACKOFF: Final = 30.0  # seconds
SWEEP_SECONDS: Final = 1.0  # between sweeps, so that a freed GPU is noticed within two seconds
LONGEST_SWEEP_PAUSE: Final = 30.0  # seconds after sweeps that failed as a whole
log = structlog.get_logger(__name__)
K = TypeVar("K")
T = TypeVar("T")


@contextlib.contextmanager
def isolated(
    what: str, failed: Callable[[], None] = lambda: None, /, **which: str
) -> Iterator[None]:
    """Log any exception of the block as *what*, with the fields *which*, and continue after it.

    *failed* is called then. Expected errors are caught in the block itself.
    """
    try:
        yield
    except Exception:
        log.exception(what, **which)
        failed()


class Workqueue(Generic[K]):
    """Runs work by key: several keys at a time, one run per key at a time."""

    def __init__(self, *, most: int = MOST_CALLS, wait_seconds: float = WAIT_SECONDS) -> None:
        """Run *most* keys at a time; :meth:`run_each` returns after *wait_seconds*."""
        self._slots = asyncio.Semaphore(most)
        self._wait_seconds = wait_seconds
        self._busy: dict[K, asyncio.Task[None]] = {}

    async def run_each(self, items: Mapping[K, T], work: Callable[[T], Awaitable[None]]) -> None:
        """Start *work* on each of *items* whose key is not running, and wait for it briefly.

        Work that takes longer continues in the background; its exceptions are logged.
        """
        started = {
            key: asyncio.create_task(self._run_one(key, item, work))
            for key, item in items.items()
            if key not in self._busy
        }
        if not started:
            return
        self._busy |= started
        try:
            await asyncio.wait(started.values(), timeout=self._wait_seconds)
        except asyncio.CancelledError:
            for task in self._busy.values():
                task.cancel()
            raise

    async def _run_one(self, key: K, item: T, work: Callable[[T], Awaitable[None]]) -> None:
        try:
            async with self._slots:
                with isolated("work item failed", of=str(key)):
                    await work(item)
        finally:
            del self._busy[key]


class Backoff(Generic[K]):
    """Counts failures in a row by key, for as long as the key is due in every sweep."""

    def __init__(self, clock: Clock) -> None:
        """Start without failures."""
        self._clock = clock
        self._failed: dict[
            K, tuple[int, float]
        ] = {}  # failures, and monotonic seconds when due again

    def due_keys(self, keys: Iterable[K]) -> list[K]:
        """Return those of *keys* whose pause is over; forget failures of keys not among them."""
        all_keys = list(keys)
        self._failed = {key: self._failed[key] for key in all_keys if key in self._failed}
        now = self._clock.monotonic()
        return [key for key in all_keys if now >= self._failed.get(key, (0, now))[1]]

    def note_failure(self, key: K) -> None:
        """Pause *key*, longer with each failure in a row."""
        failures = self._failed.get(key, (0, 0.0))[0] + 1
        pause = self._clock.backoff(failures, first=FIRST_BACKOFF, most=LONGEST_BACKOFF)
        self._failed[key] = (failures, self._clock.monotonic() + pause)


async def run_while_leading(
    sweep: Callable[[], Awaitable[None]],
    leading: Callable[[], bool],
    every: float = SWEEP_SECONDS,
    *,
    failed: Callable[[], None] = lambda: None,
    clock: Clock = SYSTEM,
) -> Never:
    """Call *sweep* for ever while *leading* says so, with *every* seconds in between.

    A sweep that raises is logged, counted by *failed* and followed by a longer pause. It does not
    end the program: the next leader would meet the same error and end as well.
    """
    failures = 0
    while True:
        pause = every
        if leading():
            try:
                await sweep()
                failures = 0
            except Exception:
                failures += 1
                log.exception("sweep failed")
                failed()
                pause = max(every, clock.backoff(failures, first=every, most=LONGEST_SWEEP_PAUSE))
        await clock.sleep(pause)
