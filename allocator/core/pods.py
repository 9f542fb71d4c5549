"""Pods as schedulers and watches show them: what decides who gets room, and who makes it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from allocator.core.commitment import PodClaim
from allocator.model.decision import Finding

FIRST: Final = 2**31 - 1  # the priority of a pod that is being bound: nobody comes before it


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
    leaves: datetime | None = None
    over: bool = False
    wanted: PodClaim | tuple[Finding, ...] | None = None

    @property
    def queue_key(self) -> tuple[int, str, str]:
        """Return who comes first: by the lower one, as schedulers order pods that wait."""
        return -self.priority, self.created, self.uid
