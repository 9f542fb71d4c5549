"""Time, sleep and randomness behind one object, so that tests can replace them."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The clocks and the source of randomness of this process."""

    monotonic: Callable[[], float] = time.monotonic  # seconds
    wall: Callable[[], datetime] = _now  # UTC, with time zone
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep  # seconds
    random: Callable[[], float] = random.random  # in [0, 1)

    def uniform(self, low: float, high: float) -> float:
        """Draw a number between *low* and *high*."""
        return low + (high - low) * self.random()

    def backoff(self, failures: int, *, first: float, most: float) -> float:
        """Return the jittered seconds to wait after the *failures*-th failure in a row.

        Half is fixed and half random, so that replicas which failed together retry apart, and
        none retries at once.
        """
        full = min(most, first * 2 ** min(failures - 1, 16))
        return self.uniform(full / 2, full)


SYSTEM: Final = Clock()


def micro_time(at: datetime) -> str:
    """Render *at* as the API server's MicroTime."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
