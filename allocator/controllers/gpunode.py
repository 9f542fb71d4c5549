"""Creates, fills, closes and deletes GPUNodes as their Nodes come and go.

:mod:`allocator.ledger.lifecycle` decides. Caches only show where a step may be due; it is decided
again on objects just read, and each write tests the version that it was decided on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, assert_never

import msgspec
import structlog

from allocator.cluster.inventory import GPU_NODES, NODES
from allocator.cluster.objects import FINALIZER, NodeObject, decode_node
from allocator.ledger.ledger import Ledger, parse_ledger
from allocator.ledger.lifecycle import GpuNodeAction, NodeIdentity, Step, WriteStatus, due_step
from allocator.ledger.schema import API_VERSION, KIND
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import AlreadyExistsError, ConflictError, InvalidError, KubeError, NotFoundError
from kube.workqueue import Backoff, Workqueue, isolated

_CHANGED_ERRORS: Final = (AlreadyExistsError, ConflictError, InvalidError, NotFoundError)
log = structlog.get_logger(__name__)


class NodeCaches(Protocol):
    """The cached Nodes and GPUNodes."""

    def node_identities(self) -> Mapping[str, NodeIdentity] | None:
        """Return all Nodes by name, ``None`` while not all are known."""

    def node_identity(self, node: NodeObject) -> NodeIdentity:
        """Return what decides about the GPUNode of a Node that was just read."""

    def ledgers(self) -> Mapping[str, Ledger] | None:
        """Return all GPUNodes by name, ``None`` while not all are known."""


@dataclass(frozen=True, slots=True)
class _Compared:
    """What a GPUNode was found in order for."""

    node: NodeIdentity | None
    ledger: Ledger | None
    upstream: bool

    def is_unchanged(
        self, node: NodeIdentity | None, ledger: Ledger | None, *, upstream: bool
    ) -> bool:
        """Say whether the objects are the same ones: caches replace what has changed."""
        return self.node is node and self.ledger is ledger and self.upstream is upstream


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
        self._in_order: dict[str, _Compared] = {}

    async def sweep(self) -> None:
        """Reconcile every GPUNode for which a step is due by the caches."""
        machines, ledgers = self._caches.node_identities(), self._caches.ledgers()
        if machines is None or ledgers is None:
            return
        due = self._backoff.due_keys(sorted(self._due_nodes(machines, ledgers)))
        await self._queue.run_each({name: name for name in due}, self._try_reconcile)

    async def _try_reconcile(self, name: str) -> None:
        failed = partial(self._backoff.note_failure, name)
        with isolated("GPUNode update failed", failed, node=name):
            try:
                await self.reconcile(name)
            except _CHANGED_ERRORS:  # the next sweep sees how
                failed()
            except KubeError as error:
                log.warning("GPUNode not updated", node=name, why=str(error))
                failed()

    def _due_nodes(
        self, nodes: Mapping[str, NodeIdentity], ledgers: Mapping[str, Ledger]
    ) -> list[str]:
        """Return the names of GPUNodes for which a step is due by the caches.

        Sweeps come every second and a comparison takes whole inventories, so objects that are
        unchanged since they were found in order are skipped.
        """
        upstream = self._upstream()
        in_order, self._in_order = self._in_order, {}
        due = []
        for name in nodes.keys() | ledgers.keys():
            node, ledger, before = nodes.get(name), ledgers.get(name), in_order.get(name)
            if before is not None and before.is_unchanged(node, ledger, upstream=upstream):
                self._in_order[name] = before
                continue
            with isolated("GPUNode check failed", node=name):
                if due_step(node, ledger, upstream=upstream) is None:
                    self._in_order[name] = _Compared(node, ledger, upstream)
                else:
                    due.append(name)
        return due

    async def reconcile(self, name: str) -> None:
        """Take the next step for one GPUNode; raises :class:`KubeError` where it cannot."""
        document = await self._read_document(
            name
        )  # before the Node: whatever is done tests its version
        ledger = None if document is None else parse_ledger(document)
        node = await self._read_node(name)
        step = due_step(node, ledger, upstream=self._upstream())
        if step is not None:
            metadata = {} if document is None else document["metadata"]
            await self._perform(step, name, metadata)
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

    async def _perform(self, step: Step, name: str, metadata: Mapping[str, Any]) -> None:
        path = f"{GPU_NODES}/{name}"
        version = {"resourceVersion": metadata.get("resourceVersion", "")}
        match step:
            case GpuNodeAction.CREATE:
                await self._client.create(GPU_NODES, _empty_gpu_node(name))
            case GpuNodeAction.CLOSE:
                changes = {"metadata": version, "status": {"inventory": None}}
                await self._client.merge_patch(f"{path}/status", changes)
            case WriteStatus(status=status):
                written = {"metadata": version, "status": status}
                await self._client.merge_patch(f"{path}/status", written)
            case GpuNodeAction.DELETE:
                body = msgspec.json.encode({"preconditions": version})
                await self._client.delete(path, body=body)
            case GpuNodeAction.REMOVE_FINALIZER:
                others = [held for held in metadata["finalizers"] if held != FINALIZER]
                released = {"metadata": {**version, "finalizers": others}}
                await self._client.merge_patch(path, released)
            case _:
                assert_never(step)


def _empty_gpu_node(name: str) -> bytes:
    """Return a GPUNode without entries; it has no owner reference, because it outlives its Node."""
    metadata = {"name": name, "finalizers": [FINALIZER]}
    spec: dict[str, object] = {"entries": []}
    kind = {"apiVersion": API_VERSION, "kind": KIND}
    return msgspec.json.encode({**kind, "metadata": metadata, "spec": spec})


def _step_name(step: Step) -> str:
    return "report" if isinstance(step, WriteStatus) else step.name.lower()
