"""The node lock: which pod is between its bind and Allocate, so that kubelet's call means that pod.

Allocate names no pod. MetaX's device plugin serves the pod that the annotation
``hami.io/mutex.lock`` of the Node names, and removes the annotation afterwards. Its value is
``<time>,<namespace>,<name>``.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

EXPIRES: Final = timedelta(minutes=5)  # HAMi's default, when nobody removed it
_LONGEST: Final = 600  # characters: a time, a namespace and a name
_VALUE: Final = re.compile(
    r"([0-9TZ:.+-]{10,40}),([a-z0-9][a-z0-9-]{0,62}),([a-z0-9][a-z0-9.-]{0,252})", re.ASCII
)
_AHEAD: Final = timedelta(minutes=1)  # by which clocks may differ


@dataclass(frozen=True, slots=True)
class NodeLock:
    """Who holds the lock of a node, and since when."""

    since: datetime  # aware of its zone
    namespace: str
    pod: str

    def __str__(self) -> str:
        """Return the value of the annotation."""
        return f"{self.since.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ},{self.namespace},{self.pod}"

    def is_stale(self, now: datetime) -> bool:
        """Say whether its holder had long enough; a time that is yet to come counts as stale."""
        return now - self.since >= EXPIRES or self.since - now > _AHEAD

    def names(self, namespace: str, pod: str) -> bool:
        """Say whether this pod holds it."""
        return (self.namespace, self.pod) == (namespace, pod)


def parse_lock(text: str) -> NodeLock | None:
    """Return the lock in *text*; ``None`` where it is none, which holds up nobody."""
    match = _VALUE.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    try:
        since = datetime.fromisoformat(match[1])
    except ValueError:
        return None
    return NodeLock(since, match[2], match[3]) if since.tzinfo is not None else None


def is_free(text: str, *, namespace: str, pod: str, now: datetime) -> bool:
    """Say whether a pod may take the lock of a node whose annotation is *text*.

    It may where there is none, where the pod holds it already, and where it is stale or unreadable.
    """
    lock = parse_lock(text)
    return lock is None or lock.names(namespace, pod) or lock.is_stale(now)
