"""Alone: a lock that lets only one agent at a time own the slots of a node."""

import asyncio
import fcntl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import structlog

_AGAIN: Final = 0.5  # seconds between tries


@asynccontextmanager
async def node_lock(lock: Path) -> AsyncIterator[None]:
    """Wait until no other process holds the file *lock*, and hold it; raises OSError.

    The kernel releases it when its holder ends, however that happens.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    waiting = False
    with lock.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    structlog.get_logger().warning(
                        "waiting for another agent to exit", lock=str(lock)
                    )
                waiting = True
            await asyncio.sleep(_AGAIN)
        yield
