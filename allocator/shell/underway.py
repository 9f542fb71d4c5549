"""Underway: pods on their way to a node, so that nobody is sent after them in vain.

Between a scheduler's decision and the moment when watches tell of the promise, the node still looks
as free as before; a burst of pods would all be sent to the one that scores best. Until its Binding
comes, a pod is expected on the node that we scored best for it.
"""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from allocator.core.index import Index
from allocator.core.pods import FIRST, Pod
from kube.clock import SYSTEM, Clock

STAYS: Final = 2.0  # seconds after a decision, by when watches have told of a promise
EXPECTED: Final = 3.0  # seconds after a question, by when its Binding has come, if any


@dataclass(slots=True)
class _Going:
    """One pod on its way; ``until`` is monotonic seconds, ``None`` while it is being decided.

    ``expected`` says that nobody has asked to bind it yet.
    """

    pod: Pod
    until: float | None = None
    expected: bool = False


class Underway:
    """Knows who is being bound, and who just was."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        """Know of nobody yet."""
        self._clock = clock
        self._going: dict[str, _Going] = {}  # by uid

    def expect(self, pod: Pod, node: str) -> None:
        """Count *pod* as taking what it wants on *node* for now, where its Binding may go."""
        going = self._going.get(pod.uid)
        if going is None or going.expected:
            expected = replace(pod, nominated=node, priority=FIRST)
            until = self._clock.monotonic() + EXPECTED
            self._going[pod.uid] = _Going(expected, until, expected=True)

    def begin(self, pod: Pod) -> None:
        """Count *pod* as taking what it wants on the node that it is nominated to."""
        self._going[pod.uid] = _Going(pod)

    def end(self, pod: Pod, *, promised: bool) -> None:
        """Forget *pod*, which had begun; if it was *promised* something, once others tell of it."""
        going = self._going.get(pod.uid)
        if going is None or going.pod is not pod:  # it came a second time
            return
        if promised:
            going.until = self._clock.monotonic() + STAYS
        else:
            del self._going[pod.uid]

    def beside(self, index: Index) -> Index:
        """Return *index* with those who are underway nominated, but for whom it knows bound."""
        now = self._clock.monotonic()
        found: dict[str, tuple[Pod, ...]] = {}
        for uid, going in list(self._going.items()):
            node = going.pod.nominated
            known = uid in index.entries(node)
            if going.until is not None and (known or going.until <= now):
                del self._going[uid]
            elif not known:
                found[node] = (*found.get(node, ()), going.pod)
        if not found:
            return index
        for node, pods in index.nominations.items():
            there = found.get(node, ())
            uids = {pod.uid for pod in there}
            found[node] = (*there, *(pod for pod in pods if pod.uid not in uids))
        return replace(index, nominations=MappingProxyType(found))
