"""Reports lasting drift: an Event on the Node for each, and a gauge of their number by kind."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from allocator.cluster.picture import ChangeTracker
from allocator.cluster.pods import Pods
from allocator.ledger.drift import DriftKind, LedgerDrift, find_drifts
from allocator.ledger.ledger import Ledger
from allocator.request.pod_summary import PodSummary
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
        self._drifts: dict[str, list[LedgerDrift]] = {}  # by node, where there are any
        self._pod_changes: ChangeTracker[PodSummary] = ChangeTracker()
        self._ledger_changes: ChangeTracker[Ledger] = ChangeTracker()

    async def sweep(self) -> None:
        """Report every drift that has lasted for ``LASTING_SECONDS``."""
        pods, ledgers = self._pods.by_uid, self._ledgers()
        if pods is None or ledgers is None:
            return
        by_node = await self._drifts_by_node(pods, ledgers)
        ledger_drifts = [drift for drifts in by_node.values() for drift in drifts]
        now = self._clock.monotonic()
        self._since = {drift: self._since.get(drift, now) for drift in ledger_drifts}
        lasting = [drift for drift, since in self._since.items() if now - since >= LASTING_SECONDS]
        for drift in lasting:
            self._record(_event(drift))
        kinds = Counter(drift.kind for drift in lasting)
        for kind in DriftKind:
            self._count(kind, kinds[kind])

    async def _drifts_by_node(
        self, pods: Mapping[str, PodSummary], ledgers: Mapping[str, Ledger]
    ) -> Mapping[str, Sequence[LedgerDrift]]:
        """Return the drifts of all nodes that have any."""
        for name in self._changed_nodes(pods, ledgers):
            drifts: list[LedgerDrift] = []
            if name in ledgers:
                with isolated("drift check failed", node=name):
                    drifts.extend(find_drifts(ledgers[name], pods))
            if drifts:
                self._drifts[name] = drifts
            else:
                self._drifts.pop(name, None)
            await self._clock.sleep(0)  # in a large cluster this takes long; let other tasks run
        return self._drifts

    def _changed_nodes(
        self, pods: Mapping[str, PodSummary], ledgers: Mapping[str, Ledger]
    ) -> Collection[str]:
        """Return the nodes whose ledger, or the pod of an entry there, changed since last time."""
        uids, names = self._pod_changes.take(pods), self._ledger_changes.take(ledgers)
        if uids is None or names is None:
            self._drifts.clear()
            return tuple(ledgers)
        # Only bound pods are compared, with the ledgers of their nodes.
        bound = {pods[uid].node for uid in uids if uid in pods}
        return {*names, *bound, *self._drifts}


def _event(drift: LedgerDrift) -> Event:
    return Event(
        regarding=Reference(api_version="v1", kind="Node", name=drift.node),
        severity=Severity.WARNING,
        reason="VgpuDrift",
        action="Reconcile",
        note=drift.what,
    )
