"""Underway: pods on their way to a node, so that nobody is sent after them in vain.

Between a scheduler's decision and the moment when watches tell of the promise, the node still looks
as free as before; a burst of pods would all be sent to the one that scores best. Until its Binding
comes, a pod is expected on the node that we scored best for it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Final

from allocator.extender.index import Index, NodeInfo
from allocator.extender.pod import BINDING_PRIORITY, SchedulingPod
from kube.clock import SYSTEM, Clock

KEPT_AFTER_COMMIT: Final = 2.0  # seconds after a decision, by when watches have told of a promise
EXPECTED_FOR: Final = 3.0  # seconds after a question, by when its Binding has come, if any


@dataclass(frozen=True, slots=True)
class _AssumedPod:
    """One pod on its way; ``until`` is monotonic seconds, ``None`` while it is being decided.

    ``expected`` says that nobody has asked to bind it yet.
    """

    pod: SchedulingPod
    until: float | None = None
    expected: bool = False


@dataclass(slots=True)
class _AssumedNode:
    """Those on their way to one node, by uid; ``pods`` are those of them that ``site`` has not.

    ``pods`` is ``None`` where they are to be found anew, which is also due at ``until``.
    """

    assumed: dict[str, _AssumedPod] = field(default_factory=dict)
    info: NodeInfo | None = None
    pods: tuple[SchedulingPod, ...] | None = None
    until: float = inf


class AssumedPods:
    """Knows who is being bound, and who just was."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        """Know of nobody yet."""
        self._clock = clock
        self._assumed: dict[str, _AssumedPod] = {}  # by uid
        self._nodes: dict[str, _AssumedNode] = {}
        self._pods: Mapping[str, SchedulingPod] = MappingProxyType(
            {}
        )  # as a watch of all of them tells

    def expect(self, pod: SchedulingPod, node: str) -> None:
        """Count *pod* as taking what it wants on *node* for now, where its Binding may go."""
        known = self._assumed.get(pod.uid)
        if known is None or known.expected:
            expected = replace(pod, nominated=node, priority=BINDING_PRIORITY)
            until = self._clock.monotonic() + EXPECTED_FOR
            self._put(_AssumedPod(expected, until, expected=True))

    def begin(self, pod: SchedulingPod) -> None:
        """Count *pod* as taking what it wants on the node that it is nominated to."""
        self._put(_AssumedPod(pod))

    def end(self, pod: SchedulingPod, *, promised: bool) -> None:
        """Forget *pod*, which had begun; if it was *promised* something, once others tell of it."""
        known = self._assumed.get(pod.uid)
        if known is None or known.pod is not pod:  # it came a second time
            return
        if promised:
            self._put(_AssumedPod(pod, self._clock.monotonic() + KEPT_AFTER_COMMIT))
        else:
            self._drop(pod.uid)

    def with_assumed(self, index: Index) -> Index:
        """Return *index* with those who are underway nominated, but for whom it knows bound."""
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
        """Expect nobody who is bound by now, wherever that is, or will not be."""
        expected = [uid for uid, going in self._assumed.items() if going.expected]
        for pod in filter(None, map(self._pods.get, expected)):
            if pod.node or pod.over or pod.deleting:
                self._drop(pod.uid)

    def _put(self, assumed: _AssumedPod) -> None:
        """Take *going*, in the place of what was known of this pod where it goes the same way."""
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
        """Forget whom *site* knows or who has been long enough; keep the order of the others."""
        known: Collection[str] = () if site is None else site.entries
        for uid, going in list(node.assumed.items()):
            if going.until is not None and (uid in known or going.until <= now):
                self._drop(uid)
        left = node.assumed.values()
        node.info, node.pods = site, tuple(g.pod for g in left if g.pod.uid not in known)
        node.until = min((g.until for g in left if g.until is not None), default=inf)
