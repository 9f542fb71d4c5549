"""Abreast: the same work on many objects, where what is odd or slow stays with its own object.

Objects are others' doing, and one that nobody foresaw must neither end a program nor keep all the
others waiting behind it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, Generic, TypeVar

import structlog

AT_ONCE: Final = 16  # calls of the API server by one duty
PATIENCE: Final = 0.5  # seconds for which the rest of a duty waits for what hangs

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

    def __init__(self, *, most: int = AT_ONCE, patience: float = PATIENCE) -> None:
        """Work on *most* at a time."""
        self._turns = asyncio.Semaphore(most)
        self._patience = patience
        self._busy: dict[K, asyncio.Task[None]] = {}

    async def run_each(self, items: Mapping[K, T], work: Callable[[T], Awaitable[None]]) -> None:
        """Begin *work* on each of *items* that is not worked on yet, and wait a moment for all.

        What takes longer goes on beside what comes next; what it raises is logged.
        """
        begun = {
            key: asyncio.create_task(self._one(key, item, work))
            for key, item in items.items()
            if key not in self._busy
        }
        if not begun:
            return
        self._busy |= begun
        try:
            await asyncio.wait(begun.values(), timeout=self._patience)
        except asyncio.CancelledError:
            for task in self._busy.values():
                task.cancel()
            raise

    async def _one(self, key: K, item: T, work: Callable[[T], Awaitable[None]]) -> None:
        try:
            async with self._turns:
                with isolated("left undone", of=str(key)):
                    await work(item)
        finally:
            del self._busy[key]
