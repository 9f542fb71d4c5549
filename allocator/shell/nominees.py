"""Nominees: all pods as schedulers rank them, and for whom room is being made on which node."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from allocator.core.index import Index
from allocator.core.pods import Pod
from allocator.shell.endings import Ended
from kube.clock import SYSTEM, Clock
from kube.shared import Shared

# kube-scheduler forgets a nomination as soon as the evicted pods are gone, which is before their
# node says that their room is free. Until the pod has had its next turn, after a back-off of up
# to ten seconds, somebody has to keep that room for it.
REMEMBERED: Final = 30.0  # seconds


class Nominees:
    """Knows the pods that others are ranked beside, and to which nodes they are nominated."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        """Know of none yet."""
        self._clock = clock
        self._ended = Ended(clock)
        self._pods: Mapping[str, Pod] = MappingProxyType({})
        self._unbound: dict[str, Pod] = {}
        self._until: dict[str, float] = {}  # of nominations that are only remembered
        self._by_node: Mapping[str, tuple[Pod, ...]] = MappingProxyType({})

    def follow(self, watch: Shared, read: Callable[[bytes], Pod]) -> None:
        """Take part in a watch of all pods, which *read* reads."""
        watch.add(read, self.know)

    def know(self, pods: Mapping[str, Pod], touched: Collection[str]) -> None:
        """Take *pods* by uid, of which those *touched* may have changed."""
        self._ended.know(pods, touched)
        self._pods = pods
        moved = False
        for uid in touched:
            before, pod = self._unbound.pop(uid, None), pods.get(uid)
            until = self._until.pop(uid, self._clock.monotonic() + REMEMBERED)
            nominee = None if pod is None else _nominee(pod, before)
            if pod is not None and nominee is not None:
                self._unbound[uid] = nominee
                if not pod.nominated:
                    self._until[uid] = until
            moved = moved or nominee is not None or before is not None
        if moved:
            self._by_node = _grouped(self._unbound.values())

    def beside(self, index: Index) -> Index:
        """Return *index* with the pods that are known."""
        now = self._clock.monotonic()
        if late := [uid for uid, until in self._until.items() if until <= now]:
            for uid in late:
                del self._until[uid], self._unbound[uid]
            self._by_node = _grouped(self._unbound.values())
        endings = self._ended.endings()
        return replace(index, pods=self._pods, nominations=self._by_node, endings=endings)


def _nominee(pod: Pod, before: Pod | None) -> Pod | None:
    """Return *pod* with its nomination, or else with the one that it had *before*."""
    if pod.node or _gone(pod):
        return None
    if pod.nominated:
        return pod
    if before is None:
        return None
    return replace(pod, nominated=before.nominated, wanted=before.wanted)


def _gone(pod: Pod) -> bool:
    return pod.deleting or pod.over


def _grouped(pods: Collection[Pod]) -> Mapping[str, tuple[Pod, ...]]:
    """Group *pods* by the node that they are nominated to, the most important first."""
    groups: dict[str, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: pod.turn):
        groups.setdefault(pod.nominated, []).append(pod)
    return MappingProxyType({name: tuple(found) for name, found in groups.items()})
