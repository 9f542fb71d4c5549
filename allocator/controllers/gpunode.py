"""Upkeep: creates, fills, closes and deletes GPUNodes as Nodes come and go.

Caches say where to look; each step is decided on a fresh read, and its write tests that version.
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
from allocator.ledger.lifecycle import GpuNodeAction, NodeIdentity, Report, Step, due_step
from allocator.ledger.schema import API_VERSION, KIND
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import AlreadyExistsError, ConflictError, InvalidError, KubeError, NotFoundError
from kube.workqueue import Backoff, Workqueue, isolated

_MOVED: Final = (AlreadyExistsError, ConflictError, InvalidError, NotFoundError)
log = structlog.get_logger(__name__)


class NodeCaches(Protocol):
    """What caches tell of all Nodes and GPUNodes."""

    def machines(self) -> Mapping[str, NodeIdentity] | None:
        """Return all Nodes by name, ``None`` while not all are known."""

    def machine(self, node: NodeObject) -> NodeIdentity:
        """Return a Node that was just read as upkeep sees it."""

    def ledgers(self) -> Mapping[str, Ledger] | None:
        """Return all GPUNodes by name, ``None`` while not all are known."""


@dataclass(frozen=True, slots=True)
class _Judgement:
    """What a judgement rested on."""

    machine: NodeIdentity | None
    ledger: Ledger | None
    upstream: bool

    def is_unchanged(
        self, machine: NodeIdentity | None, ledger: Ledger | None, *, upstream: bool
    ) -> bool:
        """Say whether this is the same: caches replace what has changed."""
        return self.machine is machine and self.ledger is ledger and self.upstream is upstream


class GpuNodeController:
    """Keeps one GPUNode for each Node with GPUs; any number may run, one at a time is enough."""

    def __init__(
        self,
        calls: ApiClient,
        known: NodeCaches,
        *,
        upstream: Callable[[], bool],
        clock: Clock = SYSTEM,
    ) -> None:
        """Work through *calls*; ``upstream`` says whether another plugin serves the nodes."""
        self._calls = calls
        self._known = known
        self._upstream = upstream
        self._kept: Backoff[str] = Backoff(clock)
        self._abreast: Workqueue[str] = Workqueue()
        self._fine: dict[str, _Judgement] = {}

    async def sweep(self) -> None:
        """Check every GPUNode that the caches say is out of date."""
        machines, ledgers = self._known.machines(), self._known.ledgers()
        if machines is None or ledgers is None:
            return
        due = self._kept.due_keys(sorted(self._due_nodes(machines, ledgers)))
        await self._abreast.run_each({name: name for name in due}, self._try_tend)

    async def _try_tend(self, name: str) -> None:
        failed = partial(self._kept.note_failure, name)
        with isolated("GPUNode update failed", failed, node=name):
            try:
                await self.tend(name)
            except _MOVED:  # the next sweep sees how
                failed()
            except KubeError as error:
                log.warning("GPUNode not updated", node=name, why=str(error))
                failed()

    def _due_nodes(
        self, machines: Mapping[str, NodeIdentity], ledgers: Mapping[str, Ledger]
    ) -> list[str]:
        """Return the nodes whose GPUNode is out of date.

        A sweep is every second and a judgement compares whole inventories, so nothing is judged
        again that neither side has changed since it was found to be in order.
        """
        upstream = self._upstream()
        fine, self._fine = self._fine, {}
        found = []
        for name in machines.keys() | ledgers.keys():
            machine, ledger, before = machines.get(name), ledgers.get(name), fine.get(name)
            if before is not None and before.is_unchanged(machine, ledger, upstream=upstream):
                self._fine[name] = before
                continue
            with isolated("GPUNode check failed", node=name):
                if due_step(machine, ledger, upstream=upstream) is None:
                    self._fine[name] = _Judgement(machine, ledger, upstream)
                else:
                    found.append(name)
        return found

    async def tend(self, name: str) -> None:
        """Take the next step for one GPUNode; raises :class:`KubeError` where it cannot."""
        document = await self._document(name)  # before the Node: whatever is done tests its version
        ledger = None if document is None else parse_ledger(document)
        machine = await self._machine(name)
        step = due_step(machine, ledger, upstream=self._upstream())
        if step is not None:
            metadata = {} if document is None else document["metadata"]
            await self._take(step, name, metadata)
            log.info("GPUNode updated", node=name, step=_step_name(step))

    async def _document(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = msgspec.json.decode(
                await self._calls.get(f"{GPU_NODES}/{name}")
            )
        except NotFoundError:
            return None
        return found

    async def _machine(self, name: str) -> NodeIdentity | None:
        try:
            return self._known.machine(decode_node(await self._calls.get(f"{NODES}/{name}")))
        except NotFoundError:
            return None

    async def _take(self, step: Step, name: str, metadata: Mapping[str, Any]) -> None:
        path = f"{GPU_NODES}/{name}"
        version = {"resourceVersion": metadata.get("resourceVersion", "")}
        match step:
            case GpuNodeAction.CREATE:
                await self._calls.create(GPU_NODES, _new(name))
            case GpuNodeAction.SHUT:
                shut = {"metadata": version, "status": {"inventory": None}}
                await self._calls.merge_patch(f"{path}/status", shut)
            case Report(status=status):
                written = {"metadata": version, "status": status}
                await self._calls.merge_patch(f"{path}/status", written)
            case GpuNodeAction.DELETE:
                body = msgspec.json.encode({"preconditions": version})
                await self._calls.delete(path, body=body)
            case GpuNodeAction.RELEASE:
                others = [held for held in metadata["finalizers"] if held != FINALIZER]
                released = {"metadata": {**version, "finalizers": others}}
                await self._calls.merge_patch(path, released)
            case _:
                assert_never(step)


def _new(name: str) -> bytes:
    """Write a GPUNode that promises nothing: it has no owner, because it outlives its Node."""
    metadata = {"name": name, "finalizers": [FINALIZER]}
    spec: dict[str, object] = {"entries": []}
    kind = {"apiVersion": API_VERSION, "kind": KIND}
    return msgspec.json.encode({**kind, "metadata": metadata, "spec": spec})


def _step_name(step: Step) -> str:
    return "report" if isinstance(step, Report) else step.name.lower()
