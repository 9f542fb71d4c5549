"""Calls on their way, and the clock that they go by: what a schedule decides about."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


class StillLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock only moves when it is pushed."""

    now = 0.0

    def time(self) -> float:
        return self.now

    async def settled(self) -> None:
        """Let every task run until it waits for what is not there."""
        await asyncio.sleep(0)
        while self._ready:  # type: ignore[attr-defined]  # noqa: ASYNC110 -- what asyncio runs next
            await asyncio.sleep(0)


@dataclass(eq=False, slots=True)
class Ticket:
    """One call on its way: not carried out yet, carried out and not answered yet, answered."""

    act: Callable[[], bytes]
    answer: "asyncio.Future[bytes]"
    outcome: bytes | Exception | None = None
