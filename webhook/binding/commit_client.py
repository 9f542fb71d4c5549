"""Desks: one for each node, where binds that wait for one ledger share its reads and its writes.

A write costs the API server the more the more a node promises, up to some tens of milliseconds. So
after one the next waits a moment, for others to come: they share it.

A ledger is taken from a cache where one has it, because the patch tests that it has not moved; only
one that was read past all caches may refuse anybody. Whoever is cancelled in the middle leaves the
ledger as it is: the next one reads it anew, and finds its own entry there.
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
    """No answer within the deadline; the caller is to be asked to come again."""


@dataclass(slots=True, eq=False)
class _WaitingBind:
    """One bind that waits for its node; ``won`` is set once the ledger says so."""

    bind: BindRequest
    context: AdmissionContext
    until: float  # monotonic seconds
    won: Outcome | None = None


@dataclass(slots=True)
class _CommitQueue:
    """One node's queue: who holds the lock serves all that wait.

    ``left`` is the GPUNode as our last write left it, while somebody waits.
    """

    node: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[_WaitingBind] = field(default_factory=list)
    left: bytes = b""


@dataclass(slots=True, kw_only=True)
class CommitQueues:
    """All nodes' desks.

    ``ledgers`` returns a node's ledger as far as a cache knows it. ``stands`` says whether a
    ledger's status is of its Node as it runs now, as far as is known.
    """

    calls: ApiClient
    ledgers: Callable[[str], Ledger | None]
    stands: Callable[[Ledger], bool]
    clock: Clock
    patience: float = PATIENCE
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(TURNS))
    _desks: dict[str, _CommitQueue] = field(default_factory=dict)
    _pauses: dict[str, float] = field(default_factory=dict)  # by node, until when; the oldest first

    async def promise(self, bind: BindRequest, context: AdmissionContext) -> Outcome:
        """Commit what the node of *wish* has for it, or say why it has nothing.

        Raises :class:`LateError` where its turn does not come in time.
        """
        bid = _WaitingBind(bind, context, until=self.clock.monotonic() + LAST_TURN)
        node = bind.bound.node
        desk = self._desks.setdefault(node, _CommitQueue(node))
        desk.waiting.append(bid)
        try:
            await self._wait_served(desk, bid)
        finally:
            desk.waiting.remove(bid)
            if not desk.waiting and self._desks.get(node) is desk and not desk.lock.locked():
                del self._desks[node]
        return _outcome_of(bid)

    async def preview(self, bind: BindRequest, context: AdmissionContext) -> Outcome:
        """Say what :meth:`promise` would, and commit nothing."""
        bid = _WaitingBind(bind, context, until=inf)
        desk = _CommitQueue(bind.bound.node, waiting=[bid])
        await self._serve(desk, await self.ledger(desk.node), dry=True)
        return _outcome_of(bid)

    async def ledger(self, node: str) -> Ledger | None:
        """Read a node's ledger past all caches."""
        try:
            raw = await self.calls.get(f"{GPU_NODES}/{node}", timeout=self.patience)
        except NotFoundError:
            return None
        return _read(raw)

    async def _wait_served(self, desk: _CommitQueue, bid: _WaitingBind) -> None:
        """Wait at the desk until somebody, perhaps we, has served *bid*."""
        failures = 0
        while bid.won is None:
            async with desk.lock:
                if bid.won is None:
                    await self._wait_pause(desk.node)
                    await self._take_turn(desk)
            if bid.won is None and self.clock.monotonic() >= bid.until:
                raise LateError(f"its turn did not come within {LAST_TURN} seconds")
            if bid.won is None:  # somebody else wrote first
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

    async def _take_turn(self, desk: _CommitQueue) -> None:
        """Serve who waits on the ledger as it is known, and who is left on it as it is."""
        async with self._turns:
            known = _read(desk.left) if desk.left else self.ledgers(desk.node)
            if known is None or not await self._serve(desk, known, certain=False):
                await self._serve(desk, await self.ledger(desk.node))

    def _open(self, desk: _CommitQueue) -> list[_WaitingBind]:
        """Return who is to be served; a pod's second bid finds the first one's entry later."""
        now = self.clock.monotonic()
        bids = [bid for bid in desk.waiting if bid.won is None and now < bid.until]
        return list({bid.bind.live.uid: bid for bid in reversed(bids)}.values())[::-1]

    async def _serve(
        self, desk: _CommitQueue, ledger: Ledger | None, *, certain: bool = True, dry: bool = False
    ) -> bool:
        """Serve who waits on *ledger*, all of them or, where it moves, none.

        Says whether nobody of them has to wait for another attempt.
        """
        bids = self._open(desk)
        if ledger is None or not bids:
            _turn_away(bids)
            return True
        known = bids[0].context.snapshot.nodes.get(desk.node)
        ledger = replace(
            ledger,
            # A Node that is back takes nothing before its agent has accounted for it.
            inventory=ledger.inventory if self.stands(ledger) else "",
            node=keep_volcano_positions(ledger.node, known),
        )
        results = decide_batch(ledger, [(bid.bind, bid.context) for bid in bids], self.clock.wall())
        entries = [result.entry for result in results if isinstance(result, Commit)]
        if entries and not dry and not await self._commit(desk, ledger, entries):
            return False
        for bid, result in zip(bids, results, strict=True):
            if certain or isinstance(result, Commit):
                bid.won = result
        return all(bid.won is not None for bid in bids)

    async def _commit(self, desk: _CommitQueue, ledger: Ledger, entries: Sequence[Entry]) -> bool:
        """Commit *entries*; false where the ledger had moved."""
        path, ops = f"{GPU_NODES}/{desk.node}", commit_all(ledger, entries)
        desk.left = b""
        try:
            desk.left = await self.calls.json_patch(path, ops, timeout=self.patience)
        except (ConflictError, InvalidError, NotFoundError):
            return False
        self._pause(desk.node)
        return True


def _turn_away(bids: Iterable[_WaitingBind]) -> None:
    """Answer for a node that keeps no ledger of ours."""
    for bid in bids:
        upstream = bid.context.settings.node_agent is NodeAgent.UPSTREAM
        text = f'node "{bid.bind.bound.node}" has no GPUs that vgpu-admission knows of'
        bid.won = ServedUpstream() if upstream else forbidden(text)


def _read(raw: bytes) -> Ledger:
    return parse_ledger_text(raw)[0]


def _outcome_of(bid: _WaitingBind) -> Outcome:
    if bid.won is None:
        raise RuntimeError("a bid left its desk without an outcome")
    return bid.won
