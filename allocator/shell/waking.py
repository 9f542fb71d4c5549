"""Waking: schedulers that parked a pod try again when a node has room that it had not before.

kube-scheduler looks again at a pod that an extender rejected when something of the cluster changes,
else after five minutes; the end of a pod is such a change, but comes before its GPU is free. So the
Node's annotation changes when it is. Pods whose bind was refused need none of it: their scheduler
backs off and tries again, after ten seconds at most.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import structlog

from allocator.catalog.vocabularies import OWN, Vocabulary
from allocator.core.ledger import Ledger
from allocator.shell.inventory import NODES
from allocator.shell.reconciler import Pods
from kube.errors import KubeError

FREED_KEY: Final = f"{OWN}freed"  # on a Node: the version of its ledger that had room again
EVERY: Final = 0.25  # seconds

log = structlog.get_logger(__name__)


class Calls(Protocol):
    """The part of :class:`kube.client.Client` that waking needs."""

    async def merge_patch(self, path: str, changes: Mapping[str, object]) -> bytes:
        """Change one object."""


class Waker:
    """Compares each picture of the ledgers with the one before; only one may run."""

    def __init__(
        self,
        calls: Calls,
        pods: Pods,
        *,
        ledgers: Callable[[], Mapping[str, Ledger] | None],
        vocabularies: Callable[[], Iterable[Vocabulary]],
    ) -> None:
        """Wake through *calls*."""
        self._calls = calls
        self._pods = pods
        self._ledgers = ledgers
        self._vocabularies = vocabularies
        self._before: Mapping[str, Ledger] = {}

    async def sweep(self) -> None:
        """Change the annotation of every node that has more room than before, if a pod waits."""
        ledgers = self._ledgers()
        if ledgers is None:
            return
        freed = [ledger for name, ledger in ledgers.items() if self._freed(name, ledger)]
        self._before = ledgers
        if not freed or not self._somebody_waits():
            return
        for ledger in freed:
            version = f"{ledger.uid}/{ledger.resource_version}"
            changes = {"metadata": {"annotations": {FREED_KEY: version}}}
            try:
                await self._calls.merge_patch(f"{NODES}/{ledger.name}", changes)
            except KubeError as error:
                log.warning("nobody woken", node=ledger.name, why=str(error))

    def _freed(self, name: str, ledger: Ledger) -> bool:
        """Say whether a promise went, or the inventory is another one."""
        before = self._before.get(name)
        if before is None or before is ledger:
            return False
        gone = {entry.uid for entry in before.entries} - {entry.uid for entry in ledger.entries}
        return bool(gone) or (bool(ledger.inventory) and before.inventory != ledger.inventory)

    def _somebody_waits(self) -> bool:
        spoken = tuple(self._vocabularies())
        return any(
            pod.asks(spoken)
            for pod in (self._pods.seen or {}).values()
            if pod.extended and not pod.node and not pod.over and not pod.deleting
        )
