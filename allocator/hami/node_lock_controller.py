"""Releases node locks of HAMi's that nobody needs any more.

The hook takes a lock before HAMi's plugin may start a pod, and the plugin releases it. A lock stays
behind where the Binding failed after the hook, where the pod was deleted, and where the plugin
ended in between. On nodes of our agents HAMi's scheduler takes it and nobody waits for it.
"""

from collections.abc import Callable, Mapping
from functools import partial

import structlog

from allocator.hami.node_lock_client import NodeLockClient
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError
from kube.workqueue import Backoff, Workqueue, isolated

log = structlog.get_logger(__name__)


class NodeLockController:
    """Looks at every lock once a sweep, until it is gone; any number may run."""

    def __init__(
        self,
        locks: NodeLockClient,
        locked: Callable[[], Mapping[str, str] | None],
        *,
        clock: Clock = SYSTEM,
    ) -> None:
        """Release through *locks*.

        *locked* returns the locks of the nodes that are ours to release, by node, and ``None``
        while not all nodes are known.
        """
        self._locks = locks
        self._locked = locked
        self._backoff: Backoff[str] = Backoff(clock)
        self._queue: Workqueue[str] = Workqueue()

    async def sweep(self) -> None:
        """Release the locks that nobody needs."""
        locked = self._locked()
        if locked is None:
            return
        due = self._backoff.due_keys(sorted(locked))
        await self._queue.run_each({node: node for node in due}, self._release)

    async def _release(self, node: str) -> None:
        failed = partial(self._backoff.note_failure, node)
        with isolated("node lock not released", failed, node=node):
            try:
                if await self._locks.release_if_stale(node):
                    log.info("stale node lock released", node=node)
            except KubeError as error:
                log.warning("node lock not released", node=node, why=str(error))
                failed()
