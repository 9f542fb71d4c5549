"""Upkeep: makes, fills, shuts and unmakes GPUNodes, as the Nodes that they stand for come and go.

What is to be done is found in caches and decided anew on what was just read; each write tests the
version that it was decided on.
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
    """What caches tell of all Nodes and GPUNodes."""

    def node_identities(self) -> Mapping[str, NodeIdentity] | None:
        """Return all Nodes by name, ``None`` while not all are known."""

    def node_identity(self, node: NodeObject) -> NodeIdentity:
        """Return a Node that was just read as upkeep sees it."""

    def ledgers(self) -> Mapping[str, Ledger] | None:
        """Return all GPUNodes by name, ``None`` while not all are known."""


@dataclass(frozen=True, slots=True)
class _Compared:
    """What a judgement rested on."""

    node: NodeIdentity | None
    ledger: Ledger | None
    upstream: bool

    def is_unchanged(
        self, node: NodeIdentity | None, ledger: Ledger | None, *, upstream: bool
    ) -> bool:
        """Say whether this is the same: caches replace what has changed."""
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
        """Work through *calls*; ``upstream`` says whether another plugin serves the nodes."""
        self._client = client
        self._caches = caches
        self._upstream = upstream
        self._backoff: Backoff[str] = Backoff(clock)
        self._queue: Workqueue[str] = Workqueue()
        self._in_order: dict[str, _Compared] = {}

    async def sweep(self) -> None:
        """Look closer at every GPUNode that the caches say is not as it should be."""
        machines, ledgers = self._caches.node_identities(), self._caches.ledgers()
        if machines is None or ledgers is None:
            return
        due = self._backoff.due_keys(sorted(self._due_nodes(machines, ledgers)))
        await self._queue.run_each({name: name for name in due}, self._try_reconcile)

    async def _try_reconcile(self, name: str) -> None:
        failed = partial(self._backoff.note_failure, name)
        with isolated("GPUNode not tended", failed, node=name):
            try:
                await self.reconcile(name)
            except _CHANGED_ERRORS:  # the next sweep sees how
                failed()
            except KubeError as error:
                log.warning("GPUNode left as it is", node=name, why=str(error))
                failed()

    def _due_nodes(
        self, nodes: Mapping[str, NodeIdentity], ledgers: Mapping[str, Ledger]
    ) -> list[str]:
        """Return whose GPUNode is not as it should be.

        A sweep is every second and a judgement compares whole inventories, so nothing is judged
        again that neither side has changed since it was found to be in order.
        """
        upstream = self._upstream()
        in_order, self._in_order = self._in_order, {}
        due = []
        for name in nodes.keys() | ledgers.keys():
            node, ledger, before = nodes.get(name), ledgers.get(name), in_order.get(name)
            if before is not None and before.is_unchanged(node, ledger, upstream=upstream):
                self._in_order[name] = before
                continue
            with isolated("GPUNode not judged", node=name):
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
            log.info("GPUNode tended", node=name, step=_step_name(step))

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
    """Write a GPUNode that promises nothing: it has no owner, because it outlives its Node."""
    metadata = {"name": name, "finalizers": [FINALIZER]}
    spec: dict[str, object] = {"entries": []}
    kind = {"apiVersion": API_VERSION, "kind": KIND}
    return msgspec.json.encode({**kind, "metadata": metadata, "spec": spec})


def _step_name(step: Step) -> str:
    return "report" if isinstance(step, WriteStatus) else step.name.lower()
