"""Waiting for what another task, or the other end of a socket, does in its own time."""

import asyncio
from collections.abc import Callable


async def until(true: Callable[[], object]) -> None:
    """Return once *true*; raises TimeoutError where a busy machine is no excuse any more."""
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 -- what it waits for has no event of its own
            await asyncio.sleep(0.01)
