"""Keeps Volcano's register and handshake annotations on the nodes that our agents serve.

They are never removed, because Volcano's scheduler crashes on a node that has capacity and no
register; agents report capacity only once the register exists (docs/volcano.md). Where a register
is lowered, our annotation keeps the full one, which is restored when another plugin takes over.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from allocator.catalog.keys import REGISTER_KEY
from allocator.cluster.inventory import NODES, Inventory
from allocator.cluster.objects import NodeObject
from allocator.cluster.picture import ChangeTracker
from allocator.config.settings import NodeAgent
from allocator.families.registry import family_named
from allocator.ledger.ledger import Ledger
from allocator.ledger.registered_capacity import (
    counted_uids,
    full_register,
    needs_report,
    register_of,
    saved_register,
)
from allocator.request.pod_summary import PodSummary
from allocator.volcano.register import (
    HANDSHAKE_ANNOTATION,
    REGISTER_ANNOTATION,
    HandshakePhase,
    encode_handshake,
)
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError
from kube.workqueue import Backoff, isolated

# Volcano counts an entry once its Binding succeeded; an earlier write would have to be repeated.
SETTLED_SECONDS: Final = 2.0
NODES_PER_SLICE: Final = 50  # compared without a break; some milliseconds
log = structlog.get_logger(__name__)
Changes = Mapping[str, object]  # of a Node's metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterInputs:
    """The objects and settings that registers are computed from."""

    nodes: Mapping[str, NodeObject]  # by name
    ledgers: Mapping[str, Ledger]  # by name
    pods: Mapping[str, PodSummary]  # by uid
    factor: int  # the site's gpuMemoryFactor, MiB
    keeps_registers: bool = True  # we write registers; else those that we lowered are restored


@dataclass(frozen=True, slots=True)
class _Register:
    """A register with the inputs that it was computed from."""

    ledger: Ledger
    counted: frozenset[str]  # uids of the pods that Volcano counts itself
    original: str  # the node's full register before
    factor: int  # gpuMemoryFactor, MiB
    text: str  # the register
    saved: str  # the full register, for our annotation; empty where it equals *text*

    def was_made_from(
        self, ledger: Ledger, counted: frozenset[str], *, present: str, factor: int
    ) -> bool:
        same = (self.counted, self.original, self.factor) == (counted, present, factor)
        return same and self.ledger is ledger


class VolcanoRegisterController:
    """Writes annotations that are due; several may run, one is enough."""

    def __init__(
        self,
        client: ApiClient,
        inputs: Callable[[], RegisterInputs | None],
        *,
        clock: Clock = SYSTEM,
    ) -> None:
        """Write through *client*; while *inputs* returns ``None``, nothing is written."""
        self._client = client
        self._inputs = inputs
        self._clock = clock
        self._backoff: Backoff[str] = Backoff(clock)
        # By node: the texts to write (register, saved register), and monotonic seconds since when.
        self._pending: dict[str, tuple[tuple[str, str], float]] = {}
        self._registers: dict[str, _Register] = {}  # by node
        self._node_changes: ChangeTracker[NodeObject] = ChangeTracker()
        self._lowered: set[str] = set()  # nodes with a saved register
        # By node: monotonic seconds since when Volcano's count may be too high.
        self._departures: dict[str, float] = {}

    async def sweep(self) -> None:
        """Bring the annotations of every node up to date."""
        inputs = self._inputs()
        if inputs is None:
            return
        served = _registered_nodes(inputs) if inputs.keeps_registers else set[str]()
        lowered = self._lowered_registers(inputs.nodes)
        changes_of = self._due_changes if inputs.keeps_registers else _restore
        due: dict[str, Changes] = {}
        for number, name in enumerate(served if inputs.keeps_registers else lowered):
            if number % NODES_PER_SLICE == 0:
                await self._clock.sleep(0)
            with isolated("register check failed", node=name):
                if changes := changes_of(inputs, name):
                    due[name] = changes
        for gone in self._registers.keys() - served:
            del self._registers[gone]
            self._pending.pop(gone, None)
            self._departures.pop(gone, None)
        due = self._add_refresh(inputs, due)
        for name in self._backoff.due_keys(due):
            with isolated(
                "register update failed", partial(self._backoff.note_failure, name), node=name
            ):
                await self._write(name, due[name])

    def _lowered_registers(self, nodes: Mapping[str, NodeObject]) -> Collection[str]:
        """Return the nodes whose register we lowered."""
        changed = self._node_changes.take(nodes)
        if changed is None:
            self._lowered.clear()
        for name in tuple(nodes if changed is None else changed):
            self._lowered.discard(name)
            if name in nodes and nodes[name].saved_register:
                self._lowered.add(name)
        return self._lowered

    async def _write(self, name: str, metadata: Changes) -> None:
        try:
            await self._client.merge_patch(f"{NODES}/{name}", {"metadata": metadata})
        except KubeError as error:
            log.warning("register not updated", node=name, why=str(error))
            self._backoff.note_failure(name)
        else:
            self._departures.pop(name, None)

    def _add_refresh(self, inputs: RegisterInputs, due: dict[str, Changes]) -> dict[str, Changes]:
        """Add the node that waits longest since a pod with GPUs left it.

        Volcano up to 1.14 subtracts less than it added, and counts anew when a Node changes. Each
        change costs its scheduler a request in the middle of a cycle, so one is made at a time.
        """
        now = self._clock.monotonic()
        waiting = [(at, name) for name, at in self._departures.items() if name not in due]
        at, name = min(waiting, default=(now, ""))
        if name and now - at >= SETTLED_SECONDS:
            handshake = encode_handshake(HandshakePhase.REPORTED, self._clock.wall())
            annotations = {
                REGISTER_ANNOTATION: inputs.nodes[name].register,
                HANDSHAKE_ANNOTATION: handshake,
            }
            return due | {name: {"annotations": annotations}}
        return due

    def _due_changes(self, inputs: RegisterInputs, name: str) -> Changes:
        """Return the annotations to write, register and handshake together."""
        node, register = inputs.nodes[name], self._register(inputs, name)
        if not register.text:
            return {}
        now = self._clock.wall()
        changed = self._is_settled(name, register, node)
        if not changed and not needs_report(node.handshake, now):
            return {}
        handshake = {HANDSHAKE_ANNOTATION: encode_handshake(HandshakePhase.REPORTED, now)}
        if not changed:
            return {"annotations": {REGISTER_ANNOTATION: node.register, **handshake}}
        saved = (
            {REGISTER_KEY: register.saved or None} if register.saved or node.saved_register else {}
        )
        return {"annotations": {REGISTER_ANNOTATION: register.text, **handshake, **saved}}

    def _register(self, inputs: RegisterInputs, name: str) -> _Register:
        """Return the register of a node, computed anew if its inputs changed; note departures.

        Departures matter only to schedulers that ask for reports, those up to 1.14.
        """
        ledger, original = inputs.ledgers[name], inputs.nodes[name].full_register
        asks_for_reports = inputs.nodes[name].handshake.startswith(HandshakePhase.REQUESTING)
        pods = [inputs.pods[entry.uid] for entry in ledger.entries if entry.uid in inputs.pods]
        counted = counted_uids(ledger.entries, pods, node=name)
        register = self._registers.get(name)
        factor = inputs.factor
        if asks_for_reports and register is not None and register.counted - counted:
            self._departures.setdefault(name, self._clock.monotonic())
        if register is None or not register.was_made_from(
            ledger, counted, present=original, factor=factor
        ):
            text = register_of(ledger, counted, present=original, factor=factor)
            full = full_register(ledger, present=original, factor=factor)
            register = self._registers[name] = _Register(
                ledger=ledger,
                counted=counted,
                original=original,
                factor=factor,
                text=text,
                saved=saved_register(text, full),
            )
        return register

    def _is_settled(self, name: str, register: _Register, node: NodeObject) -> bool:
        """Say whether *register* differs from that of *node* and has been stable for a while."""
        desired = register.text, register.saved
        if desired == (node.register, node.saved_register):
            self._pending.pop(name, None)
            return False
        now = self._clock.monotonic()
        before, since = self._pending.get(name, (desired, now))
        since = since if before == desired else now
        self._pending[name] = (desired, since)
        return not node.register or now - since >= SETTLED_SECONDS


def _registered_nodes(inputs: RegisterInputs) -> set[str]:
    """Return the nodes that get a register: all but those whose GPUs another plugin describes.

    Volcano would take such GPUs for NVIDIA's, and its scheduler asks each registered node for a
    report, five requests a second at most, before it places anything.
    """
    return {
        name
        for name, ledger in inputs.ledgers.items()
        if name in inputs.nodes
        and not any(family_named(gpu.family).inventory for gpu in ledger.node.gpus)
    }


def _restore(inputs: RegisterInputs, name: str) -> Changes:
    """Return the changes that restore the full register of a node that another plugin serves now.

    Where that plugin has written its register already, they only remove our annotation. It may
    write at the same time, so they test the version that was read.
    """
    node = inputs.nodes[name]
    if not node.saved_register:
        return {}
    return {
        "resourceVersion": node.resource_version,
        "annotations": {REGISTER_ANNOTATION: node.full_register, REGISTER_KEY: None},
    }


def register_inputs(
    inventory: Inventory, pods: Mapping[str, PodSummary] | None
) -> RegisterInputs | None:
    """Return the inputs of the registers, ``None`` while not all objects are known."""
    settings = inventory.settings
    ours = settings.volcano_register and settings.node_agent is NodeAgent.OURS
    nodes, ledgers = inventory.nodes(), inventory.ledgers() if ours else {}
    if nodes is None or ledgers is None or pods is None:
        return None
    factor = inventory.device_config.memory_factor
    return RegisterInputs(
        nodes=nodes, ledgers=ledgers, pods=pods, factor=factor, keeps_registers=ours
    )
