"""Makes schedulers retry unschedulable pods when GPUs have become free.

kube-scheduler retries a pod that an extender rejected when the cluster changes, or after five
minutes. The end of a pod is such a change, but it comes before the pod's GPU is free. When the GPU
is free, this controller therefore changes an annotation of the Node. Pods whose bind was refused
need no help: their scheduler retries after ten seconds at most.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Final

import structlog

from allocator.catalog.vocabularies import OWN, Vocabulary
from allocator.cluster.inventory import NODES
from allocator.cluster.picture import ChangeTracker
from allocator.cluster.pods import Pods
from allocator.ledger.ledger import Ledger
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError, NotFoundError
from kube.workqueue import Backoff, isolated

FREED_KEY: Final = f"{OWN}freed"  # on a Node: version of the ledger with freed GPUs, and the term
SWEEP_SECONDS: Final = 0.25  # between sweeps
MOST_TRIED: Final = 8  # candidates per sweep; one successful write is enough
log = structlog.get_logger(__name__)


class RequeueController:
    """Compares the ledgers with those of the sweep before; only the leader may run it."""

    def __init__(
        self,
        client: ApiClient,
        pods: Pods,
        *,
        ledgers: Callable[[], Mapping[str, Ledger] | None],
        vocabularies: Callable[[], Iterable[Vocabulary]],
        clock: Clock = SYSTEM,
    ) -> None:
        """Annotate through *client*."""
        self._client = client
        self._pods = pods
        self._ledgers = ledgers
        self._vocabularies = vocabularies
        self._changes: ChangeTracker[Ledger] = ChangeTracker()
        self._last_ledgers: dict[str, Ledger] = {}
        self._last_term: int | None = None  # the term of _last_ledgers
        self._freed: set[str] = set()  # nodes with freed GPUs, to be annotated
        self._candidates: set[str] = set()  # nodes of which one must be annotated
        self._backoff: Backoff[str] = Backoff(clock)

    async def sweep(self, term: int | None) -> None:
        """Annotate every node with freed GPUs, if any pod waits for GPUs.

        *term* is the leader's. At the start of a term one open node is annotated in any case,
        because changes since the former leader's last sweep are unknown.
        """
        ledgers = self._ledgers()
        if ledgers is None or self._pods.by_uid is None:
            return
        changed = self._changes.take(ledgers)
        self._compare(ledgers, changed, term)
        if (self._freed or self._candidates) and not self._has_unbound_pods():
            self._freed.clear()
            self._candidates.clear()
        due = self._backoff.due_keys(sorted(self._freed | self._candidates))
        candidates = islice((name for name in due if name not in self._freed), MOST_TRIED)
        for name in (*(name for name in due if name in self._freed), *candidates):
            if not (name in self._freed or name in self._candidates):  # one candidate was annotated
                continue
            with isolated(
                "requeue annotation not written",
                partial(self._backoff.note_failure, name),
                node=name,
            ):
                await self._annotate(ledgers[name])

    def _compare(
        self, ledgers: Mapping[str, Ledger], changed: Collection[str] | None, term: int | None
    ) -> None:
        """Note nodes with freed GPUs, or, at the start of a term, all open ones as candidates.

        *changed* are the nodes whose ledgers may have changed; ``None`` stands for all.
        """
        names = self._last_ledgers.keys() | ledgers.keys() if changed is None else changed
        if term != self._last_term:
            self._candidates = {name for name, ledger in ledgers.items() if not ledger.closed}
        for name in names:
            if name not in ledgers:
                self._freed.discard(name)
                self._candidates.discard(name)
                self._last_ledgers.pop(name, None)
                continue
            if term == self._last_term:
                with isolated("ledger comparison failed", node=name):
                    self._freed |= {name} if self._has_freed(name, ledgers[name]) else set()
            self._last_ledgers[name] = ledgers[name]
        self._last_term = term

    async def _annotate(self, ledger: Ledger) -> None:
        # The term makes the value new: writing the present value again is no change.
        version = f"{ledger.uid}/{ledger.resource_version}/{self._last_term}"
        changes = {"metadata": {"annotations": {FREED_KEY: version}}}
        try:
            await self._client.merge_patch(f"{NODES}/{ledger.name}", changes)
        except NotFoundError:  # the Node is gone
            self._freed.discard(ledger.name)
            self._candidates.discard(ledger.name)
        except KubeError as error:
            log.warning("requeue annotation not written", node=ledger.name, why=str(error))
            self._backoff.note_failure(ledger.name)
        else:
            self._freed.discard(ledger.name)
            self._candidates.clear()

    def _has_freed(self, name: str, ledger: Ledger) -> bool:
        """Say whether an entry was or may have been removed, or the inventory has changed."""
        before = self._last_ledgers.get(name)
        if before is None or before is ledger:
            return False
        # An interrupted watch may have missed an entry that was added and removed again. Another
        # replica may have rejected pods because of that entry.
        if before.uid != ledger.uid or ledger.generation > before.generation + 1:
            return True
        now = {entry.uid: entry.containers for entry in ledger.entries}
        entry_removed = any(now.get(entry.uid) != entry.containers for entry in before.entries)
        return entry_removed or (
            bool(ledger.inventory) and _inventory_key(before) != _inventory_key(ledger)
        )

    def _has_unbound_pods(self) -> bool:
        vocabularies = tuple(self._vocabularies())
        return any(
            pod.requests_gpus(vocabularies)
            for pod in self._pods.unbound()
            if not pod.over and not pod.deleting
        )


def _inventory_key(ledger: Ledger) -> tuple[str, str, str]:
    """Return the inventory digest with the boot and the Node that it was written for."""
    return ledger.inventory, ledger.boot, ledger.node_uid
