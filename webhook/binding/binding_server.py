"""The bind webhook: reviews a Binding and commits one entry for its pod.

What the API server would refuse is denied before anything is committed; ``commit_client`` commits.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import structlog

from allocator.cluster.assumed_pods import AssumedPods
from allocator.cluster.inventory import GPU_NODES
from allocator.config.settings import NodeAgent
from allocator.extender.pod import BINDING_PRIORITY, SchedulingPod
from allocator.families.registry import family_of
from allocator.hami.node_lock_client import NodeLockClient
from allocator.ledger.commit import remove_entries
from allocator.ledger.ledger import Ledger
from allocator.ledger.reclaim import MOST_PROMISES
from allocator.model.request import PodRequest
from allocator.model.untrusted import quote
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import ConflictError, InvalidError, KubeError, NotFoundError
from webhook.admission.context import AdmissionContext
from webhook.binding.audit_record import UNNAMED_RECORDS, BindRecords
from webhook.binding.batch import Outcome, decision_labels
from webhook.binding.binding_annotations import (
    Commit,
    committed_patch,
    strip_reserved,
    upstream_patch,
)
from webhook.binding.commit_client import PATIENCE, CommitQueues, LateError
from webhook.binding.decide import (
    CONFLICT,
    BindRequest,
    Denied,
    NoRequest,
    ServedUpstream,
    cache_suffices,
    conflict,
    forbidden,
    judge,
    locked_refusal,
    pending_refusal,
    surplus_ledgers,
    unbindable_reason,
    unreadable_denial,
)
from webhook.binding.group_client import GroupGuard
from webhook.review.admission_review import BadObjectError, Refusal, allow, refuse
from webhook.review.binding_schema import (
    BindingReview,
    LivePod,
    UnreadablePodError,
    live_pod,
    parse,
)

__all__ = ["BindingHandler", "LateError"]
FULL_WIDTH_PERCENT: Final = "\N{FULLWIDTH PERCENT SIGN}"
log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class BindingHandler:
    """Answers reviews of Bindings, each within ``patience`` seconds.

    Cached pods and ledgers are believed only as far as the API server will check them.
    """

    calls: ApiClient
    context_of: Callable[[str], AdmissionContext]  # by namespace
    # The nodes with an entry for a pod uid, as far as is known: it bounds waste, never safety.
    nodes_with_entry: Callable[[str], frozenset[str]]
    # A cached pod by namespace and name, if it has no node.
    cached_pod: Callable[[str, str], LivePod | None] = lambda _namespace, _name: None
    # A cached ledger by node.
    cached_ledger: Callable[[str], Ledger | None] = lambda _: None
    # Whether a ledger's status is of its Node as it runs now, as far as is known.
    is_current: Callable[[Ledger], bool] = lambda _: True
    # Takes the record of each bind of a pod that asks for vGPU.
    remember: Callable[[Mapping[str, Any]], None] = lambda _: None
    records: BindRecords = UNNAMED_RECORDS  # makes them
    # Learns demand: the pod's uid, what it asked for, and whether the node was full.
    learn_arrival: Callable[[str, PodRequest, bool], None] = lambda _uid, _request, _failed: None
    # Takes a pod's uid, and text and code of the refusal where its node has nothing for it.
    note_refusal: Callable[[str, str, str], None] = lambda _uid, _text, _code: None
    # Counts the decision and the code of its reason.
    count_decision: Callable[[str, str], None] = lambda _decision, _reason: None
    # Takes the seconds that any bind took.
    observe_seconds: Callable[[float], None] = lambda _: None
    groups: GroupGuard | None = None  # None: no pods are kept together
    assumed_pods: AssumedPods = field(default_factory=AssumedPods)  # pods being bound
    clock: Clock = SYSTEM
    patience: float = PATIENCE
    most_entries: int = MOST_PROMISES  # of one pod that is not bound yet
    _queues: CommitQueues = field(init=False)

    def __post_init__(self) -> None:
        """Make the queues of all nodes."""
        self._queues = CommitQueues(
            calls=self.calls,
            cached_ledger=self.cached_ledger,
            is_current=self.is_current,
            clock=self.clock,
            patience=self.patience,
        )

    async def bind(self, body: bytes) -> bytes:
        """Answer one review.

        Raises :class:`LateError` where the API server should ask again, and
        :class:`NotAReviewError` where there is nothing to answer to.
        """
        try:
            bound = parse(body)
        except BadObjectError as error:
            return refuse(error.uid, _formatted(_unreadable_refusal(error)))
        began = self.clock.monotonic()
        try:
            async with asyncio.timeout(self.patience):
                live, outcome = await self._decide(bound)
            return self._answer(bound, live, outcome, seconds=self.clock.monotonic() - began)
        except TimeoutError as error:
            raise LateError(f"no commit within {self.patience} seconds") from error
        except KubeError as error:
            log.warning("bind deferred", node=bound.node, pod=bound.pod, why=str(error))
            raise LateError(str(error)) from error

    def _answer(
        self,
        bound: BindingReview,
        live: LivePod | None,
        outcome: NoRequest | Outcome,
        *,
        seconds: float,
    ) -> bytes:
        """Answer, record and count the decision; a dry run is only answered."""
        request = bound.request
        self.observe_seconds(seconds)
        if isinstance(outcome, NoRequest):
            ops = strip_reserved(bound.binding, self.context_of(bound.namespace).vocabularies)
            return allow(request.uid, operations=ops)
        now = self.clock.wall()
        if not request.dry_run:
            made = self.records.record(bound, outcome, live=live, at=now, seconds=seconds)
            self.remember(made)
            self.count_decision(*decision_labels(outcome))
        if isinstance(outcome, Refusal | Denied):
            return refuse(request.uid, _formatted(_refusal(outcome)))
        ops = (
            upstream_patch(bound.binding)
            if isinstance(outcome, ServedUpstream)
            else committed_patch(outcome, now)
        )
        return allow(request.uid, operations=ops)

    async def _decide(self, bound: BindingReview) -> tuple[LivePod | None, NoRequest | Outcome]:
        """Return what is decided about the pod that is there, ``None`` where there is none."""
        context = self.context_of(bound.namespace)
        live = self.cached_pod(bound.namespace, bound.pod)
        if live is None or not cache_suffices(bound, live, context):
            try:
                live = await self._read_pod(bound)
            except UnreadablePodError as error:
                return None, unreadable_denial(bound.namespace, bound.pod, error)
        if live is None:
            text = f'pod "{bound.namespace}/{bound.pod}" does not exist'
            return None, Refusal(code=404, message=text, reason="NotFound")
        return live, await self._judge(bound, live, context)

    async def _judge(
        self, bound: BindingReview, live: LivePod, context: AdmissionContext
    ) -> NoRequest | Outcome:
        judged = judge(bound, live, context)
        if not isinstance(judged, BindRequest):
            return judged
        outcome = await self._commit_or_preview(judged, context)
        # A full node is a failed attempt; one that could never serve says nothing of demand.
        full = isinstance(outcome, Denied) and outcome.refusal.code == CONFLICT
        if not bound.request.dry_run and (full or isinstance(outcome, Commit)):
            self.learn_arrival(live.uid, judged.wanted.request, full)
        if not bound.request.dry_run and isinstance(outcome, Refusal | Denied):
            _, code = decision_labels(outcome)
            self.note_refusal(live.uid, _refusal(outcome).message, code)
        return outcome

    async def _read_pod(self, bound: BindingReview) -> LivePod | None:
        try:
            path = f"/api/v1/namespaces/{bound.namespace}/pods/{bound.pod}"
            return live_pod(await self.calls.get(path, timeout=self.patience))
        except NotFoundError:
            return None

    async def _commit_or_preview(self, bind: BindRequest, context: AdmissionContext) -> Outcome:
        """Commit, or return why not; a dry run commits nothing (docs/design.md, commit rule 7)."""
        if bind.bound.request.dry_run:
            denied = self.groups and self.groups.denial(bind)
            return denied or await self._queues.preview(bind, context)
        elsewhere = self.nodes_with_entry(bind.live.uid) - {bind.bound.node}
        if len(elsewhere) >= self.most_entries:  # so far as a cache can say
            why_not = await self._replace_oldest(bind, context, elsewhere)
            if why_not is not None:
                return why_not
        request = bind.wanted.request
        family = family_of(request)
        locking = family.needs_lock is not None and family.needs_lock(request)
        if locking or family.served_by(context.settings) is NodeAgent.HAMI:
            return await self._commit_locked(bind, context)
        return await self._commit_in_group(bind, context)

    async def _commit_in_group(self, bind: BindRequest, context: AdmissionContext) -> Outcome:
        """Commit where groups of pods allow it; nothing is awaited between that and the commit."""
        groups = self.groups
        if groups is None:
            return await self.commit(bind, context)
        denied = groups.denial(bind)
        if denied is not None:
            return denied
        opens = groups.opens_group(bind)
        outcome = await self.commit(bind, context)
        if opens and isinstance(outcome, Commit):
            earlier = outcome.inputs.earlier
            return await groups.confirm(bind, outcome.entry, earlier=earlier) or outcome
        return outcome

    async def _commit_locked(self, bind: BindRequest, context: AdmissionContext) -> Outcome:
        """Commit while the pod holds HAMi's node lock, because the plugin serves its holder.

        The plugin releases it. Where the Binding fails after the hook, the leader does.
        """
        locks, bound = NodeLockClient(calls=self.calls, clock=self.clock), bind.bound
        try:
            locked = await locks.take(bound.node, bound.namespace, bound.pod)
        except NotFoundError:
            return forbidden(f"node {quote(bound.node)} does not exist")
        if not locked:
            return locked_refusal(bound.node)
        outcome = await self._commit_in_group(bind, context)
        if not isinstance(outcome, Commit):
            with contextlib.suppress(KubeError):  # the leader releases it later
                await locks.release(bound.node, bound.namespace, bound.pod)
        return outcome

    async def _replace_oldest(
        self, bind: BindRequest, context: AdmissionContext, elsewhere: Collection[str]
    ) -> Outcome | None:
        """Remove the pod's oldest entry *elsewhere*, if it has too many; return why not, if so.

        Only a pod that the node has something for loses one. As in a removal by age, the pod is
        read after the ledgers. If a ledger changes in between, all is read and decided again.
        """
        failures = 0
        while True:
            ledgers = [await self._queues.read_ledger(node) for node in sorted(elsewhere)]
            known = [ledger for ledger in ledgers if ledger is not None]
            surplus = surplus_ledgers(bind.live.uid, known, self.most_entries)
            if not surplus:
                return None
            outcome = await self._queues.preview(bind, context)
            why_not = await self._reason_to_keep(bind, surplus)
            if why_not is not None or not isinstance(outcome, Commit):
                return why_not or outcome
            if all([await self._release(ledger, bind.live.uid) for ledger in surplus]):
                return None
            failures += 1
            await self.clock.sleep(self.clock.backoff(failures, first=0.02, most=0.3))

    async def _reason_to_keep(self, bind: BindRequest, surplus: Iterable[Ledger]) -> Refusal | None:
        """Return why no entry of the pod in *surplus* may be removed, ``None`` if each may."""
        live = await self._read_pod(bind.bound)
        if live is None or live.uid != bind.live.uid:
            return conflict(f"pod {quote(bind.bound.pod)} was deleted meanwhile")
        why = unbindable_reason(bind.bound, live)
        if why:
            return conflict(f"pod {quote(bind.bound.pod)} {why}")
        held = [ledger.name for ledger in surplus if bind.live.uid in ledger.held]
        return pending_refusal(held[0]) if held else None

    async def _release(self, ledger: Ledger, uid: str) -> bool:
        """Remove an entry from *ledger* as it was read; return false where that has changed."""
        path = f"{GPU_NODES}/{ledger.name}"
        try:
            await self.calls.json_patch(path, remove_entries(ledger, uid), timeout=self.patience)
        except (ConflictError, InvalidError):
            return False
        log.info("oldest entry of an unbound pod removed", node=ledger.name, uid=uid)
        entry = ledger.entry(uid)
        if entry is not None:
            self.remember(self.records.replaced_record(ledger.name, entry, at=self.clock.wall()))
        return True

    async def commit(self, bind: BindRequest, context: AdmissionContext) -> Outcome:
        """Commit what the node of *bind* has for it, or say why it has nothing."""
        pod, outcome = _assumed_pod(bind), None
        self.assumed_pods.begin(pod)
        try:
            outcome = await self._queues.commit(bind, context)
        finally:
            self.assumed_pods.end(pod, promised=isinstance(outcome, Commit))
        return outcome


def _assumed_pod(bind: BindRequest) -> SchedulingPod:
    bound = bind.bound
    return SchedulingPod(
        uid=bind.live.uid,
        namespace=bound.namespace,
        name=bound.pod,
        priority=BINDING_PRIORITY,
        nominated=bound.node,
        claim=bind.wanted,
    )


def _refusal(outcome: Refusal | Denied) -> Refusal:
    return outcome.refusal if isinstance(outcome, Denied) else outcome


def _formatted(refusal: Refusal) -> Refusal:
    """Return *refusal* as text that is the same after a scheduler has formatted it.

    kube-scheduler hands the text of a refused Binding to ``Errorf`` as its format, where a percent
    sign of a quoted value would eat what follows.
    """
    return replace(refusal, message=refusal.message.replace("%", FULL_WIDTH_PERCENT))


def _unreadable_refusal(error: BadObjectError) -> Refusal:
    return Refusal(
        code=422, message=f"binding: the object cannot be read: {error}", reason="Invalid"
    )
