"""How often an address may fail to log in: a bucket of attempts that fills again slowly."""

from typing import Final

from console.access.expiring_cache import ExpiringCache

MOST_ADDRESSES: Final = 4096
MOST_FAILURES: Final = 10  # in a row, of one address
REFILL_SECONDS: Final = 6.0  # until one more attempt may fail


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
        # When the bucket of each address is full again.
        self._full_at: ExpiringCache[str, float] = ExpiringCache(MOST_ADDRESSES)

    def check(self, address: str, now: float) -> None:
        """Raise :class:`TooManyAttemptsError` where *address* has no attempt left."""
        full_at = self._full_at.get(address, now)
        if full_at is None:
            return
        wait = full_at - now - (MOST_FAILURES - 1) * REFILL_SECONDS
        if wait > 0:
            raise TooManyAttemptsError(wait)

    def note_failure(self, address: str, now: float) -> None:
        """Take one attempt away."""
        full_at = max(now, self._full_at.get(address, now) or now) + REFILL_SECONDS
        self._full_at.put(address, full_at, full_at)
