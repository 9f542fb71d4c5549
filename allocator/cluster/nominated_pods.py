"""Pods as schedulers rank them, nominations, terminations."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Final

from allocator.extender.index import Index
from allocator.extender.pod import LINGERS, SchedulingPod, Terminations
from kube.clock import SYSTEM, Clock
from kube.shared_informer import SharedInformer


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


# kube-scheduler forgets a nomination as soon as the evicted pods are gone, which is before their
# node says that their room is free. Until the pod has had its next turn, after a back-off of up
# to ten seconds, somebody has to keep that room for it.
REMEMBERED: Final = 30.0  # seconds


class NominatedPods:
    """Knows the pods that others are ranked beside, and to which nodes they are nominated."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        """Know of none yet."""
        self._clock = clock
        self._ended = EndedPods(clock)
        self._pods: Mapping[str, SchedulingPod] = MappingProxyType({})
        self._unbound: dict[str, SchedulingPod] = {}
        self._until: dict[str, float] = {}  # of nominations that are only remembered
        # By node: when the last pod began to leave it, and the lowest priority of those that did.
        self._left: dict[str, tuple[float, int]] = {}
        self._by_node: Mapping[str, tuple[SchedulingPod, ...]] = MappingProxyType(
            {}
        )  # but for hints
        self._hinted: Mapping[str, tuple[SchedulingPod, ...]] = MappingProxyType({})  # with hints

    def follow(self, watch: SharedInformer, read: Callable[[bytes], SchedulingPod]) -> None:
        """Take part in a watch of all pods, which *read* reads."""
        watch.add(read, self.know)

    def know(self, pods: Mapping[str, SchedulingPod], touched: Collection[str]) -> None:
        """Take *pods* by uid, of which those *touched* may have changed."""
        self._ended.know(pods, touched)
        known, self._pods = self._pods, pods
        now = self._clock.monotonic()
        moved = self._note_who_leaves(known, touched)
        for uid in touched:
            before, pod = self._unbound.pop(uid, None), pods.get(uid)
            until = self._until.pop(uid, now + REMEMBERED)
            nominee = None if pod is None else _nominee(pod, before)
            if pod is not None and nominee is not None:
                self._unbound[uid] = nominee
                if not pod.nominated:
                    self._until[uid] = until
            moved = moved or nominee is not None or before is not None
        if moved:
            self._prove()
            self._group()

    def _note_who_leaves(
        self, known: Mapping[str, SchedulingPod], touched: Collection[str]
    ) -> bool:
        """Note from which nodes pods leave, and how little they matter; say whether any does."""
        now, noted = self._clock.monotonic(), False
        for uid in touched:
            pod = self._pods.get(uid)
            last = known.get(uid) if pod is None else pod
            if last is None or not last.node or not (pod is None or _is_gone(pod)):
                continue
            _, lowest = self._left.pop(last.node, (now, last.priority))
            self._left[last.node] = now, min(lowest, last.priority)  # the latest at the end
            noted = True
        while self._left and (first := next(iter(self._left))) and self._is_late(first):
            del self._left[first]
        return noted

    def _is_late(self, node: str) -> bool:
        return self._left[node][0] + REMEMBERED <= self._clock.monotonic()

    def _prove(self) -> None:
        """Take hints for claims where somebody less important leaves: a scheduler makes room."""
        for uid, pod in self._unbound.items():
            if pod.hinted and pod.nominated in self._left:
                _, lowest = self._left[pod.nominated]
                if lowest < pod.priority:
                    self._unbound[uid] = replace(pod, hinted=False)

    def with_nominations(self, index: Index, *, hinted: bool = False) -> Index:
        """Return *index* with the pods that are known, nominated by schedulers or also *hinted*."""
        now = self._clock.monotonic()
        if late := [uid for uid, until in self._until.items() if until <= now]:
            for uid in late:
                del self._until[uid], self._unbound[uid]
            self._group()
        nominations = self._hinted if hinted else self._by_node
        endings = self._ended.endings()
        return replace(index, pods=self._pods, nominations=nominations, endings=endings)

    def _group(self) -> None:
        everybody = list(self._unbound.values())
        self._by_node = _group_by_node([pod for pod in everybody if not pod.hinted])
        self._hinted = self._by_node
        if any(pod.hinted for pod in everybody):
            self._hinted = _group_by_node(everybody)


def _nominee(pod: SchedulingPod, before: SchedulingPod | None) -> SchedulingPod | None:
    """Return *pod* with its nomination, or else with the one that it had *before*.

    A hint of ours claims nothing, and nobody remembers it.
    """
    if pod.node or _is_gone(pod):
        return None
    if pod.nominated:
        proven = before is not None and not before.hinted and before.nominated == pod.nominated
        return replace(pod, hinted=False) if proven and pod.hinted else pod
    if before is None or before.hinted:
        return None
    return replace(pod, nominated=before.nominated, wanted=before.wanted)


def _is_gone(pod: SchedulingPod) -> bool:
    return pod.deleting or pod.over


def _group_by_node(pods: Collection[SchedulingPod]) -> Mapping[str, tuple[SchedulingPod, ...]]:
    """Group *pods* by the node that they are nominated to, the most important first."""
    groups: dict[str, list[SchedulingPod]] = {}
    for pod in sorted(pods, key=lambda pod: pod.queue_key):
        groups.setdefault(pod.nominated, []).append(pod)
    return MappingProxyType({name: tuple(found) for name, found in groups.items()})
