"""Creates, fills, closes and deletes GPUNodes as their Nodes come and go.

:mod:`allocator.ledger.lifecycle` describes the states and chooses each step. Caches only show where
a step may be due. It is chosen again from objects just read, and each write tests their version.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol, assert_never

import msgspec
import structlog

from allocator.cluster.inventory import GPU_NODES, NODES
from allocator.cluster.objects import NodeObject, decode_node
from allocator.cluster.picture import ChangeTracker
from allocator.ledger.closed import stale_reason
from allocator.ledger.ledger import LONGEST_STATED, Ledger, parse_ledger
from allocator.ledger.lifecycle import GpuNodeAction, NodeIdentity, Step, WriteStatus, due_step
from allocator.ledger.schema import API_VERSION, FORMER_FINALIZER, KIND
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import AlreadyExistsError, ConflictError, InvalidError, KubeError, NotFoundError
from kube.workqueue import Backoff, Workqueue, isolated

_CHANGED_ERRORS: Final = (AlreadyExistsError, ConflictError, InvalidError, NotFoundError)
NO_REGISTER: Final = "no device plugin registers GPUs on it any more"
log = structlog.get_logger(__name__)


class NodeCaches(Protocol):
    """The cached Nodes and GPUNodes."""

    def node_identities(self) -> Mapping[str, NodeIdentity] | None:
        """Return all Nodes by name, ``None`` while not all are known."""

    def node_identity(self, node: NodeObject) -> NodeIdentity:
        """Return the identity of a Node that was just read."""

    def ledgers(self) -> Mapping[str, Ledger] | None:
        """Return all GPUNodes by name, ``None`` while not all are known."""


class GpuNodeController:
    """Keeps one GPUNode for each Node with GPUs; any number may run, one at a time is enough."""

    def __init__(
        self,
        client: ApiClient,
        caches: NodeCaches,
        *,
        upstream: Callable[[], bool],
        clock: Clock = SYSTEM,
    ) -> None:
        """Work through *client*; *upstream* says whether another plugin serves the nodes."""
        self._client = client
        self._caches = caches
        self._upstream = upstream
        self._backoff: Backoff[str] = Backoff(clock)
        self._queue: Workqueue[str] = Workqueue()
        self._node_changes: ChangeTracker[NodeIdentity] = ChangeTracker()
        self._ledger_changes: ChangeTracker[Ledger] = ChangeTracker()
        self._last_upstream: bool | None = None
        self._unsettled: set[str] = set()  # a step was due, or the check failed

    async def sweep(self) -> None:
        """Reconcile every GPUNode for which a step is due by the caches."""
        nodes, ledgers = self._caches.node_identities(), self._caches.ledgers()
        if nodes is None or ledgers is None:
            return
        due = self._backoff.due_keys(sorted(self._due_nodes(nodes, ledgers)))
        await self._queue.run_each({name: name for name in due}, self._try_reconcile)

    async def _try_reconcile(self, name: str) -> None:
        failed = partial(self._backoff.note_failure, name)
        with isolated("GPUNode update failed", failed, node=name):
            try:
                await self.reconcile(name)
            except _CHANGED_ERRORS:  # the next sweep decides again
                failed()
            except KubeError as error:
                log.warning("GPUNode not updated", node=name, why=str(error))
                failed()

    def _due_nodes(
        self, nodes: Mapping[str, NodeIdentity], ledgers: Mapping[str, Ledger]
    ) -> list[str]:
        """Return the names of GPUNodes for which a step is due by the caches.

        A sweep is every second, so it looks only at GPUNodes that changed, or whose Node did, and
        at those for which a step was due the last time.
        """
        upstream, before = self._upstream(), self._last_upstream
        changes = self._node_changes.take(nodes), self._ledger_changes.take(ledgers)
        names: set[str] = set().union(*(names or () for names in changes), self._unsettled)
        if None in changes or upstream is not before:
            names = nodes.keys() | ledgers.keys()
        self._last_upstream, self._unsettled = upstream, set()
        due = []
        for name in names:
            with isolated("GPUNode check failed", partial(self._unsettled.add, name), node=name):
                if due_step(nodes.get(name), ledgers.get(name), upstream=upstream) is not None:
                    due.append(name)
        self._unsettled.update(due)
        return due

    async def reconcile(self, name: str) -> None:
        """Take the next step for one GPUNode; raises :class:`KubeError`."""
        # The GPUNode is read before the Node, because the write tests the GPUNode's version.
        document = await self._read_document(name)
        ledger = None if document is None else parse_ledger(document)
        node = await self._read_node(name)
        step = due_step(node, ledger, upstream=self._upstream())
        if step is not None:
            metadata = {} if document is None else document["metadata"]
            stale = "" if ledger is None else stale_reason(ledger, node, upstream=self._upstream())
            await self._perform(step, name, metadata, reason=stale or NO_REGISTER)
            log.info("GPUNode updated", node=name, step=_step_name(step))

    async def _read_document(self, name: str) -> dict[str, Any] | None:
        try:
            document: dict[str, Any] = msgspec.json.decode(
                await self._client.get(f"{GPU_NODES}/{name}")
            )
        except NotFoundError:
            return None
        return document

    async def _read_node(self, name: str) -> NodeIdentity | None:
        try:
            return self._caches.node_identity(
                decode_node(await self._client.get(f"{NODES}/{name}"))
            )
        except NotFoundError:
            return None

    async def _perform(
        self, step: Step, name: str, metadata: Mapping[str, Any], *, reason: str
    ) -> None:
        path = f"{GPU_NODES}/{name}"
        version = {"resourceVersion": metadata.get("resourceVersion", "")}
        match step:
            case GpuNodeAction.CREATE:
                await self._client.create(GPU_NODES, _empty_gpu_node(name))
            case GpuNodeAction.CLOSE:
                status = {"inventory": None, "closed": reason[:LONGEST_STATED]}
                changes = {"metadata": version, "status": status}
                await self._client.merge_patch(f"{path}/status", changes)
            case WriteStatus(status=reported):
                written = {"metadata": version, "status": {"closed": None, **reported}}
                await self._client.merge_patch(f"{path}/status", written)
            case GpuNodeAction.DELETE:
                # An entry that was committed since the read changed the version: nothing is lost.
                same = {"uid": metadata.get("uid", ""), **version}
                body = msgspec.json.encode({"preconditions": same})
                await self._client.delete(path, body=body)
            case GpuNodeAction.REMOVE_FINALIZER:
                others = [name for name in metadata["finalizers"] if name != FORMER_FINALIZER]
                released = {"metadata": {**version, "finalizers": others}}
                await self._client.merge_patch(path, released)
            case _:
                assert_never(step)


def _empty_gpu_node(name: str) -> bytes:
    """Return a GPUNode without entries; it has no owner reference, because it outlives its Node."""
    spec: dict[str, object] = {"entries": []}
    kind = {"apiVersion": API_VERSION, "kind": KIND}
    return msgspec.json.encode({**kind, "metadata": {"name": name}, "spec": spec})


def _step_name(step: Step) -> str:
    return "report" if isinstance(step, WriteStatus) else step.name.lower()
