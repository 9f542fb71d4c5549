"""SchedulingPod; until when room of a terminating pod counts as coming."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from allocator.ledger.assign import PodClaim
from allocator.model.allocation import Entry
from allocator.model.decision import Finding

BINDING_PRIORITY: Final = (
    2**31 - 1
)  # the priority of a pod that is being bound: nobody comes before it


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingPod:
    """One pod.

    ``node`` is empty until it is bound; ``nominated`` is where a scheduler makes room for it, or
    where we ``hinted`` that it fits.
    ``created`` is an RFC 3339 time. ``over`` says that its containers have ended for good.
    ``leaves`` is when the grace of one that was deleted is over, ``None`` where that is never.
    ``wanted`` is what it asks for, ``None`` for nothing; of a bound pod it is not read, because
    the ledger knows what that was promised. A tuple says what is wrong with its request.
    """

    uid: str
    namespace: str
    name: str
    priority: int = 0
    created: str = ""
    node: str = ""
    nominated: str = ""
    hinted: bool = False
    deleting: bool = False
    deadline: datetime | None = None
    over: bool = False
    claim: PodClaim | tuple[Finding, ...] | None = None

    @property
    def queue_key(self) -> tuple[int, str, str]:
        """Return who comes first: by the lower one, as schedulers order pods that wait."""
        return -self.priority, self.created, self.uid


END_REPORT_TIME: Final = timedelta(
    seconds=60
)  # after a pod's end, until its node has surely said so


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminations:
    """What is known at *now* of pods' ends by who has watched them since *began*.

    ``ended`` says since when pods are over or gone, by uid; it may leave out those that have
    lingered. All are wall times, because the API server's are.
    """

    now: datetime
    watching_since: datetime
    ended: Mapping[str, datetime]

    def is_overdue(self, entry: Entry, pod: SchedulingPod | None) -> bool:
        """Say whether what *entry* promises to *pod*, which ends, should have been free by now.

        Then it is taken like any other, until it is free.
        """
        end = self._end(entry, pod)
        return end is None or end <= self.now - END_REPORT_TIME

    def _end(self, entry: Entry, pod: SchedulingPod | None) -> datetime | None:
        """Return when *pod* ended, or will at the latest; ``None`` where nobody will see that."""
        if pod is None:  # gone, or not heard of yet, as a promise that is new may be told of first
            return max(self.ended.get(entry.uid, self.watching_since), entry.since)
        if pod.over:
            return self.ended.get(entry.uid, self.watching_since)
        return pod.deadline
