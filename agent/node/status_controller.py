"""The writer of ``GPUNode.status``: one write at a time, on material change, at once for a hold.

A write tests the generation of the ledger that it is based on, and fails if there is a newer one.
So a container is held on a version that contains its entry, or does not start.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Never

import structlog

from agent.driver.driver import SIMULATED
from agent.node.node_informer import NodeInformer, OwnNode, StoredGpuNode, decode_gpu_node
from agent.node.pods import NodePod
from agent.node.status import Hardware, Identity, Json, NodeAccount, document, served_gpus
from agent.node.unaccounted import NodeUse, find_unaccounted, uses_gpus
from agent.share import NotYetError
from allocator.cluster.inventory import GPU_NODES
from allocator.model.untrusted import quote
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import ConflictError, InvalidError, KubeError, NotFoundError

SETTLE_SECONDS: Final = 1.0  # seconds for which changes are collected while no start waits
PROCESS_CHECK_INTERVAL: Final = 2.0  # seconds between searches for lingering processes
# Seconds after a hold in which a container may be on its way to its first process; a pod that was
# seen with a process since, a sandbox's too, shows one until the last container is over.
START_GRACE: Final = 10.0
NEVER: Final = float("-inf")
ATTEMPTS: Final = 5  # at one write, each on the newest version
FIRST_PAUSE: Final = 1.0  # seconds, doubled with each failure
LONGEST_PAUSE: Final = 30.0
log = structlog.get_logger(__name__)
Alive = Callable[[], Awaitable[Collection[str]]]


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """What is known on the node itself."""

    boot: str  # id
    hardware: Callable[[], Hardware | None]
    alive: Alive  # uids of pods with processes
    serving: Callable[[], bool] = lambda: True  # kubelet knows our slots
    simulated: bool = False  # the GPUs are
    exposed: str = ""  # why any container may see GPUs that nobody gave it; empty: none may


class StatusController:
    """Keeps the status up to date, and holds entries before containers start."""

    def __init__(
        self,
        api_client: ApiClient,
        informer: NodeInformer,
        facts: StatusFacts,
        *,
        clock: Clock = SYSTEM,
    ) -> None:
        """Write through *api_client* what *informer* and *facts* say."""
        self._calls = api_client
        self._informer = informer
        self._facts = facts
        self._clock = clock
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._urgent = asyncio.Event()
        self._changed = informer.subscribe()
        self._held_since: dict[str, float] = {}  # when each entry was last held for a start
        self._recovered = False
        self._released: frozenset[str] = frozenset()  # by writes since the last that was answered
        # What was written last, and what the API server made of it: an older schema drops fields.
        self._last_write: tuple[Json, Mapping[str, Any]] | None = None
        self._processes: tuple[float, frozenset[str]] = NEVER, frozenset()
        self.written = 0  # writes so far
        self.leaving = False  # no GPU is to be promised here any more
        self.stopping = False  # nor until the next agent serves
        self._lock = asyncio.Lock()  # held by the write in flight

    async def hold(self, uid: str) -> None:
        """Return once the entry of pod *uid* is in ``status.held``; raises NotYetError.

        Makes no API call if it is there already, so that a container that crashed restarts while
        the API server does not answer.
        """
        if self._is_held(uid):
            self._held_since[uid] = self._clock.monotonic()
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(uid, []).append(waiter)
        self._urgent.set()
        await waiter

    def hasten(self) -> None:
        """Write what has changed at once, without waiting for more changes."""
        self._urgent.set()

    async def close_node(self) -> StoredGpuNode | None:
        """Remove the inventory, so that every bind to this node is refused until it is written.

        Return the GPUNode as it is then, ``None`` where there is none. Raises :class:`KubeError`.
        """
        async with self._lock:
            stored_gpu_node = await self._read()
            if (
                stored_gpu_node is None
                or self._informer.is_upstream
                or not stored_gpu_node.ledger.inventory
            ):
                return stored_gpu_node
            ops = (
                {"op": "test", "path": "/metadata/uid", "value": stored_gpu_node.ledger.uid},
                {"op": "remove", "path": "/status/inventory"},
            )
            raw = await self._calls.json_patch(f"{GPU_NODES}/{self._informer.name}/status", ops)
            return self._informer.learn(decode_gpu_node(raw))

    def _is_held(self, uid: str) -> bool:
        """Say whether an entry is held for certain: no write of ours may have released it."""
        stored_gpu_node = self._informer.gpu_node
        return (
            self._recovered
            and stored_gpu_node is not None
            and stored_gpu_node.ledger.boot == self._facts.boot
            and uid in stored_gpu_node.ledger.held - self._released
            and stored_gpu_node.ledger.entry(uid) is not None
        )

    async def run(self) -> Never:
        """Write whenever the status changes, for ever."""
        failures = 0
        while True:
            await self._wait_due()
            waiting, self._waiting = self._waiting, {}
            try:
                missing = await self.flush(waiting.keys())
                failures = 0
            except KubeError as error:
                failures += 1
                log.warning("GPUNode status not updated", why=str(error))
                missing = dict.fromkeys(waiting, f"its start cannot be recorded: {error}")
                pause = self._clock.backoff(failures, first=FIRST_PAUSE, most=LONGEST_PAUSE)
                self._changed.set()
                _resolve_waiters(waiting, missing)
                await self._clock.sleep(pause)
                continue
            _resolve_waiters(waiting, missing)

    async def _wait_due(self) -> None:
        """Wait for a hold, for a change to settle, or for the next check of processes."""
        if not self._changed.is_set():
            await self._wait(
                PROCESS_CHECK_INTERVAL if self._held_since else LONGEST_PAUSE, self._changed
            )
        if self._changed.is_set() and not self._urgent.is_set():
            await self._wait(SETTLE_SECONDS)
        self._urgent.clear()
        self._changed.clear()

    async def _wait(self, seconds: float, also: asyncio.Event | None = None) -> None:
        events = [self._urgent, *(() if also is None else (also,))]
        tasks = [asyncio.ensure_future(event.wait()) for event in events]
        tasks.append(asyncio.ensure_future(self._clock.sleep(seconds)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def flush(self, holds: Collection[str] = ()) -> dict[str, str]:
        """Bring the status up to date with *holds* in it; return those that cannot be, and why.

        Raises :class:`KubeError` where the API server does not take it.
        """
        alive = await self._alive(fresh=not holds)
        stored_gpu_node = self._informer.gpu_node
        refused: KubeError | None = None
        for _ in range(ATTEMPTS):
            if (
                refused
                or stored_gpu_node is None
                or any(stored_gpu_node.ledger.entry(uid) is None for uid in holds)
            ):
                stored_gpu_node = await self._read()
            account = (
                None if stored_gpu_node is None else self._account(stored_gpu_node, holds, alive)
            )
            if stored_gpu_node is None or account is None:
                return dict.fromkeys(holds, "the status of its node is not known yet")
            wanted = document(account)
            if stored_gpu_node.status != wanted and self._last_write != (
                wanted,
                stored_gpu_node.status,
            ):
                try:
                    stored_gpu_node = await self._write(stored_gpu_node, wanted, account.held)
                except (ConflictError, InvalidError) as error:
                    refused = error
                    continue
            return {uid: _NO_ENTRY for uid in holds if uid not in account.held}
        assert refused is not None  # noqa: S101 -- the loop ends no other way
        raise refused

    async def _alive(self, *, fresh: bool) -> frozenset[str]:
        """Return the pods with processes; a start does not wait for a walk over all of them.

        A slightly old result is safe: pods that ended since are held a little longer, and pods that
        started since were held a moment ago.
        """
        now = self._clock.monotonic()
        at, known = self._processes
        if fresh or now - at >= PROCESS_CHECK_INTERVAL:
            known = frozenset(await self._facts.alive())
            self._processes = now, known
        return known

    async def _read(self) -> StoredGpuNode | None:
        try:
            raw = await self._calls.get(f"{GPU_NODES}/{self._informer.name}")
        except NotFoundError:
            return None
        return self._informer.learn(decode_gpu_node(raw))

    async def _write(
        self, stored_gpu_node: StoredGpuNode, wanted: Json, held: Collection[str]
    ) -> StoredGpuNode:
        ops = (
            {"op": "test", "path": "/metadata/uid", "value": stored_gpu_node.ledger.uid},
            {
                "op": "test",
                "path": "/metadata/generation",
                "value": stored_gpu_node.ledger.generation,
            },
            {"op": "add", "path": "/status", "value": wanted},
        )
        async with self._lock:
            if self.stopping and "inventory" in wanted:  # decided before close_node()
                raise ConflictError(409, "Conflict", "the agent is stopping")
            self._released |= stored_gpu_node.ledger.held.difference(held)
            raw = await self._calls.json_patch(f"{GPU_NODES}/{self._informer.name}/status", ops)
        self._released = frozenset()
        self.written += 1
        answer = decode_gpu_node(raw)
        self._last_write = wanted, answer.status
        return self._informer.learn(answer)

    def _account(
        self, stored_gpu_node: StoredGpuNode, holds: Collection[str], alive: frozenset[str]
    ) -> NodeAccount | None:
        """Return the content of the status, ``None`` while too little is known."""
        informer, node = self._informer, self._informer.node
        hardware = self._hardware(stored_gpu_node)
        if node is None or hardware is None or not informer.synced or informer.is_upstream:
            return None
        now = self._clock.monotonic()
        self._held_since |= dict.fromkeys(
            (uid for uid in holds if stored_gpu_node.ledger.entry(uid)), now
        )
        running = [pod for pod in informer.pods.values() if not pod.ended]
        started = [pod for pod in running if uses_gpus(pod, informer.vocabularies)]
        ledger = stored_gpu_node.ledger
        gpus = served_gpus(hardware, informer.device_config, informer.node_config, before=ledger)
        use = NodeUse(
            pods=started,
            gpus=[served_gpu.gpu for served_gpu in gpus],
            hardware=hardware,
            vocabularies=informer.vocabularies,
        )
        return NodeAccount(
            identity=self._identity(node),
            gpus=gpus,
            driver=hardware.driver,
            instances=hardware.instances,
            unpromised=find_unaccounted(stored_gpu_node.document, ledger, use),
            held=self._held_uids(stored_gpu_node, started, alive),
            generation=ledger.generation,
            closed=informer.plugin_conflict,
            exposed="" if self._facts.simulated else self._facts.exposed,
            no_inventory=self._boot_conflict(node) or self._driver_absence() or self._absence(),
        )

    def _hardware(self, stored_gpu_node: StoredGpuNode) -> Hardware | None:
        """Return the GPUs to report, ``None`` while they are unknown.

        A withdrawal needs no driver, which may be gone already. Simulated GPUs in the status go as
        soon as another agent than theirs runs, although no driver may ever list others.
        """
        known = self._facts.hardware()
        played = not self._facts.simulated and stored_gpu_node.ledger.driver == SIMULATED
        return known or (Hardware(devices=()) if self.leaving or played else None)

    def _driver_absence(self) -> str:
        """Return that no driver has listed GPUs yet; empty once one has, or for a withdrawal."""
        if self.leaving or self._facts.hardware() is not None:
            return ""
        return "its agent finds no driver; the GPUs that it had before were simulated"

    def _absence(self) -> str:
        """Return why no plugin of ours serves kubelet, or soon none will; empty if one does."""
        if self.leaving:
            return "its agent is leaving the node"
        if self.stopping:
            return "its agent is stopping; the next one opens the node"
        if self._facts.serving():
            return ""
        conflict = self._informer.plugin_conflict  # for which it does not register
        return conflict or "its agent has not registered with kubelet yet"

    def _boot_conflict(self, node: OwnNode) -> str:
        """Return how our boot id differs from our Node's; empty if it does not.

        The control plane takes no inventory of another boot than the Node's. So none is written
        until they agree, which is seconds after a reboot. On some container hosts (LXC) they never
        do.
        """
        if not node.boot or node.boot == self._facts.boot:
            return ""
        return (
            f"its agent reads boot id {quote(self._facts.boot)}, but its kubelet reports "
            f"{quote(node.boot)}; both must see the same /proc/sys/kernel/random/boot_id"
        )

    def _identity(self, node: OwnNode) -> Identity:
        return Identity(name=node.name, uid=node.uid, boot=self._facts.boot)

    def _held_uids(
        self, stored_gpu_node: StoredGpuNode, started: Collection[NodePod], alive: frozenset[str]
    ) -> frozenset[str]:
        """Return the uids whose containers may have started and have not all ended."""
        ledger = stored_gpu_node.ledger
        before = ledger.held if ledger.boot == self._facts.boot else frozenset()
        if not self._recovered:  # the previous agent may have held them a moment ago
            self._recovered = True
            self._held_since = dict.fromkeys(before, self._clock.monotonic()) | self._held_since
        known = {*before, *self._held_since, *(pod.uid for pod in started)}
        self._held_since |= dict.fromkeys(self._held_since.keys() & alive, NEVER)
        held = frozenset(
            uid for uid in known if ledger.entry(uid) is not None and not self._is_gone(uid, alive)
        )
        self._held_since = {uid: at for uid, at in self._held_since.items() if uid in held}
        return held

    def _is_gone(self, uid: str, alive: Collection[str]) -> bool:
        """Say whether no container of pod *uid* runs, nor is about to."""
        if uid in alive:
            return False
        pod = self._informer.pods.get(uid)
        if pod is not None:
            return pod.ended
        # Deleted by force, or so new that only kubelet knows it.
        at = self._held_since.get(uid)
        return at is None or self._clock.monotonic() - at >= START_GRACE


_NO_ENTRY: Final = "it no longer has an entry on this node"


def _resolve_waiters(
    waiting: Mapping[str, list[asyncio.Future[None]]], missing: Mapping[str, str]
) -> None:
    for uid, waiters in waiting.items():
        for waiter in waiters:
            if waiter.done():
                continue
            if why := missing.get(uid):
                waiter.set_exception(NotYetError(f"pod {quote(uid)} cannot start yet: {why}"))
            else:
                waiter.set_result(None)
