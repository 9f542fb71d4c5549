"""Budgets: how much each may do before it has to wait; what was used comes back with time.

Failed logins have one for each address.
"""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from console.access.expiring_cache import ExpiringCache

MOST_ADDRESSES: Final = 4096
MOST_FAILURES: Final = 10  # in a row, of one address
REFILL_SECONDS: Final = 6.0  # until one more attempt may fail
K = TypeVar("K", bound=Hashable)


class Budgets(Generic[K]):
    """A budget for each key, which the caller names; times are seconds of one clock."""

    def __init__(self, *, units: int, refill_seconds: float, most: int) -> None:
        """Let each key use *units*, of which one comes back every *refill_seconds*.

        At most *most* keys are remembered; the one that was used longest ago begins anew.
        """
        self._debt_seconds = (units - 1) * refill_seconds
        self._refill_seconds = refill_seconds
        self._full_at: ExpiringCache[K, float] = ExpiringCache(most)

    def __len__(self) -> int:
        """Return how many keys have used some of their budgets."""
        return len(self._full_at)

    def wait(self, key: K, now: float) -> float:
        """Return the seconds until *key* has a unit left; 0 if it has one."""
        full_at = self._full_at.get(key, now)
        return 0.0 if full_at is None else max(0.0, full_at - now - self._debt_seconds)

    def spend(self, key: K, now: float, *, units: int = 1) -> None:
        """Take *units* of *key*, even if it has fewer left: then it waits the longer."""
        full_at = (self._full_at.get(key, now) or now) + units * self._refill_seconds
        self._full_at.put(key, full_at, full_at)


class TooManyAttemptsError(Exception):
    """An address failed too often; ``seconds`` until it may try again."""

    def __init__(self, seconds: float) -> None:
        """Keep how long to wait."""
        super().__init__(f"too many failed logins; try again in {seconds:.0f} seconds")
        self.seconds = seconds


class FailedAttempts:
    """Failures by address. Behind a port-forward or a proxy, many people share an address."""

    def __init__(self) -> None:
        """Begin without failures."""
        self._budgets = Budgets[str](
            units=MOST_FAILURES, refill_seconds=REFILL_SECONDS, most=MOST_ADDRESSES
        )

    def __len__(self) -> int:
        """Return how many addresses failed of late."""
        return len(self._budgets)

    def check(self, address: str, now: float) -> None:
        """Raise :class:`TooManyAttemptsError` where *address* has no attempt left."""
        wait = self._budgets.wait(address, now)
        if wait > 0:
            raise TooManyAttemptsError(wait)

    def note_failure(self, address: str, now: float) -> None:
        """Take one attempt away."""
        self._budgets.spend(address, now)
