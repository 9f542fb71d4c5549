"""Says of each node that stays closed why: in an Event on the Node and in ``status.closed``."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import structlog

from allocator.cluster.inventory import GPU_NODES
from allocator.cluster.picture import ChangeTracker
from allocator.ledger.closed import closed_reason
from allocator.ledger.ledger import LONGEST_STATED, Ledger
from allocator.ledger.lifecycle import NodeIdentity
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError
from kube.events import Event, Reference, Severity
from kube.workqueue import isolated

SWEEP_SECONDS: Final = 10.0  # between sweeps
LASTING_SECONDS: Final = 30.0  # agents start and nodes boot; neither is worth an Event
log = structlog.get_logger(__name__)


class LedgerCaches(Protocol):
    """The cached Nodes and GPUNodes."""

    def node_identities(self) -> Mapping[str, NodeIdentity] | None:
        """Return all Nodes by name, ``None`` while not all are known."""

    def ledgers(self) -> Mapping[str, Ledger] | None:
        """Return all GPUNodes by name, ``None`` while not all are known."""


class ClosedNodesController:
    """Follows which nodes are closed, and since when."""

    def __init__(  # noqa: PLR0913 -- each is one thing that it needs
        self,
        client: ApiClient,
        caches: LedgerCaches,
        *,
        upstream: Callable[[], bool],
        slot: Callable[[], str],
        record: Callable[[Event], None],
        clock: Clock = SYSTEM,
    ) -> None:
        """Write through *client*, record Events with *record*."""
        self._client = client
        self._caches = caches
        self._upstream = upstream
        self._slot = slot
        self._record = record
        self._clock = clock
        self._node_changes: ChangeTracker[NodeIdentity] = ChangeTracker()
        self._ledger_changes: ChangeTracker[Ledger] = ChangeTracker()
        self._settings: tuple[bool, str] | None = None  # of _closed
        self._closed: dict[str, str] = {}  # reason by node
        self._since: dict[str, float] = {}  # by node, monotonic seconds
        self._written: dict[str, str] = {}  # by node, so that no other writer is fought

    async def sweep(self) -> None:
        """Report every node that has been closed for ``LASTING_SECONDS``."""
        nodes, ledgers = self._caches.node_identities(), self._caches.ledgers()
        if nodes is None or ledgers is None:
            return
        closed = self._closed_nodes(nodes, ledgers)
        now = self._clock.monotonic()
        self._since = {name: self._since.get(name, now) for name in closed}
        self._written = {name: text for name, text in self._written.items() if name in closed}
        for name, reason in closed.items():
            if now - self._since[name] >= LASTING_SECONDS:
                self._record(_event(nodes[name], reason))
                with isolated("reason of a closed node not written", node=name):
                    await self._state(ledgers[name], reason)

    def _closed_nodes(
        self, nodes: Mapping[str, NodeIdentity], ledgers: Mapping[str, Ledger]
    ) -> Mapping[str, str]:
        """Return why nodes are closed, by name, computed anew for those that changed."""
        settings = upstream, slot = self._upstream(), self._slot()
        changes = self._node_changes.take(nodes), self._ledger_changes.take(ledgers)
        names: Iterable[str] = set().union(*(names or () for names in changes))
        if None in changes or settings != self._settings:
            self._settings, self._closed, names = settings, {}, tuple(ledgers)
        for name in names:
            self._closed.pop(name, None)
            if name in nodes and name in ledgers:
                reason = closed_reason(ledgers[name], nodes[name], upstream=upstream, slot=slot)
                if reason:
                    self._closed[name] = reason
        return self._closed

    async def _state(self, ledger: Ledger, reason: str) -> None:
        """Write *reason* into a status that has none, once.

        An agent of an earlier release drops the field, and would be fought otherwise.
        """
        if ledger.inventory or ledger.stated or self._written.get(ledger.name) == reason:
            return
        self._written[ledger.name] = reason
        metadata = {"resourceVersion": ledger.resource_version}
        changes = {"metadata": metadata, "status": {"closed": reason[:LONGEST_STATED]}}
        try:
            await self._client.merge_patch(f"{GPU_NODES}/{ledger.name}/status", changes)
        except KubeError as error:  # the next sweep tries again
            del self._written[ledger.name]
            log.info("reason of a closed node not written", node=ledger.name, why=str(error))


def _event(node: NodeIdentity, reason: str) -> Event:
    return Event(
        regarding=Reference(api_version="v1", kind="Node", name=node.name, uid=node.uid),
        severity=Severity.WARNING,
        reason="VgpuNodeClosed",
        action="Admit",
        note=f"the node takes no new pods that ask for vGPU: {reason}",
    )
