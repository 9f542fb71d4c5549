"""Work on many objects: isolation of failures, back-off per key, run while leading."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, Never, TypeVar

import structlog

from kube.clock import SYSTEM, Clock

MOST_CALLS: Final = 16  # calls of the API server by one duty
WAIT_SECONDS: Final = 0.5  # seconds for which the rest of a duty waits for what hangs
log = structlog.get_logger(__name__)
K = TypeVar("K")
T = TypeVar("T")


@contextlib.contextmanager
def isolated(
    what: str, failed: Callable[[], None] = lambda: None, /, **which: str
) -> Iterator[None]:
    """Let the block fail for itself alone: *what* went wrong, with *which* object, is logged.

    What is to be expected, the block catches itself. *failed* is called where it did not.
    """
    try:
        yield
    except Exception:
        log.exception(what, **which)
        failed()


class Workqueue(Generic[K]):
    """Works on objects by key, some at a time and each once at a time."""

    def __init__(self, *, most: int = MOST_CALLS, wait_seconds: float = WAIT_SECONDS) -> None:
        """Work on *most* at a time."""
        self._turns = asyncio.Semaphore(most)
        self._wait_seconds = wait_seconds
        self._busy: dict[K, asyncio.Task[None]] = {}

    async def run_each(self, items: Mapping[K, T], work: Callable[[T], Awaitable[None]]) -> None:
        """Begin *work* on each of *items* that is not worked on yet, and wait a moment for all.

        What takes longer goes on beside what comes next; what it raises is logged.
        """
        begun = {
            key: asyncio.create_task(self._run_one(key, item, work))
            for key, item in items.items()
            if key not in self._busy
        }
        if not begun:
            return
        self._busy |= begun
        try:
            await asyncio.wait(begun.values(), timeout=self._wait_seconds)
        except asyncio.CancelledError:
            for task in self._busy.values():
                task.cancel()
            raise

    async def _run_one(self, key: K, item: T, work: Callable[[T], Awaitable[None]]) -> None:
        try:
            async with self._turns:
                with isolated("left undone", of=str(key)):
                    await work(item)
        finally:
            del self._busy[key]


FIRST_BACKOFF: Final = 1.0  # seconds
LONGEST_BACKOFF: Final = 30.0


class Backoff(Generic[K]):
    """Remembers failures by key, for as long as the key is among what is to be done."""

    def __init__(self, clock: Clock) -> None:
        """Count in *clock*'s monotonic time."""
        self._clock = clock
        self._failed: dict[K, tuple[int, float]] = {}  # how often, and until when to wait

    def due_keys(self, keys: Iterable[K]) -> list[K]:
        """Return those of *keys* whose time has come, and forget all others that failed."""
        all_keys = list(keys)
        self._failed = {key: self._failed[key] for key in all_keys if key in self._failed}
        now = self._clock.monotonic()
        return [key for key in all_keys if now >= self._failed.get(key, (0, now))[1]]

    def note_failure(self, key: K) -> None:
        """Put *key* off, each time for longer."""
        failures = self._failed.get(key, (0, 0.0))[0] + 1
        pause = self._clock.backoff(failures, first=FIRST_BACKOFF, most=LONGEST_BACKOFF)
        self._failed[key] = (failures, self._clock.monotonic() + pause)


SWEEP_SECONDS: Final = 1.0  # seconds; a freed GPU is to be seen within two
LONGEST_SWEEP_PAUSE: Final = 30.0  # seconds after sweeps that failed as a whole


async def run_while_leading(
    sweep: Callable[[], Awaitable[None]],
    leading: Callable[[], bool],
    every: float = SWEEP_SECONDS,
    *,
    failed: Callable[[], None] = lambda: None,
    clock: Clock = SYSTEM,
) -> Never:
    """Sweep for ever while *leading*, with *every* seconds between two sweeps.

    One that raises what nobody foresaw is logged and counted by *failed*; it ends neither the
    program nor, with the next leader, one program after the other.
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
