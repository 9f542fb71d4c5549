"""Pods on their way to a node, as kube-scheduler's cache "assumes" them.

Between a scheduler's decision and the moment when watches show the entry, the node looks free, so
that all pods of a burst would be sent to the node with the best score. A pod therefore counts on a
node in these states:

- expected (``expect``): the node scored best for it, and no Binding has come yet. The state ends
  after ``EXPECTED_FOR`` seconds, or when a watch shows the pod bound, ended or deleted.
- binding (``begin``): its Binding is being decided.
- committed (``end``): it has an entry that watches may not show yet. The state ends when they do,
  or after ``KEPT_AFTER_COMMIT`` seconds.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Final

from allocator.extender.index import Index, NodeInfo
from allocator.extender.pod import BINDING_PRIORITY, SchedulingPod
from kube.clock import SYSTEM, Clock

KEPT_AFTER_COMMIT: Final = 2.0  # seconds within which watches show the entry
EXPECTED_FOR: Final = 3.0  # seconds after prioritize within which the Binding comes, if at all


@dataclass(frozen=True, slots=True)
class _AssumedPod:
    """One pod on its way to a node."""

    pod: SchedulingPod  # nominated to that node
    until: float | None = None  # monotonic seconds; None while its Binding is being decided
    expected: bool = False  # no Binding has come yet


@dataclass(slots=True)
class _AssumedNode:
    """The pods on their way to one node."""

    assumed: dict[str, _AssumedPod] = field(default_factory=dict)  # by uid
    info: NodeInfo | None = None  # the node when *pods* was computed
    pods: tuple[SchedulingPod, ...] | None = None  # without an entry; None: must be computed anew
    until: float = inf  # monotonic seconds at which *pods* must be computed anew


class AssumedPods:
    """The pods that are about to be bound, are being bound, or just were."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        """Start without pods."""
        self._clock = clock
        self._assumed: dict[str, _AssumedPod] = {}  # by uid
        self._nodes: dict[str, _AssumedNode] = {}

    def expect(self, pod: SchedulingPod, node: str) -> None:
        """Count *pod* on *node* for ``EXPECTED_FOR`` seconds, unless it is being bound."""
        known = self._assumed.get(pod.uid)
        if known is None or known.expected:
            expected = replace(pod, nominated=node, priority=BINDING_PRIORITY)
            until = self._clock.monotonic() + EXPECTED_FOR
            self._put(_AssumedPod(expected, until, expected=True))

    def begin(self, pod: SchedulingPod) -> None:
        """Count *pod* on the node that it is nominated to, until :meth:`end`."""
        self._put(_AssumedPod(pod))

    def end(self, pod: SchedulingPod, *, promised: bool) -> None:
        """Forget *pod* at once, or, if it was *promised* GPUs, when watches show its entry."""
        known = self._assumed.get(pod.uid)
        if known is None or known.pod is not pod:  # a later Binding of it replaced this one
            return
        if promised:
            self._put(_AssumedPod(pod, self._clock.monotonic() + KEPT_AFTER_COMMIT))
        else:
            self._drop(pod.uid)

    def with_assumed(self, index: Index) -> Index:
        """Return *index* with assumed pods nominated, without those whose entries it has."""
        self._drop_bound(index.pods)
        now = self._clock.monotonic()
        nominations: dict[str, tuple[SchedulingPod, ...]] = {}
        for name, node in list(self._nodes.items()):
            info = index.node_infos.get(name)
            if node.pods is None or node.info is not info or node.until <= now:
                self._renew(node, info, now)
            if node.pods:
                nominations[name] = node.pods
        if not nominations:
            return index
        for name, pods in index.nominations.items():
            assumed = nominations.get(name, ())
            uids = {pod.uid for pod in assumed}
            nominations[name] = (*assumed, *(pod for pod in pods if pod.uid not in uids))
        return replace(index, nominations=MappingProxyType(nominations))

    def _drop_bound(self, pods: Mapping[str, SchedulingPod]) -> None:
        """Drop expected pods that *pods*, of a watch, shows as bound, ended or deleted."""
        expected = [uid for uid, assumed in self._assumed.items() if assumed.expected]
        for pod in filter(None, map(pods.get, expected)):
            if pod.node or pod.over or pod.deleting:
                self._drop(pod.uid)

    def _put(self, assumed: _AssumedPod) -> None:
        """Add or replace one pod."""
        pod = assumed.pod
        before = self._assumed.get(pod.uid)
        if before is not None and before.pod.nominated != pod.nominated:
            self._drop(pod.uid)
        self._assumed[pod.uid] = assumed
        node = self._nodes.setdefault(pod.nominated, _AssumedNode())
        node.assumed[pod.uid] = assumed
        node.pods = None

    def _drop(self, uid: str) -> None:
        name = self._assumed.pop(uid).pod.nominated
        node = self._nodes[name]
        del node.assumed[uid]
        node.pods = None
        if not node.assumed:
            del self._nodes[name]

    def _renew(self, node: _AssumedNode, info: NodeInfo | None, now: float) -> None:
        """Drop pods with an entry in *info* and expired pods, and compute the node's pods anew."""
        known: Collection[str] = () if info is None else info.entries
        for uid, assumed in list(node.assumed.items()):
            if assumed.until is not None and (uid in known or assumed.until <= now):
                self._drop(uid)
        remaining = node.assumed.values()
        node.info, node.pods = info, tuple(a.pod for a in remaining if a.pod.uid not in known)
        node.until = min((a.until for a in remaining if a.until is not None), default=inf)
