"""Requeue: makes schedulers retry parked pods when a node has more room than before.

kube-scheduler looks again at a pod that an extender rejected when something of the cluster changes,
else after five minutes; the end of a pod is such a change, but comes before its GPU is free. So the
Node's annotation changes when it is. Pods whose bind was refused need none of it: their scheduler
backs off and tries again, after ten seconds at most.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Final

import structlog

from allocator.catalog.vocabularies import OWN, Vocabulary
from allocator.cluster.inventory import NODES
from allocator.cluster.pods import Pods
from allocator.ledger.ledger import Ledger
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError, NotFoundError
from kube.workqueue import Backoff, isolated

FREED_KEY: Final = f"{OWN}freed"  # on a Node: which version of its ledger had room, in which term
EVERY: Final = 0.25  # seconds
MOST_TRIED: Final = 8  # nodes in one go of which one is enough
log = structlog.get_logger(__name__)


class RequeueController:
    """Compares each picture of the ledgers with the one before; only one may run."""

    def __init__(
        self,
        calls: ApiClient,
        pods: Pods,
        *,
        ledgers: Callable[[], Mapping[str, Ledger] | None],
        vocabularies: Callable[[], Iterable[Vocabulary]],
        clock: Clock = SYSTEM,
    ) -> None:
        """Wake through *calls*."""
        self._calls = calls
        self._pods = pods
        self._ledgers = ledgers
        self._vocabularies = vocabularies
        self._before: Mapping[str, Ledger] = {}
        self._compared: int | None = None  # the term that ``_before`` is of
        self._untold: set[str] = set()  # nodes with more room
        self._any: set[str] = set()  # of which one is enough
        self._retries: Backoff[str] = Backoff(clock)

    async def sweep(self, term: int | None) -> None:
        """Change the annotation of every node that has more room than before, if a pod waits.

        *term* numbers the time for which we are the one: what happened between another's last
        look and our first one, nobody has compared.
        """
        ledgers = self._ledgers()
        if ledgers is None or self._pods.seen is None:
            return
        left = self._untold or self._any
        if ledgers is self._before and term == self._compared and not left:
            return
        self._compare(ledgers, term)
        if (self._untold or self._any) and not self._somebody_waits():
            self._untold.clear()
            self._any.clear()
        due = self._retries.due_keys(sorted(self._untold | self._any))
        some = islice((name for name in due if name not in self._untold), MOST_TRIED)
        for name in (*(name for name in due if name in self._untold), *some):
            if not (name in self._untold or name in self._any):  # another one woke everybody
                continue
            with isolated(
                "requeue annotation not written",
                partial(self._retries.note_failure, name),
                node=name,
            ):
                await self._annotate(ledgers[name])

    def _compare(self, ledgers: Mapping[str, Ledger], term: int | None) -> None:
        """Note which nodes are to be told; at the beginning of a term any, for one wakes all."""
        self._untold.intersection_update(ledgers)
        self._any.intersection_update(ledgers)
        if term != self._compared:
            self._any = {name for name, ledger in ledgers.items() if not ledger.closed}
        else:
            before = self._before
            moved = [name for name, ledger in ledgers.items() if before.get(name) is not ledger]
            for name in moved:
                with isolated("ledger comparison failed", node=name):
                    self._untold |= {name} if self._has_freed(name, ledgers[name]) else set()
        self._before, self._compared = ledgers, term

    async def _annotate(self, ledger: Ledger) -> None:
        # With the term: a value that stands there already would be no change, and wake nobody.
        version = f"{ledger.uid}/{ledger.resource_version}/{self._compared}"
        changes = {"metadata": {"annotations": {FREED_KEY: version}}}
        try:
            await self._calls.merge_patch(f"{NODES}/{ledger.name}", changes)
        except NotFoundError:  # it has left, and its room with it
            self._untold.discard(ledger.name)
            self._any.discard(ledger.name)
        except KubeError as error:
            log.warning("requeue annotation not written", node=ledger.name, why=str(error))
            self._retries.note_failure(ledger.name)
        else:
            self._untold.discard(ledger.name)
            self._any.clear()

    def _has_freed(self, name: str, ledger: Ledger) -> bool:
        """Say whether a promise went, or may have, or what is there was accounted for anew."""
        before = self._before.get(name)
        if before is None:
            return False
        # What a watch that was cut off has missed came and went unseen, and another replica, which
        # saw it come, has turned pods away for it.
        if before.uid != ledger.uid or ledger.generation > before.generation + 1:
            return True
        now = {entry.uid: entry.containers for entry in ledger.entries}
        gone = any(now.get(entry.uid) != entry.containers for entry in before.entries)
        return gone or (bool(ledger.inventory) and _account(before) != _account(ledger))

    def _somebody_waits(self) -> bool:
        spoken = tuple(self._vocabularies())
        return any(
            pod.asks(spoken)
            for pod in (self._pods.seen or {}).values()
            if pod.extended and not pod.node and not pod.over and not pod.deleting
        )


def _account(ledger: Ledger) -> tuple[str, str, str]:
    """Return what was accounted for, and of which life of the node: after a reboot it is closed."""
    return ledger.inventory, ledger.boot, ledger.node_uid
