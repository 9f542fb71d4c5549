"""Assumed pods: pods being bound to a node, so that others are not sent to the same room.

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
from allocator.extender.pod import FIRST, SchedulingPod
from kube.clock import SYSTEM, Clock

STAYS: Final = 2.0  # seconds after a decision, by when watches have told of a promise
EXPECTED: Final = 3.0  # seconds after a question, by when its Binding has come, if any


@dataclass(frozen=True, slots=True)
class _AssumedPod:
    """One pod on its way; ``until`` is monotonic seconds, ``None`` while it is being decided.

    ``expected`` says that nobody has asked to bind it yet.
    """

    pod: SchedulingPod
    until: float | None = None
    expected: bool = False


@dataclass(slots=True)
class _Node:
    """Those on their way to one node, by uid; ``pods`` are those of them that ``site`` has not.

    ``pods`` is ``None`` where they are to be found anew, which is also due at ``until``.
    """

    going: dict[str, _AssumedPod] = field(default_factory=dict)
    site: NodeInfo | None = None
    pods: tuple[SchedulingPod, ...] | None = None
    until: float = inf


class AssumedPods:
    """Knows who is being bound, and who just was."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        """Know of nobody yet."""
        self._clock = clock
        self._going: dict[str, _AssumedPod] = {}  # by uid
        self._nodes: dict[str, _Node] = {}
        self._pods: Mapping[str, SchedulingPod] = MappingProxyType(
            {}
        )  # as a watch of all of them tells

    def expect(self, pod: SchedulingPod, node: str) -> None:
        """Count *pod* as taking what it wants on *node* for now, where its Binding may go."""
        going = self._going.get(pod.uid)
        if going is None or going.expected:
            expected = replace(pod, nominated=node, priority=FIRST)
            until = self._clock.monotonic() + EXPECTED
            self._put(_AssumedPod(expected, until, expected=True))

    def begin(self, pod: SchedulingPod) -> None:
        """Count *pod* as taking what it wants on the node that it is nominated to."""
        self._put(_AssumedPod(pod))

    def end(self, pod: SchedulingPod, *, promised: bool) -> None:
        """Forget *pod*, which had begun; if it was *promised* something, once others tell of it."""
        going = self._going.get(pod.uid)
        if going is None or going.pod is not pod:  # it came a second time
            return
        if promised:
            self._put(_AssumedPod(pod, self._clock.monotonic() + STAYS))
        else:
            self._drop(pod.uid)

    def with_assumed(self, index: Index) -> Index:
        """Return *index* with those who are underway nominated, but for whom it knows bound."""
        if index.pods is not self._pods:
            self._pods = index.pods
            self._drop_arrived()
        now = self._clock.monotonic()
        found: dict[str, tuple[SchedulingPod, ...]] = {}
        for name, node in list(self._nodes.items()):
            site = index.sites.get(name)
            if node.pods is None or node.site is not site or node.until <= now:
                self._renew(node, site, now)
            if node.pods:
                found[name] = node.pods
        if not found:
            return index
        for name, pods in index.nominations.items():
            there = found.get(name, ())
            uids = {pod.uid for pod in there}
            found[name] = (*there, *(pod for pod in pods if pod.uid not in uids))
        return replace(index, nominations=MappingProxyType(found))

    def _drop_arrived(self) -> None:
        """Expect nobody who is bound by now, wherever that is, or will not be."""
        expected = [uid for uid, going in self._going.items() if going.expected]
        for pod in filter(None, map(self._pods.get, expected)):
            if pod.node or pod.over or pod.deleting:
                self._drop(pod.uid)

    def _put(self, going: _AssumedPod) -> None:
        """Take *going*, in the place of what was known of this pod where it goes the same way."""
        pod = going.pod
        before = self._going.get(pod.uid)
        if before is not None and before.pod.nominated != pod.nominated:
            self._drop(pod.uid)
        self._going[pod.uid] = going
        node = self._nodes.setdefault(pod.nominated, _Node())
        node.going[pod.uid] = going
        node.pods = None

    def _drop(self, uid: str) -> None:
        name = self._going.pop(uid).pod.nominated
        node = self._nodes[name]
        del node.going[uid]
        node.pods = None
        if not node.going:
            del self._nodes[name]

    def _renew(self, node: _Node, site: NodeInfo | None, now: float) -> None:
        """Forget whom *site* knows or who has been long enough; keep the order of the others."""
        known: Collection[str] = () if site is None else site.entries
        for uid, going in list(node.going.items()):
            if going.until is not None and (uid in known or going.until <= now):
                self._drop(uid)
        left = node.going.values()
        node.site, node.pods = site, tuple(g.pod for g in left if g.pod.uid not in known)
        node.until = min((g.until for g in left if g.until is not None), default=inf)
