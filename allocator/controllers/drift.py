"""Reports lasting drift: an Event on the Node for each, and a gauge of their number by kind."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from allocator.cluster.pods import Pods
from allocator.ledger.drift import DriftKind, LedgerDrift, find_drifts
from allocator.ledger.ledger import Ledger
from kube.clock import SYSTEM, Clock
from kube.events import Event, Reference, Severity
from kube.workqueue import isolated

SWEEP_SECONDS: Final = 10.0  # between sweeps
LASTING_SECONDS: Final = 10.0  # caches of pods and of ledgers may disagree for a while


class DriftController:
    """Compares all ledgers with all pods."""

    def __init__(
        self,
        ledgers: Callable[[], Mapping[str, Ledger] | None],
        pods: Pods,
        *,
        record: Callable[[Event], None],
        count: Callable[[str, int], None],
        clock: Clock = SYSTEM,
    ) -> None:
        """Record Events with *record*; *count* takes a kind and its number of lasting drifts."""
        self._ledgers = ledgers
        self._pods = pods
        self._record = record
        self._count = count
        self._clock = clock
        self._since: dict[LedgerDrift, float] = {}  # monotonic seconds

    async def sweep(self) -> None:
        """Report every drift that has lasted for ``LASTING_SECONDS``."""
        pods, ledgers = self._pods.by_uid, self._ledgers()
        if pods is None or ledgers is None:
            return
        ledger_drifts: list[LedgerDrift] = []
        for ledger in ledgers.values():
            with isolated("drift check failed", node=ledger.name):
                ledger_drifts.extend(find_drifts(ledger, pods))
            await self._clock.sleep(0)  # in a large cluster this takes long; let other tasks run
        now = self._clock.monotonic()
        self._since = {drift: self._since.get(drift, now) for drift in ledger_drifts}
        lasting = [drift for drift, since in self._since.items() if now - since >= LASTING_SECONDS]
        for drift in lasting:
            self._record(_event(drift))
        kinds = Counter(drift.kind for drift in lasting)
        for kind in DriftKind:
            self._count(kind, kinds[kind])


def _event(drift: LedgerDrift) -> Event:
    return Event(
        regarding=Reference(api_version="v1", kind="Node", name=drift.node),
        severity=Severity.WARNING,
        reason="VgpuDrift",
        action="Reconcile",
        note=drift.what,
    )
