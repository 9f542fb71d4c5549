"""The registrar: keeps Volcano's register and handshake on the nodes that agents of ours serve.

It writes them and never takes them away: its scheduler crashes on a node that has capacity and no
register. Whoever reports capacity waits until the register is there (docs/volcano.md). What is
taken off is kept beside, and given back where the register is another's task from then on.
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
from allocator.volcano.register import HANDSHAKE, REGISTER, HandshakePhase, encode_handshake
from allocator.volcano.registered_capacity import (
    counted_uids,
    full_register,
    needs_report,
    register_of,
    reminder,
)
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError
from kube.workqueue import Backoff, isolated

# A promise is unseen until its Binding has landed. Who wrote at once would write twice for each.
SETTLED: Final = 2.0  # seconds
BREATH: Final = 50  # nodes; reviews wait for no more than those, some milliseconds
log = structlog.get_logger(__name__)
Changes = Mapping[str, object]  # of a Node's metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterInputs:
    """What caches tell, ``None`` while not all is known: Nodes, GPUNodes, and pods by uid.

    ``factor`` is the site's gpuMemoryFactor. ``ours`` says that registers are for us to keep.
    """

    nodes: Mapping[str, NodeObject]
    ledgers: Mapping[str, Ledger]
    pods: Mapping[str, PodSummary]
    factor: int
    ours: bool = True


@dataclass(frozen=True, slots=True)
class _Text:
    """A register, what it was written from, and what is kept beside it."""

    ledger: Ledger
    counted: frozenset[str]
    present: str
    factor: int
    text: str
    beside: str

    def rests_on(
        self, ledger: Ledger, counted: frozenset[str], *, present: str, factor: int
    ) -> bool:
        same = (self.counted, self.present, self.factor) == (counted, present, factor)
        return same and self.ledger is ledger


class VolcanoRegisterController:
    """Writes what is due; any number may run, one at a time is enough."""

    def __init__(
        self, calls: ApiClient, world: Callable[[], RegisterInputs | None], *, clock: Clock = SYSTEM
    ) -> None:
        """Write through *calls* what *world* says is due; ``None`` says that nothing is."""
        self._calls = calls
        self._world = world
        self._clock = clock
        self._kept: Backoff[str] = Backoff(clock)
        self._seen: dict[str, tuple[tuple[str, str], float]] = {}  # what to write, and since when
        self._texts: dict[str, _Text] = {}
        self._left: dict[str, float] = {}  # since when its account of a node may be wrong

    async def sweep(self) -> None:
        """Bring the annotations of every node up to date."""
        world = self._world()
        if world is None:
            return
        served = world.ledgers.keys() & world.nodes.keys() if world.ours else set[str]()
        judged = self._due_changes if world.ours else _restore
        due: dict[str, Changes] = {}
        for number, name in enumerate(served if world.ours else world.nodes):
            if number % BREATH == 0:
                await self._clock.sleep(0)
            with isolated("register check failed", node=name):
                if changes := judged(world, name):
                    due[name] = changes
        for gone in self._texts.keys() - served:
            del self._texts[gone]
            self._seen.pop(gone, None)
            self._left.pop(gone, None)
        due = self._add_refresh(world, due)
        for name in self._kept.due_keys(due):
            with isolated(
                "register update failed", partial(self._kept.note_failure, name), node=name
            ):
                await self._write(name, due[name])

    async def _write(self, name: str, metadata: Changes) -> None:
        try:
            await self._calls.merge_patch(f"{NODES}/{name}", {"metadata": metadata})
        except KubeError as error:
            log.warning("register not updated", node=name, why=str(error))
            self._kept.note_failure(name)
        else:
            self._left.pop(name, None)

    def _add_refresh(self, world: RegisterInputs, due: dict[str, Changes]) -> dict[str, Changes]:
        """Add one node whose tenants left, the one that waits longest.

        Releases up to 1.14 take off less than they charged, and count anew when a Node changes.
        Each change costs them a request in the middle of a cycle, so there is one at a time.
        """
        now = self._clock.monotonic()
        waiting = [(at, name) for name, at in self._left.items() if name not in due]
        at, name = min(waiting, default=(now, ""))
        if name and now - at >= SETTLED:
            handshake = encode_handshake(HandshakePhase.REPORTED, self._clock.wall())
            answer = {REGISTER: world.nodes[name].text, HANDSHAKE: handshake}
            return due | {name: {"annotations": answer}}
        return due

    def _due_changes(self, world: RegisterInputs, name: str) -> Changes:
        """Return what to write; both annotations at once, so that neither is there alone."""
        node, text = world.nodes[name], self._text(world, name)
        if not text.text:
            return {}
        now = self._clock.wall()
        news = self._is_settled(name, text, node)
        if not news and not needs_report(node.handshake, now):
            return {}
        answer = {HANDSHAKE: encode_handshake(HandshakePhase.REPORTED, now)}
        if not news:
            return {"annotations": {REGISTER: node.text, **answer}}
        kept = {REGISTER_KEY: text.beside or None} if text.beside or node.beside else {}
        return {"annotations": {REGISTER: text.text, **answer, **kept}}

    def _text(self, world: RegisterInputs, name: str) -> _Text:
        """Return the register of a node, made anew where what it rests on changed; note who left.

        Releases that do not ask, the later ones, keep account well enough by themselves.
        """
        ledger, present = world.ledgers[name], world.nodes[name].full_register
        asks = world.nodes[name].handshake.startswith(HandshakePhase.REQUESTING)
        pods = [world.pods[entry.uid] for entry in ledger.entries if entry.uid in world.pods]
        counted = counted_uids(ledger.entries, pods, node=name)
        known = self._texts.get(name)
        factor = world.factor
        if asks and known is not None and known.counted - counted:
            self._left.setdefault(name, self._clock.monotonic())
        if known is None or not known.rests_on(ledger, counted, present=present, factor=factor):
            text = register_of(ledger, counted, present=present, factor=factor)
            full = full_register(ledger, present=present, factor=factor)
            known = self._texts[name] = _Text(
                ledger=ledger,
                counted=counted,
                present=present,
                factor=factor,
                text=text,
                beside=reminder(text, full),
            )
        return known

    def _is_settled(self, name: str, text: _Text, standing: NodeObject) -> bool:
        """Say whether *found* has been what to write instead of what is *standing* for a while."""
        wanted = text.text, text.beside
        if wanted == (standing.text, standing.beside):
            self._seen.pop(name, None)
            return False
        now = self._clock.monotonic()
        before, since = self._seen.get(name, (wanted, now))
        since = since if before == wanted else now
        self._seen[name] = (wanted, since)
        return not standing.text or now - since >= SETTLED


def _restore(world: RegisterInputs, name: str) -> Changes:
    """Return what is due on a node whose register another writes from now on: what was taken off.

    Of one that the other has written already nothing is left but what we kept. He may write at the
    same time, so this is for the version that was read.
    """
    node = world.nodes[name]
    if not node.beside:
        return {}
    return {
        "resourceVersion": node.version,
        "annotations": {REGISTER: node.full_register, REGISTER_KEY: None},
    }


def world_of(inventory: Inventory, pods: Mapping[str, PodSummary] | None) -> RegisterInputs | None:
    """Return what is to be registered, and whether by us; ``None`` while not all is known."""
    settings = inventory.settings
    ours = settings.volcano_register and settings.node_agent is NodeAgent.OURS
    nodes, ledgers = inventory.nodes(), inventory.ledgers() if ours else {}
    if nodes is None or ledgers is None or pods is None:
        return None
    factor = inventory.device_config.memory_factor
    return RegisterInputs(nodes=nodes, ledgers=ledgers, pods=pods, factor=factor, ours=ours)
