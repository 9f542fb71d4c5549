"""Background tasks, signals and memory of a server."""

import asyncio
import contextlib
import ctypes
import gc
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, Never

from kube.clock import SYSTEM, Clock

Start = Callable[[Awaitable[object], str], None]


@contextlib.asynccontextmanager
async def background() -> AsyncIterator[Start]:
    """Run tasks during the block; when a task ends by itself, the block is cancelled."""
    tasks: list[asyncio.Task[object]] = []

    async def run_named(work: Awaitable[object], name: str) -> None:
        await work
        raise RuntimeError(f"task {name} ended")

    try:
        async with asyncio.TaskGroup() as group:

            def start(work: Awaitable[object], name: str) -> None:
                tasks.append(group.create_task(run_named(work, name), name=name))

            yield start
            for task in tasks:
                task.cancel()
    finally:
        for task in tasks:
            task.cancel()


def stop_event() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


# New objects before a collection of the young ones, which takes a millisecond; the last number is
# so high that Python starts no full collection by itself.
GC_THRESHOLDS: Final = (10_000, 20, 1_000_000)
FULL_COLLECTION_SECONDS: Final = 3600.0  # between full collections
POLL_SECONDS: Final = 1.0  # between two calls of is_settled


async def freeze_when_settled(is_settled: Callable[[], bool], clock: Clock = SYSTEM) -> Never:
    """Freeze all objects once *is_settled*, and collect garbage among them once an hour."""
    gc.set_threshold(*GC_THRESHOLDS)
    while not is_settled():
        await clock.sleep(POLL_SECONDS)
    while True:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        await clock.sleep(FULL_COLLECTION_SECONDS)


# Parameters of mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGE: Final = 128 * 1024  # bytes; glibc begins with this, but raises it with each larger block
_KEPT: Final = 8 * 1024 * 1024  # bytes


def save_memory() -> None:
    """Have the C library give large blocks back when they are freed, and keep one heap.

    A program with several threads else keeps a heap for each. Other libraries than glibc are left
    as they are.
    """
    _tune_malloc({_ARENA_MAX: 1, _MMAP_THRESHOLD: _LARGE, _TRIM_THRESHOLD: _LARGE})


def keep_memory() -> None:
    """Have the C library keep up to 8 MiB that were freed at the end of each heap.

    It else gives back what a batch of records took, and gets it anew for the next: the kernel
    clears each page for that, which is a fifth of what delivery takes. Other libraries than glibc
    are left as they are.
    """
    _tune_malloc({_MMAP_THRESHOLD: _KEPT, _TRIM_THRESHOLD: _KEPT})


def _tune_malloc(parameters: Mapping[int, int]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in parameters.items():
            mallopt(parameter, value)
