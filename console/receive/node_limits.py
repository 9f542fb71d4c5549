"""NodeLimits: what the agent of one node may send.

Whoever has taken over a node has the token of its agent. So a node may neither keep others from
being heard, nor send so much that the store removes what others sent.
"""

import math
from collections import Counter
from typing import Final

from console.access.budgets import Budgets
from console.access.expiring_cache import ExpiringCache

DAILY_RECORDS: Final = 100_000  # of one node
MOST_BODIES: Final = 2  # of one node at a time; an agent sends one, its successor perhaps another
RECORD_BYTES: Final = 1024  # that count as one record
LONGEST_PAUSE: Final = 300  # seconds that a sender is told to wait
LOG_SECONDS: Final = 60.0  # between two lines about one node
_MOST_NODES: Final = 20_000
_DAY: Final = 86_400  # seconds


class NodeLimitError(Exception):
    """A node has to wait ``after`` seconds; ``used_up`` if it sent what it may send in a day."""

    def __init__(self, why: str, *, after: int, used_up: bool) -> None:
        """Keep what it is told."""
        super().__init__(why)
        self.after = after
        self.used_up = used_up


class NodeLimits:
    """Counts what agents send, by their nodes; times are seconds of one clock."""

    def __init__(self, daily: int = DAILY_RECORDS) -> None:
        """Let each node send *daily* records a day, and as many at once."""
        self._daily = daily
        self._budgets = Budgets[str](units=daily, refill_seconds=_DAY / daily, most=_MOST_NODES)
        self._bodies: Counter[str] = Counter()
        self._named: ExpiringCache[str, bool] = ExpiringCache(_MOST_NODES)

    def begin(self, node: str, now: float) -> None:
        """Take a place for a body of *node* until :meth:`end`; raises :class:`NodeLimitError`."""
        wait = self._budgets.wait(node, now)
        if wait > 0:
            why = f"node {node} has sent its {self._daily} records of a day"
            raise NodeLimitError(why, after=min(math.ceil(wait), LONGEST_PAUSE), used_up=True)
        if self._bodies[node] >= MOST_BODIES:
            why = f"{MOST_BODIES} batches of node {node} are being read"
            raise NodeLimitError(why, after=1, used_up=False)
        self._bodies[node] += 1

    def end(self, node: str) -> None:
        """Give the place of a body of *node* back."""
        self._bodies[node] -= 1
        if not self._bodies[node]:
            del self._bodies[node]

    def note(self, node: str, now: float, *, lines: int, size: int) -> None:
        """Count a batch of *node*, of *lines* that have *size* bytes."""
        self._budgets.spend(node, now, units=max(1, lines, size // RECORD_BYTES))

    def log_is_due(self, node: str, now: float) -> bool:
        """Say whether the log is to name *node* again, which sends too much."""
        if self._named.get(node, now) is not None:
            return False
        self._named.put(node, value=True, until=now + LOG_SECONDS)
        return True
