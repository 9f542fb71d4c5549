"""Ended: since when pods are over or gone, as a watch of all pods tells of it."""

from collections.abc import Collection, Mapping
from datetime import datetime
from types import MappingProxyType

from allocator.core.endings import LINGERS, Terminations
from allocator.core.pods import SchedulingPod
from kube.clock import Clock


class EndedPods:
    """Remembers each end for as long as it matters."""

    def __init__(self, clock: Clock) -> None:
        """Have seen nothing yet."""
        self._clock = clock
        self._began: datetime | None = None
        self._pods: Mapping[str, SchedulingPod] = MappingProxyType({})
        self._ended: dict[str, datetime] = {}  # the latest at the end

    def know(self, pods: Mapping[str, SchedulingPod], touched: Collection[str]) -> None:
        """Take *pods* by uid, of which those *touched* may have changed."""
        now = self._clock.wall()
        self._began = self._began or now
        for uid in touched:
            if self._ends(uid, pods.get(uid)):
                self._ended.pop(uid, None)
                self._ended[uid] = now
        while self._ended and self._ended[first := next(iter(self._ended))] <= now - LINGERS:
            del self._ended[first]
        self._pods = pods

    def _ends(self, uid: str, pod: SchedulingPod | None) -> bool:
        """Say whether *pod* has ended, and had not when it was last heard of."""
        before = self._pods.get(uid)
        if pod is None:
            return before is not None and not before.over
        return pod.over and not (before is not None and before.over)

    def endings(self) -> Terminations | None:
        """Return what is known by now, ``None`` before the first picture."""
        if self._began is None:
            return None
        return Terminations(
            now=self._clock.wall(), began=self._began, ended=MappingProxyType(self._ended)
        )
