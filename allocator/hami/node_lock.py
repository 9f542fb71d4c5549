"""HAMi's node lock, the annotation ``hami.io/mutex.lock``: ``<RFC 3339>,<namespace>,<pod>``.

HAMi's plugin does not know which pod kubelet asks for. It serves the pod that the lock of its node
names, so one pod at a time may be between its Binding and its start. Releases before 2.5 wrote the
time alone.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from allocator.catalog.hami_keys import ALLOCATING
from allocator.model.untrusted import is_safe_name, zoned_time

EXPIRES_AFTER: Final = timedelta(minutes=5)  # as in HAMi
# A Binding follows its lock at once. A pod that is not bound by then was refused by somebody else.
BIND_WITHIN: Final = timedelta(seconds=15)
_LONGEST: Final = 512  # characters; a name has 253, a namespace 63
_PARTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLock:
    """A lock; without a pod where an old release wrote it."""

    at: datetime  # aware
    namespace: str = ""
    pod: str = ""

    def __str__(self) -> str:
        return f"{self.at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ},{self.namespace},{self.pod}"

    def is_of(self, namespace: str, pod: str) -> bool:
        """Say whether pod *namespace*/*pod* holds it."""
        return (self.namespace, self.pod) == (namespace, pod)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """The pod that a lock names, as it is now."""

    node: str  # empty until it is bound
    over: bool
    started: bool  # one of its containers runs or ran
    phase: str  # its annotation hami.io/bind-phase


def parse_node_lock(text: str) -> NodeLock | None:
    """Return the lock, ``None`` where the annotation is none that HAMi can have written."""
    if len(text) > _LONGEST:
        return None
    parts = text.split(",")
    at = zoned_time(parts[0])
    if at is None or len(parts) not in {1, _PARTS}:
        return None
    if len(parts) == 1:
        return NodeLock(at=at)
    _, namespace, pod = parts
    if not (is_safe_name(namespace) and is_safe_name(pod)):
        return None
    return NodeLock(at=at, namespace=namespace, pod=pod)


def is_lock_needed(lock: NodeLock, holder: LockHolder | None, *, node: str, now: datetime) -> bool:
    """Say whether *lock* of *node* still protects *holder*, ``None`` where that pod is gone.

    A pod needs it from its Binding until HAMi's plugin has served it. HAMi itself goes by the age
    alone: it takes the lock of a pod that still waits for its devices, which then get mixed up.
    """
    age = abs(now - lock.at)  # a clock may be ahead
    if not lock.pod:
        return age < EXPIRES_AFTER
    if holder is None or holder.over or holder.started:
        return False
    if not holder.node:
        return age < BIND_WITHIN
    return holder.node == node and holder.phase == ALLOCATING
