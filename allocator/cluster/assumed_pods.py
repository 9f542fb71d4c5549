"""Pods on their way to a node, as kube-scheduler's cache "assumes" them.

Between a scheduler's decision and the moment when watches show the entry, the node looks free, so
that a burst of pods would all be sent to the one that scores best. A pod is therefore expected
on the node that scored best for it (``expect``), is being bound (``begin``), and counts for a
moment after its commit (``end``), until its entry shows.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Final

from allocator.extender.index import Index, NodeInfo
from allocator.extender.pod import BINDING_PRIORITY, SchedulingPod
from kube.clock import SYSTEM, Clock

KEPT_AFTER_COMMIT: Final = 2.0  # seconds after which watches have shown the entry
EXPECTED_FOR: Final = 3.0  # seconds after prioritize in which the Binding comes, if ever


@dataclass(frozen=True, slots=True)
class _AssumedPod:
    """One pod on its way."""

    pod: SchedulingPod  # nominated to the node that it goes to
    until: float | None = None  # monotonic seconds; None while its Binding is being decided
    expected: bool = False  # no Binding has come yet


@dataclass(slots=True)
class _AssumedNode:
    """The pods on their way to one node."""

    assumed: dict[str, _AssumedPod] = field(default_factory=dict)  # by uid
    info: NodeInfo | None = None  # the node when pods was made
    pods: tuple[SchedulingPod, ...] | None = None  # those without an entry; None: to be renewed
    until: float = inf  # monotonic seconds at which pods is to be renewed


class AssumedPods:
    """The pods that are about to be bound, are being bound, or just were."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        """Know of no pod yet."""
        self._clock = clock
        self._assumed: dict[str, _AssumedPod] = {}  # by uid
        self._nodes: dict[str, _AssumedNode] = {}
        self._pods: Mapping[str, SchedulingPod] = MappingProxyType(
            {}
        )  # as a watch of all of them tells

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
        """Forget *pod*, at once, or once its entry shows if it was *promised* GPUs."""
        known = self._assumed.get(pod.uid)
        if known is None or known.pod is not pod:  # it came a second time
            return
        if promised:
            self._put(_AssumedPod(pod, self._clock.monotonic() + KEPT_AFTER_COMMIT))
        else:
            self._drop(pod.uid)

    def with_assumed(self, index: Index) -> Index:
        """Return *index* with assumed pods nominated, without those whose entries it has."""
        if index.pods is not self._pods:
            self._pods = index.pods
            self._drop_bound()
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
            there = nominations.get(name, ())
            uids = {pod.uid for pod in there}
            nominations[name] = (*there, *(pod for pod in pods if pod.uid not in uids))
        return replace(index, nominations=MappingProxyType(nominations))

    def _drop_bound(self) -> None:
        """Drop expected pods that a watch shows as bound, ended or deleted."""
        expected = [uid for uid, going in self._assumed.items() if going.expected]
        for pod in filter(None, map(self._pods.get, expected)):
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

    def _renew(self, node: _AssumedNode, site: NodeInfo | None, now: float) -> None:
        """Drop pods with an entry in *site* and pods whose time is over; keep the others' order."""
        known: Collection[str] = () if site is None else site.entries
        for uid, going in list(node.assumed.items()):
            if going.until is not None and (uid in known or going.until <= now):
                self._drop(uid)
        left = node.assumed.values()
        node.info, node.pods = site, tuple(g.pod for g in left if g.pod.uid not in known)
        node.until = min((g.until for g in left if g.until is not None), default=inf)
