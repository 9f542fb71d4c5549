"""Events on Nodes that both HAMi and we serve."""

from collections.abc import Callable, Mapping
from typing import Final

from kube.clock import SYSTEM, Clock
from kube.events import Event, Reference, Severity

SWEEP_SECONDS: Final = 10.0  # between sweeps
LASTING_SECONDS: Final = 30.0  # a move from one to the other is worth no Event


class OwnershipController:
    """Follows which nodes have two owners, and since when."""

    def __init__(
        self,
        warnings: Callable[[], Mapping[tuple[str, str], str]],
        *,
        record: Callable[[Event], None],
        clock: Clock = SYSTEM,
    ) -> None:
        """Record Events with *record*; *warnings* are by name and uid of the Node."""
        self._warnings = warnings
        self._record = record
        self._clock = clock
        self._since: dict[tuple[str, str], float] = {}  # by Node, monotonic seconds

    async def sweep(self) -> None:
        """Report every node that has had two owners for ``LASTING_SECONDS``."""
        warnings, now = self._warnings(), self._clock.monotonic()
        self._since = {node: self._since.get(node, now) for node in warnings}
        for node, warning in warnings.items():
            if now - self._since[node] >= LASTING_SECONDS:
                self._record(_event(*node, warning))


def _event(name: str, uid: str, warning: str) -> Event:
    return Event(
        regarding=Reference(api_version="v1", kind="Node", name=name, uid=uid),
        severity=Severity.WARNING,
        reason="VgpuTwoOwners",
        action="Admit",
        note=warning,
    )
