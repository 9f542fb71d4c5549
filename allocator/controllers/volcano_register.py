"""Keeps Volcano's register and handshake annotations on the nodes that our agents serve.

They are written and never removed: Volcano's scheduler crashes on a node that has capacity and no
register, so agents report capacity only once the register is there (docs/volcano.md). Where a
register is lowered, the full one is saved in our annotation beside it, and restored when another
plugin takes over.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from allocator.catalog.keys import REGISTER_KEY
from allocator.cluster.inventory import NODES, Inventory
from allocator.cluster.objects import NodeObject
from allocator.config.settings import NodeAgent
from allocator.ledger.ledger import Ledger
from allocator.request.pod_summary import PodSummary
from allocator.volcano.register import (
    HANDSHAKE_ANNOTATION,
    REGISTER_ANNOTATION,
    HandshakePhase,
    encode_handshake,
)
from allocator.volcano.registered_capacity import (
    counted_uids,
    full_register,
    needs_report,
    register_of,
    saved_register,
)
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError
from kube.workqueue import Backoff, isolated

# Volcano counts an entry once its Binding has landed; a write before that would be one too many.
SETTLED_SECONDS: Final = 2.0
NODES_PER_SLICE: Final = 50  # some milliseconds, for which reviews have to wait
log = structlog.get_logger(__name__)
Changes = Mapping[str, object]  # of a Node's metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterInputs:
    """What registers are made from."""

    nodes: Mapping[str, NodeObject]  # by name
    ledgers: Mapping[str, Ledger]  # by name
    pods: Mapping[str, PodSummary]  # by uid
    factor: int  # the site's gpuMemoryFactor, MiB
    keeps_registers: bool = True  # by us; else what we lowered is restored


@dataclass(frozen=True, slots=True)
class _Register:
    """A register, what it was written from, and what is kept beside it."""

    ledger: Ledger
    counted: frozenset[str]
    original: str
    factor: int
    text: str
    saved: str

    def rests_on(
        self, ledger: Ledger, counted: frozenset[str], *, present: str, factor: int
    ) -> bool:
        same = (self.counted, self.original, self.factor) == (counted, present, factor)
        return same and self.ledger is ledger


class VolcanoRegisterController:
    """Writes what is due; any number may run, one at a time is enough."""

    def __init__(
        self,
        client: ApiClient,
        inputs: Callable[[], RegisterInputs | None],
        *,
        clock: Clock = SYSTEM,
    ) -> None:
        """Write through *client* what is due by *inputs*; ``None`` of those: nothing is."""
        self._client = client
        self._inputs = inputs
        self._clock = clock
        self._backoff: Backoff[str] = Backoff(clock)
        self._pending: dict[
            str, tuple[tuple[str, str], float]
        ] = {}  # what to write, and since when
        self._registers: dict[str, _Register] = {}
        self._departures: dict[str, float] = {}  # since when its account of a node may be wrong

    async def sweep(self) -> None:
        """Bring the annotations of every node up to date."""
        inputs = self._inputs()
        if inputs is None:
            return
        served = (
            inputs.ledgers.keys() & inputs.nodes.keys() if inputs.keeps_registers else set[str]()
        )
        changes_of = self._due_changes if inputs.keeps_registers else _restore
        due: dict[str, Changes] = {}
        for number, name in enumerate(served if inputs.keeps_registers else inputs.nodes):
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

    async def _write(self, name: str, metadata: Changes) -> None:
        try:
            await self._client.merge_patch(f"{NODES}/{name}", {"metadata": metadata})
        except KubeError as error:
            log.warning("register not updated", node=name, why=str(error))
            self._backoff.note_failure(name)
        else:
            self._departures.pop(name, None)

    def _add_refresh(self, inputs: RegisterInputs, due: dict[str, Changes]) -> dict[str, Changes]:
        """Add one node whose tenants left, the one that waits longest.

        Releases up to 1.14 take off less than they charged, and count anew when a Node changes.
        Each change costs them a request in the middle of a cycle, so there is one at a time.
        """
        now = self._clock.monotonic()
        waiting = [(at, name) for name, at in self._departures.items() if name not in due]
        at, name = min(waiting, default=(now, ""))
        if name and now - at >= SETTLED_SECONDS:
            handshake = encode_handshake(HandshakePhase.REPORTED, self._clock.wall())
            answer = {
                REGISTER_ANNOTATION: inputs.nodes[name].register,
                HANDSHAKE_ANNOTATION: handshake,
            }
            return due | {name: {"annotations": answer}}
        return due

    def _due_changes(self, inputs: RegisterInputs, name: str) -> Changes:
        """Return what to write; both annotations at once, so that neither is there alone."""
        node, register = inputs.nodes[name], self._register(inputs, name)
        if not register.text:
            return {}
        now = self._clock.wall()
        changed = self._is_settled(name, register, node)
        if not changed and not needs_report(node.handshake, now):
            return {}
        answer = {HANDSHAKE_ANNOTATION: encode_handshake(HandshakePhase.REPORTED, now)}
        if not changed:
            return {"annotations": {REGISTER_ANNOTATION: node.register, **answer}}
        kept = (
            {REGISTER_KEY: register.saved or None} if register.saved or node.saved_register else {}
        )
        return {"annotations": {REGISTER_ANNOTATION: register.text, **answer, **kept}}

    def _register(self, inputs: RegisterInputs, name: str) -> _Register:
        """Return the register of a node, made anew where what it rests on changed; note who left.

        Releases that do not ask, the later ones, keep account well enough by themselves.
        """
        ledger, original = inputs.ledgers[name], inputs.nodes[name].full_register
        asks = inputs.nodes[name].handshake.startswith(HandshakePhase.REQUESTING)
        pods = [inputs.pods[entry.uid] for entry in ledger.entries if entry.uid in inputs.pods]
        counted = counted_uids(ledger.entries, pods, node=name)
        known = self._registers.get(name)
        factor = inputs.factor
        if asks and known is not None and known.counted - counted:
            self._departures.setdefault(name, self._clock.monotonic())
        if known is None or not known.rests_on(ledger, counted, present=original, factor=factor):
            text = register_of(ledger, counted, present=original, factor=factor)
            full = full_register(ledger, present=original, factor=factor)
            known = self._registers[name] = _Register(
                ledger=ledger,
                counted=counted,
                original=original,
                factor=factor,
                text=text,
                saved=saved_register(text, full),
            )
        return known

    def _is_settled(self, name: str, register: _Register, node: NodeObject) -> bool:
        """Say whether *register* is unlike that of *node* and has been the same for a while."""
        wanted = register.text, register.saved
        if wanted == (node.register, node.saved_register):
            self._pending.pop(name, None)
            return False
        now = self._clock.monotonic()
        before, since = self._pending.get(name, (wanted, now))
        since = since if before == wanted else now
        self._pending[name] = (wanted, since)
        return not node.register or now - since >= SETTLED_SECONDS


def _restore(inputs: RegisterInputs, name: str) -> Changes:
    """Return what is due on a node whose register another writes from now on: what was taken off.

    Of one that the other has written already nothing is left but what we kept. He may write at the
    same time, so this is for the version that was read.
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
    """Return what is to be registered, and whether by us; ``None`` while not all is known."""
    settings = inventory.settings
    ours = settings.volcano_register and settings.node_agent is NodeAgent.OURS
    nodes, ledgers = inventory.nodes(), inventory.ledgers() if ours else {}
    if nodes is None or ledgers is None or pods is None:
        return None
    factor = inventory.device_config.memory_factor
    return RegisterInputs(
        nodes=nodes, ledgers=ledgers, pods=pods, factor=factor, keeps_registers=ours
    )
