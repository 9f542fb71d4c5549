"""Commit queues: one per node, in which waiting binds share reads and writes of the ledger.

A write costs the API server up to some tens of milliseconds, growing with the entries of the node.
So after a write the next one waits a moment, and binds that arrive meanwhile share it.

A cached ledger is good enough to commit on, because the patch tests that it has not changed. A
refusal needs a fresh read. A bind that is cancelled halfway leaves the ledger as it is: the retry
reads it again and finds its own entry.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from allocator.cluster.inventory import GPU_NODES
from allocator.config.settings import NodeAgent
from allocator.ledger.commit import commit_all
from allocator.ledger.ledger import Ledger, parse_ledger_text
from allocator.mig.positions import keep_volcano_positions
from allocator.model.allocation import Entry
from kube.client import ApiClient
from kube.clock import Clock
from kube.errors import ConflictError, InvalidError, NotFoundError
from webhook.admission.context import AdmissionContext
from webhook.binding.batch import Outcome, decide_batch
from webhook.binding.binding_annotations import Commit
from webhook.binding.decide import BindRequest, ServedUpstream, forbidden

# Of a storm, these are served and the others wait in line: were all at work at once, none would be
# done before the API server gives up.
TURNS: Final = 16
# A bind that is asked for again is carried out for nobody if its first caller is gone by then. So
# there is one attempt, as long as the hook's 5 s allow, and no new work towards its end.
LAST_TURN: Final = 4.0  # seconds after which a bind is not begun any more
PATIENCE: Final = 4.8  # seconds for all of it
PAUSE: Final = 0.25  # seconds between two writes of one ledger


class LateError(Exception):
    """No answer within the deadline; the caller should retry."""


@dataclass(slots=True, eq=False)
class _WaitingBind:
    """One bind that waits for its node; ``outcome`` is set once the ledger says so."""

    bind: BindRequest
    context: AdmissionContext
    deadline: float  # monotonic seconds
    outcome: Outcome | None = None


@dataclass(slots=True)
class _CommitQueue:
    """The queue of one node: the holder of the lock serves all that wait.

    ``last_written`` is the GPUNode as our last write left it, while somebody waits.
    """

    node: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[_WaitingBind] = field(default_factory=list)
    last_written: bytes = b""


@dataclass(slots=True, kw_only=True)
class CommitQueues:
    """The queues of all nodes."""

    calls: ApiClient
    cached_ledger: Callable[[str], Ledger | None]  # a cached ledger by node
    # Whether a ledger's status is of its Node as it runs now, as far as is known.
    is_current: Callable[[Ledger], bool]
    clock: Clock
    patience: float = PATIENCE
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(TURNS))
    _queues: dict[str, _CommitQueue] = field(default_factory=dict)
    _pauses: dict[str, float] = field(default_factory=dict)  # by node, its end; the oldest first

    async def commit(self, bind: BindRequest, context: AdmissionContext) -> Outcome:
        """Commit what the node of *bind* has for it, or say why it has nothing.

        Raises :class:`LateError` where its turn does not come in time.
        """
        waiting_bind = _WaitingBind(bind, context, deadline=self.clock.monotonic() + LAST_TURN)
        node = bind.bound.node
        queue = self._queues.setdefault(node, _CommitQueue(node))
        queue.waiting.append(waiting_bind)
        try:
            await self._wait_served(queue, waiting_bind)
        finally:
            queue.waiting.remove(waiting_bind)
            if not queue.waiting and self._queues.get(node) is queue and not queue.lock.locked():
                del self._queues[node]
        return _outcome_of(waiting_bind)

    async def preview(self, bind: BindRequest, context: AdmissionContext) -> Outcome:
        """Say what :meth:`commit` would, and commit nothing."""
        waiting_bind = _WaitingBind(bind, context, deadline=inf)
        queue = _CommitQueue(bind.bound.node, waiting=[waiting_bind])
        await self._serve(queue, await self.read_ledger(queue.node), dry=True)
        return _outcome_of(waiting_bind)

    async def read_ledger(self, node: str) -> Ledger | None:
        """Read a node's ledger past all caches."""
        try:
            raw = await self.calls.get(f"{GPU_NODES}/{node}", timeout=self.patience)
        except NotFoundError:
            return None
        return _parse(raw)

    async def _wait_served(self, queue: _CommitQueue, waiting_bind: _WaitingBind) -> None:
        """Wait in the queue until *waiting_bind* is served, by this task or another."""
        failures = 0
        while waiting_bind.outcome is None:
            async with queue.lock:
                if waiting_bind.outcome is None:
                    await self._wait_pause(queue.node)
                    await self._take_turn(queue)
            if waiting_bind.outcome is None and self.clock.monotonic() >= waiting_bind.deadline:
                raise LateError(f"no turn at the ledger within {LAST_TURN} seconds")
            if waiting_bind.outcome is None:  # somebody else wrote first
                failures += 1
                await self.clock.sleep(self.clock.backoff(failures, first=0.02, most=0.3))

    async def _wait_pause(self, node: str) -> None:
        """Wait until the ledger of *node* may be written again."""
        pause = self._pauses.get(node, 0.0) - self.clock.monotonic()
        if pause > 0:
            await self.clock.sleep(pause)

    def _pause(self, node: str) -> None:
        """Let the ledger of *node* rest after a write; forget the rests that are over."""
        now = self.clock.monotonic()
        self._pauses.pop(node, None)
        self._pauses[node] = now + PAUSE
        while next(iter(self._pauses.values())) <= now:
            del self._pauses[next(iter(self._pauses))]

    async def _take_turn(self, queue: _CommitQueue) -> None:
        """Serve the queue on the cached ledger, and the rest on a fresh read."""
        async with self._turns:
            known = (
                _parse(queue.last_written) if queue.last_written else self.cached_ledger(queue.node)
            )
            if known is None or not await self._serve(queue, known, certain=False):
                await self._serve(queue, await self.read_ledger(queue.node))

    def _due_binds(self, queue: _CommitQueue) -> list[_WaitingBind]:
        """Return who is to be served; a pod's second bind finds the first one's entry later."""
        now = self.clock.monotonic()
        binds = [
            waiting_bind
            for waiting_bind in queue.waiting
            if waiting_bind.outcome is None and now < waiting_bind.deadline
        ]
        return list(
            {waiting_bind.bind.live.uid: waiting_bind for waiting_bind in reversed(binds)}.values()
        )[::-1]

    async def _serve(
        self, queue: _CommitQueue, ledger: Ledger | None, *, certain: bool = True, dry: bool = False
    ) -> bool:
        """Serve who waits on *ledger*, all of them or, where it moves, none.

        Says whether nobody of them has to wait for another attempt.
        """
        binds = self._due_binds(queue)
        if ledger is None or not binds:
            _answer_without_ledger(binds)
            return True
        known = binds[0].context.snapshot.nodes.get(queue.node)
        ledger = replace(
            ledger,
            # A Node that is back takes nothing before its agent has accounted for it.
            inventory=ledger.inventory if self.is_current(ledger) else "",
            node=keep_volcano_positions(ledger.node, known),
        )
        results = decide_batch(
            ledger,
            [(waiting_bind.bind, waiting_bind.context) for waiting_bind in binds],
            self.clock.wall(),
        )
        entries = [result.entry for result in results if isinstance(result, Commit)]
        if entries and not dry and not await self._write(queue, ledger, entries):
            return False
        for waiting_bind, result in zip(binds, results, strict=True):
            if certain or isinstance(result, Commit):
                waiting_bind.outcome = result
        return all(waiting_bind.outcome is not None for waiting_bind in binds)

    async def _write(self, queue: _CommitQueue, ledger: Ledger, entries: Sequence[Entry]) -> bool:
        """Commit *entries*; false where the ledger had moved."""
        path, ops = f"{GPU_NODES}/{queue.node}", commit_all(ledger, entries)
        queue.last_written = b""
        try:
            queue.last_written = await self.calls.json_patch(path, ops, timeout=self.patience)
        except (ConflictError, InvalidError, NotFoundError):
            return False
        self._pause(queue.node)
        return True


def _answer_without_ledger(binds: Iterable[_WaitingBind]) -> None:
    """Answer for a node without a GPUNode.

    Volcano's plugin and scheduler do without us there; HAMi's plugin waits for what we write.
    """
    for waiting_bind in binds:
        upstream = waiting_bind.context.settings.node_agent is NodeAgent.UPSTREAM
        text = f'node "{waiting_bind.bind.bound.node}" has no GPUs known to vgpu-admission'
        waiting_bind.outcome = ServedUpstream() if upstream else forbidden(text)


def _parse(raw: bytes) -> Ledger:
    return parse_ledger_text(raw)[0]


def _outcome_of(waiting_bind: _WaitingBind) -> Outcome:
    if waiting_bind.outcome is None:
        raise RuntimeError("a bind left its queue without an outcome")
    return waiting_bind.outcome
