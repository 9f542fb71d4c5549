"""A pod as the extender sees it, and until when room of an ending pod counts as coming."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from allocator.groups.members import GroupPod
from allocator.ledger.assign import PodClaim
from allocator.model.allocation import Entry
from allocator.model.decision import Findings

BINDING_PRIORITY: Final = (
    2**31 - 1
)  # the priority of a pod that is being bound: nobody comes before it


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingPod:
    """One pod."""

    uid: str
    namespace: str
    name: str
    priority: int = 0
    created: str = ""  # RFC 3339
    node: str = ""  # empty until it is bound
    nominated: str = ""  # status.nominatedNodeName
    hinted: bool = False  # the nomination is a hint of ours, no claim of a scheduler
    deleting: bool = False
    deadline: datetime | None = None  # of a deleted pod: when its grace period ends, if ever
    over: bool = False  # its containers have ended for good
    # What it asks for: None for no GPUs, findings where that cannot be read. Not read of a bound
    # pod, because its entry says what it has.
    claim: PodClaim | Findings | None = None
    # The pod as a member of its job, where whoever asks about it says so.
    member: GroupPod | None = None

    @property
    def queue_key(self) -> tuple[int, str, str]:
        """Return the sort key of pending pods: schedulers try the lowest first."""
        return -self.priority, self.created, self.uid


END_REPORT_TIME: Final = timedelta(
    seconds=60
)  # after a pod's end, until its node has surely said so


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminations:
    """When pods ended; all are wall times, because the API server's are."""

    now: datetime
    watching_since: datetime  # ends before this were not seen
    ended: Mapping[str, datetime]  # by uid; may lack ends older than END_REPORT_TIME

    def is_overdue(self, entry: Entry, pod: SchedulingPod | None) -> bool:
        """Say whether the GPUs of *entry*, of the ending *pod*, should have become free by now.

        Room that is overdue counts as taken, not as coming.
        """
        end = self._end(entry, pod)
        return end is None or end <= self.now - END_REPORT_TIME

    def _end(self, entry: Entry, pod: SchedulingPod | None) -> datetime | None:
        """Return when *pod* ended, or will at the latest; ``None`` where that is not known."""
        if pod is None:  # gone, or new: its entry may be seen before the pod is
            return max(self.ended.get(entry.uid, self.watching_since), entry.since)
        if pod.over:
            return self.ended.get(entry.uid, self.watching_since)
        return pod.deadline
