"""A clock that moves only when it is told to, or when somebody sleeps on it."""

import asyncio
from datetime import UTC, datetime, timedelta

from kube.clock import Clock

EPOCH = datetime(2026, 11, 21, 17, 0, tzinfo=UTC)


class FakeClock:
    def __init__(self, *, now: float = 1000.0, chance: float = 0.5) -> None:
        self.now = now
        self.chance = chance
        self.skew = 0.0
        self.slept: list[float] = []

    def clock(self) -> Clock:
        return Clock(
            monotonic=lambda: self.now,
            wall=lambda: EPOCH + timedelta(seconds=self.now + self.skew),
            sleep=self.sleep,
            random=lambda: self.chance,
        )

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)
