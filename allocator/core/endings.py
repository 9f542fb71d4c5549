"""Endings: until when room is said to be coming of a pod that ends.

What a pod was promised is free once its node says so, which takes some seconds. Where the agent is
silent, or a kubelet cannot end a pod, it may never be, and nobody should wait for that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from allocator.core.pods import SchedulingPod
from allocator.model.ledger import Entry

LINGERS: Final = timedelta(seconds=60)  # after a pod's end, until its node has surely said so


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminations:
    """What is known at *now* of pods' ends by who has watched them since *began*.

    ``ended`` says since when pods are over or gone, by uid; it may leave out those that have
    lingered. All are wall times, because the API server's are.
    """

    now: datetime
    began: datetime
    ended: Mapping[str, datetime]

    def is_overdue(self, entry: Entry, pod: SchedulingPod | None) -> bool:
        """Say whether what *entry* promises to *pod*, which ends, should have been free by now.

        Then it is taken like any other, until it is free.
        """
        end = self._end(entry, pod)
        return end is None or end <= self.now - LINGERS

    def _end(self, entry: Entry, pod: SchedulingPod | None) -> datetime | None:
        """Return when *pod* ended, or will at the latest; ``None`` where nobody will see that."""
        if pod is None:  # gone, or not heard of yet, as a promise that is new may be told of first
            return max(self.ended.get(entry.uid, self.began), entry.since)
        if pod.over:
            return self.ended.get(entry.uid, self.began)
        return pod.leaves
