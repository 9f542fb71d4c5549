"""The one door through which pods get GPUs: a Binding comes in, a promise is committed once.

Binds to one node that wait at the same time share one read and one write. Whoever is cancelled
in the middle leaves the ledger as it is: the next one reads it anew, and finds its own entry there.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec
import structlog

from allocator.core.choose import Terms
from allocator.core.commitment import Unfit, assigned
from allocator.core.ledger import Ledger, commit_all, node_for, promising, read
from allocator.core.settings import NodeAgent
from allocator.model.decision import Assignment
from allocator.model.ledger import Entry
from allocator.model.request import PodRequest
from kube.clock import SYSTEM, Clock
from kube.errors import ConflictError, InvalidError, KubeError, NotFoundError
from webhook.core.binding import (
    CONFLICT,
    Elsewhere,
    Pass,
    Wish,
    entry_of,
    forbidden,
    judge,
    too_many,
    unfit,
)
from webhook.core.bindingreview import Bound, LivePod, live_pod, parse
from webhook.core.bindrecord import Circumstances, record
from webhook.core.bound import Promise, elsewhere, kept, passed
from webhook.core.mutate import Surroundings
from webhook.core.review import BadObjectError, Refusal, allowed, refused

GPU_NODES: Final = "/apis/vgpu-admission.io/v1alpha1/gpunodes"
# The API server repeats a call that is answered 503 with Retry-After inside the hook's 5 s, so
# two attempts and the second between them must fit.
PATIENCE: Final = 1.9  # seconds

log = structlog.get_logger(__name__)


class Calls(Protocol):
    """The part of :class:`kube.client.Client` that a commit needs."""

    async def get(self, path: str, *, timeout: float = ...) -> bytes:  # noqa: ASYNC109 -- the client's own option
        """Read one object, never from a cache."""

    async def json_patch(
        self,
        path: str,
        ops: Sequence[Mapping[str, object]],
        *,
        timeout: float = ...,  # noqa: ASYNC109 -- the client's own option
    ) -> bytes:
        """Change one object, or nothing where a test in *ops* fails."""


Outcome = Promise | Refusal | Elsewhere


class LateError(Exception):
    """No answer within the deadline; the caller is to be asked to come again."""


@dataclass(slots=True)
class _Bid:
    """One bind that waits for its node; ``won`` is set once the ledger says so."""

    wish: Wish
    around: Surroundings
    won: "Promise | Refusal | Elsewhere | None" = None


@dataclass(slots=True)
class _Desk:
    """One node's queue: who holds the lock serves all that wait."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[_Bid] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binder:
    """Answers reviews of Bindings, each within *patience* seconds.

    ``around`` returns the surroundings of a namespace. ``reserved`` returns the nodes on which a
    pod uid has a promise as far as is known: it bounds waste, never safety. ``remember`` takes
    the record of each bind of a pod that asks for vGPU, ``took`` how many seconds any bind took.
    ``arrived`` learns demand from a pod's uid, what it asked for, and whether the node was full.
    """

    calls: Calls
    around: Callable[[str], Surroundings]
    reserved: Callable[[str], frozenset[str]]
    remember: Callable[[Mapping[str, Any]], None] = lambda _: None
    arrived: Callable[[str, PodRequest, bool], None] = lambda _uid, _request, _failed: None
    took: Callable[[float], None] = lambda _: None
    clock: Clock = SYSTEM
    patience: float = PATIENCE
    _desks: defaultdict[str, _Desk] = field(default_factory=lambda: defaultdict(_Desk))

    async def bind(self, body: bytes) -> bytes:
        """Answer one review.

        Raises :class:`LateError` where the API server should ask again, and
        :class:`NotAReviewError` where there is nothing to answer to.
        """
        try:
            bound = parse(body)
        except BadObjectError as error:
            return refused(error.uid, _unreadable(error))
        began = self.clock.monotonic()
        try:
            async with asyncio.timeout(self.patience):
                outcome = await self._decided(bound)
            return self._answer(bound, outcome, self.clock.monotonic() - began)
        except TimeoutError as error:
            raise LateError(f"no commit within {self.patience} seconds") from error
        except KubeError as error:
            log.warning("bind put off", node=bound.node, pod=bound.pod, why=str(error))
            raise LateError(str(error)) from error

    def _answer(self, bound: Bound, outcome: Pass | Outcome, seconds: float) -> bytes:
        """Say and record what was decided; a dry run leaves no trace."""
        request = bound.request
        self.took(seconds)
        if isinstance(outcome, Pass):
            ops = passed(bound.binding, self.around(bound.namespace).vocabularies)
            return allowed(request.uid, operations=ops)
        now = self.clock.wall()
        if not request.dry_run:
            at = now.isoformat(timespec="milliseconds")
            circumstances = Circumstances(at=at, seconds=round(seconds, 6))
            self.remember(record(bound, outcome, circumstances))
        if isinstance(outcome, Refusal):
            return refused(request.uid, outcome)
        ops = elsewhere(bound.binding) if isinstance(outcome, Elsewhere) else kept(outcome, now)
        return allowed(request.uid, operations=ops)

    async def _decided(self, bound: Bound) -> Pass | Outcome:
        around = self.around(bound.namespace)
        live = await self._pod(bound)
        if live is None:
            text = f'pod "{bound.namespace}/{bound.pod}" does not exist'
            return Refusal(code=404, message=text, reason="NotFound")
        judged = judge(bound, live, around)
        if not isinstance(judged, Wish):
            return judged
        outcome = await self._promised(judged, around)
        # A full node is a failed attempt; one that could never serve says nothing of demand.
        full = isinstance(outcome, Refusal) and outcome.code == CONFLICT
        if not bound.request.dry_run and (full or isinstance(outcome, Promise)):
            self.arrived(live.uid, judged.wanted.request, full)
        return outcome

    async def _pod(self, bound: Bound) -> LivePod | None:
        try:
            path = f"/api/v1/namespaces/{bound.namespace}/pods/{bound.pod}"
            return live_pod(await self.calls.get(path, timeout=self.patience))
        except NotFoundError:
            return None

    async def _promised(self, wish: Wish, around: Surroundings) -> Outcome:
        """Commit, or say why not; a dry run decides alike and commits nothing (rule 7)."""
        refusal = too_many(wish, self.reserved(wish.live.uid))
        if refusal is not None:
            return refusal
        bid = _Bid(wish, around)
        if wish.bound.request.dry_run:
            await self._round(wish.bound.node, [bid], dry=True)
        else:
            await self._queued(bid)
        if bid.won is None:
            raise RuntimeError("a bid left its queue without an outcome")
        return bid.won

    async def _queued(self, bid: _Bid) -> None:
        """Wait at the node's desk until somebody, perhaps we, has served the bid."""
        node = bid.wish.bound.node
        desk = self._desks[node]
        desk.waiting.append(bid)
        try:
            failures = 0
            while bid.won is None:
                async with desk.lock:
                    if bid.won is None:
                        await self._round(node, list(desk.waiting))
                if bid.won is None:  # somebody else wrote first
                    failures += 1
                    await self.clock.sleep(self.clock.backoff(failures, first=0.02, most=0.3))
        finally:
            desk.waiting.remove(bid)
            if not desk.waiting and self._desks.get(node) is desk and not desk.lock.locked():
                del self._desks[node]

    async def _round(self, node: str, bids: Sequence[_Bid], *, dry: bool = False) -> None:
        """Serve *bids* on the ledger as it is now, all of them or, where it moves, none."""
        bids = [bid for bid in bids if bid.won is None]
        try:
            raw = await self.calls.get(f"{GPU_NODES}/{node}", timeout=self.patience)
        except NotFoundError:
            gone = forbidden(f'node "{node}" has no GPUs that vgpu-admission knows of')
            for bid in bids:
                upstream = bid.around.settings.node_agent is NodeAgent.UPSTREAM
                bid.won = Elsewhere() if upstream else gone
            return
        ledger = read(msgspec.json.decode(raw))
        results, entries = self._served(ledger, _once(bids))
        if entries and not dry and not await self._written(ledger, entries):
            return
        for bid, result in results:
            bid.won = result

    def _served(
        self, ledger: Ledger, bids: Sequence[_Bid]
    ) -> tuple[list[tuple[_Bid, Promise | Refusal]], list[Entry]]:
        """Decide about *bids* one after another, each seeing what the earlier ones get."""
        results: list[tuple[_Bid, Promise | Refusal]] = []
        entries: list[Entry] = []
        for bid in bids:
            wish, around = bid.wish, bid.around
            prefer = around.prefer or around.settings.prefer
            terms = Terms(prefer=prefer, geometries=around.geometries)
            found = assigned(ledger, wish.wanted, terms=terms, demand=around.snapshot.demand)
            if isinstance(found, Unfit):
                results.append((bid, unfit(wish, found)))
                continue
            entry = entry_of(wish, found, self.clock.wall())
            results.append((bid, _promise(bid, found, entry=entry, ledger=ledger)))
            ledger = promising(ledger, entry)
            entries.append(entry)
        return results, entries

    async def _written(self, ledger: Ledger, entries: Sequence[Entry]) -> bool:
        """Commit *entries*; false where the ledger had moved."""
        path = f"{GPU_NODES}/{ledger.name}"
        try:
            await self.calls.json_patch(path, commit_all(ledger, entries), timeout=self.patience)
        except (ConflictError, InvalidError):
            return False
        return True


def _once(bids: Sequence[_Bid]) -> list[_Bid]:
    """Leave a pod's second bid for a later round, where it finds the first one's entry."""
    return list({bid.wish.live.uid: bid for bid in reversed(bids)}.values())[::-1]


def _promise(bid: _Bid, assignment: Assignment, *, entry: Entry, ledger: Ledger) -> Promise:
    return Promise(
        wish=bid.wish,
        assignment=assignment,
        entry=entry,
        node=node_for(ledger, entry.uid),
        version=f"{ledger.uid}/{ledger.generation}",
        served_by=bid.around.settings.node_agent,
        vocabularies=bid.around.vocabularies,
    )


def _unreadable(error: BadObjectError) -> Refusal:
    return Refusal(code=422, message=f"binding: it cannot be read: {error}", reason="Invalid")
