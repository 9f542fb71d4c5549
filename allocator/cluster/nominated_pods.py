"""Follows all pods for the extender: which are nominated to which node, and which have ended."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Final

from allocator.cluster.picture import Picture
from allocator.extender.index import Index
from allocator.extender.pod import END_REPORT_TIME, SchedulingPod, Terminations
from allocator.request.pod_fields import WatchedPod
from kube.clock import SYSTEM, Clock
from kube.shared_informer import SharedInformer


class EndedPods:
    """When pods ended, for as long as their GPUs may not have been reported free yet."""

    def __init__(self, clock: Clock) -> None:
        """Wait for the first list."""
        self._clock = clock
        self._watching_since: datetime | None = None
        self._ended: dict[str, datetime] = {}  # the latest at the end

    def update(
        self, pods: Mapping[str, SchedulingPod], changes: Mapping[str, SchedulingPod | None]
    ) -> None:
        """Take *changes* of *pods*, by uid, which do not have them yet."""
        now = self._clock.wall()
        self._watching_since = self._watching_since or now
        for uid, pod in changes.items():
            if _ends(pods.get(uid), pod):
                self._ended.pop(uid, None)
                self._ended[uid] = now
        while self._ended:
            oldest = next(iter(self._ended))
            if self._ended[oldest] > now - END_REPORT_TIME:
                break
            del self._ended[oldest]

    def terminations(self) -> Terminations | None:
        """Return what is known at this moment, ``None`` before the first list."""
        if self._watching_since is None:
            return None
        return Terminations(
            now=self._clock.wall(),
            watching_since=self._watching_since,
            ended=MappingProxyType(self._ended),
        )


def _ends(before: SchedulingPod | None, pod: SchedulingPod | None) -> bool:
    """Say whether a pod that was *before* has ended since."""
    if pod is None:
        return before is not None and not before.over
    return pod.over and not (before is not None and before.over)


# kube-scheduler clears a nomination as soon as the evicted pods are gone, which is before their
# node reports their GPUs free. The GPUs must stay reserved for the pod until the scheduler retries
# it, after a back-off of up to ten seconds.
REMEMBERED_SECONDS: Final = 30.0


class NominatedPods:
    """All pods, and which of them are nominated to which node.

    A nomination is a scheduler's claim. A hint is one of ours, and claims nothing until a scheduler
    acts on it (:meth:`_confirm_hints`).
    """

    def __init__(self, clock: Clock = SYSTEM) -> None:
        """Wait for the first list."""
        self._clock = clock
        self._ended = EndedPods(clock)
        self._pods: Picture[SchedulingPod] = Picture()
        self._nominated: dict[str, SchedulingPod] = {}
        self._expiry: dict[str, float] = {}  # of nominations that are only remembered
        # By node: when the last pod began to leave it, and the lowest priority of those that did.
        self._departures: dict[str, tuple[float, int]] = {}
        # Nominations by node, without hints and with them.
        self._by_node: Mapping[str, tuple[SchedulingPod, ...]] = MappingProxyType({})
        self._by_node_with_hints: Mapping[str, tuple[SchedulingPod, ...]] = self._by_node

    def follow(
        self,
        watch: SharedInformer[WatchedPod],
        view: Callable[[WatchedPod, bytes], SchedulingPod],
    ) -> None:
        """Follow a watch of all pods; *view* reads one."""
        watch.add(view, self.update)

    def update(self, changes: Mapping[str, SchedulingPod | None]) -> None:
        """Take *changes* of pods, by uid."""
        self._ended.update(self._pods, changes)
        now = self._clock.monotonic()
        changed = self._note_departures(changes)
        self._pods.apply(changes)
        for uid, pod in changes.items():
            before = self._nominated.pop(uid, None)
            until = self._expiry.pop(uid, now + REMEMBERED_SECONDS)
            nominee = None if pod is None else _nominated_pod(pod, before)
            if pod is not None and nominee is not None:
                self._nominated[uid] = nominee
                if not pod.nominated:
                    self._expiry[uid] = until
            changed = changed or nominee is not None or before is not None
        if changed:
            self._confirm_hints()
            self._group()

    def _note_departures(self, changes: Mapping[str, SchedulingPod | None]) -> bool:
        """Note the nodes that pods begin to leave by *changes*; return whether there are any."""
        now, noted = self._clock.monotonic(), False
        for uid, pod in changes.items():
            last = self._pods.get(uid) if pod is None else pod
            if last is None or not last.node or not (pod is None or _is_gone(pod)):
                continue
            _, lowest = self._departures.pop(last.node, (now, last.priority))
            self._departures[last.node] = now, min(lowest, last.priority)  # the latest at the end
            noted = True
        while self._departures and self._has_expired(oldest := next(iter(self._departures))):
            del self._departures[oldest]
        return noted

    def _has_expired(self, node: str) -> bool:
        return self._departures[node][0] + REMEMBERED_SECONDS <= self._clock.monotonic()

    def _confirm_hints(self) -> None:
        """Turn hints into nominations where a pod of lower priority leaves the node.

        That departure shows that a scheduler preempts pods there.
        """
        for uid, pod in self._nominated.items():
            if pod.hinted and pod.nominated in self._departures:
                _, lowest = self._departures[pod.nominated]
                if lowest < pod.priority:
                    self._nominated[uid] = replace(pod, hinted=False)

    def with_nominations(self, index: Index, *, hinted: bool = False) -> Index:
        """Return *index* with all pods and nominations; with *hinted*, hints count as such."""
        now = self._clock.monotonic()
        if expired := [uid for uid, until in self._expiry.items() if until <= now]:
            for uid in expired:
                del self._expiry[uid], self._nominated[uid]
            self._group()
        nominations = self._by_node_with_hints if hinted else self._by_node
        terminations = self._ended.terminations()
        return replace(index, pods=self._pods, nominations=nominations, terminations=terminations)

    def _group(self) -> None:
        pods = list(self._nominated.values())
        self._by_node = _group_by_node([pod for pod in pods if not pod.hinted])
        self._by_node_with_hints = self._by_node
        if any(pod.hinted for pod in pods):
            self._by_node_with_hints = _group_by_node(pods)


def _nominated_pod(pod: SchedulingPod, before: SchedulingPod | None) -> SchedulingPod | None:
    """Return *pod* with its nomination, or else with that of its earlier version *before*.

    ``None`` where neither has one. A hint that was cleared is not remembered.
    """
    if pod.node or _is_gone(pod):
        return None
    if pod.nominated:
        proven = before is not None and not before.hinted and before.nominated == pod.nominated
        return replace(pod, hinted=False) if proven and pod.hinted else pod
    if before is None or before.hinted:
        return None
    return replace(pod, nominated=before.nominated, claim=before.claim)


def _is_gone(pod: SchedulingPod) -> bool:
    return pod.deleting or pod.over


def _group_by_node(pods: Collection[SchedulingPod]) -> Mapping[str, tuple[SchedulingPod, ...]]:
    """Group *pods* by the node that they are nominated to, the most important first."""
    groups: dict[str, list[SchedulingPod]] = {}
    for pod in sorted(pods, key=lambda pod: pod.queue_key):
        groups.setdefault(pod.nominated, []).append(pod)
    return MappingProxyType({name: tuple(group) for name, group in groups.items()})
