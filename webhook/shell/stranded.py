"""Stranded: pods that were bound past our hook to a node that can promise nothing, told once.

Such a node may be on its way, with an agent that starts or accounts for what runs there. So a
minute passes before its pods hear what they wait for.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from allocator.core.podfacts import PodSummary
from kube.clock import Clock

AFTER: Final = 60.0  # seconds


class PodsWithoutGpuNode:
    """Remembers since when each pod has been stranded, for as long as it is."""

    def __init__(self, tell: Callable[[PodSummary, str], None], clock: Clock) -> None:
        """Let *tell* tell each pod why."""
        self._tell = tell
        self._clock = clock
        self._since: dict[str, float] = {}  # monotonic seconds by uid; infinite once it was told

    def know(self, found: Mapping[str, tuple[PodSummary, str]]) -> None:
        """Take all pods that are stranded now by uid, each with what its node lacks."""
        now = self._clock.monotonic()
        self._since = {uid: self._since.get(uid, now) for uid in found}
        for uid, (pod, why) in found.items():
            if now - self._since[uid] >= AFTER:
                self._since[uid] = inf
                self._tell(pod, why)
