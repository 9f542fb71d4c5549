"""Timeline: what is due when, by a clock that jumps from one moment to the next."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from itertools import count
from typing import Final

from demo.story import DAY, minute_of
from kube.clock import Clock

Step = Callable[[], Awaitable[None]]
_MIDDLE: Final = 0.5  # in place of chance


class Timeline:
    """A day that ends at a given time; what is due at the same moment happens in order."""

    def __init__(self, end: datetime) -> None:
        """Stand at the beginning of the day before *end*, which is aware."""
        self.begin = end - timedelta(minutes=DAY)
        self.end = end
        self._now = self.begin
        self._order = count()
        self._due: list[tuple[datetime, int, Step]] = []
        self.clock = Clock(
            monotonic=self._seconds,
            wall=self.now,
            sleep=self._sleep,
            random=lambda: _MIDDLE,
        )

    def now(self) -> datetime:
        """Return the time of the story."""
        return self._now

    def _seconds(self) -> float:
        return self._now.timestamp()

    async def _sleep(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        await asyncio.sleep(0)

    def time(self, text: str) -> datetime:
        """Return when it is so many hours and minutes since the day began: ``09:30``."""
        return self.minute(minute_of(text))

    def minute(self, minute: float) -> datetime:
        """Return a minute of the day."""
        return self.begin + timedelta(minutes=minute)

    def at(self, moment: datetime, step: Step) -> None:
        """Have *step* done at *moment*."""
        heapq.heappush(self._due, (moment, next(self._order), step))

    def after(self, seconds: float, step: Step) -> None:
        """Have *step* done in some seconds from now."""
        self.at(self._now + timedelta(seconds=seconds), step)

    async def run(self) -> None:
        """Do all that is due until the day ends."""
        while self._due and self._due[0][0] < self.end:
            moment, _, step = heapq.heappop(self._due)
            self._now = max(self._now, moment)
            await step()
        self._now = self.end
