"""Tasks: what a program does beside serving, for as long as it runs."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable

Start = Callable[[Awaitable[object], str], None]


@contextlib.asynccontextmanager
async def background() -> AsyncIterator[Start]:
    """Run tasks beside the block; when one ends by itself, the block is cancelled."""
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
    """Return what SIGTERM and SIGINT set from now on."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
