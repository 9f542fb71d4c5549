"""Retries: how often something was tried in vain, and when it is worth another try."""

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from kube.clock import Clock

FIRST: Final = 1.0  # seconds
LONGEST: Final = 30.0

K = TypeVar("K")


class Backoff(Generic[K]):
    """Remembers failures by key, for as long as the key is among what is to be done."""

    def __init__(self, clock: Clock) -> None:
        """Count in *clock*'s monotonic time."""
        self._clock = clock
        self._failed: dict[K, tuple[int, float]] = {}  # how often, and until when to wait

    def due_keys(self, keys: Iterable[K]) -> list[K]:
        """Return those of *keys* whose time has come, and forget all others that failed."""
        found = list(keys)
        self._failed = {key: self._failed[key] for key in found if key in self._failed}
        now = self._clock.monotonic()
        return [key for key in found if now >= self._failed.get(key, (0, now))[1]]

    def note_failure(self, key: K) -> None:
        """Put *key* off, each time for longer."""
        failures = self._failed.get(key, (0, 0.0))[0] + 1
        pause = self._clock.backoff(failures, first=FIRST, most=LONGEST)
        self._failed[key] = (failures, self._clock.monotonic() + pause)
