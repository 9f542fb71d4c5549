"""Late entries, or Events why not; pods on nodes without GPUNode."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Final

import msgspec
import structlog

from allocator.cluster.inventory import GPU_NODES
from allocator.cluster.picture import ChangeTracker
from allocator.cluster.pods import Pods
from allocator.config.settings import NodeAgent
from allocator.families.registry import family_of
from allocator.ledger.ledger import Ledger, parse_ledger
from allocator.model.untrusted import quote
from allocator.request.pod_summary import PodSummary
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError, NotFoundError
from kube.events import Event, Reference, Severity
from kube.workqueue import Backoff, Workqueue, isolated
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_annotations import Commit
from webhook.binding.binding_server import BindingHandler
from webhook.binding.commit_client import LateError
from webhook.binding.decide import BindRequest, Denied, conflict, judge, unreadable_denial
from webhook.binding.late_commit import (
    LateBasis,
    LateClaim,
    as_bound,
    as_unbound,
    has_assignment,
    late_annotations,
    late_claim,
)
from webhook.review.admission_review import Refusal
from webhook.review.binding_schema import LivePod, UnreadablePodError, live_pod

AFTER: Final = 60.0  # seconds


class PodsWithoutGpuNode:
    """Remembers since when each pod has been stranded, for as long as it is."""

    def __init__(self, report: Callable[[PodSummary, str], None], clock: Clock) -> None:
        """Let *report* write why to each pod."""
        self._report = report
        self._clock = clock
        self._since: dict[
            str, float
        ] = {}  # monotonic seconds by uid; infinite once it was reported

    def update(self, pods_and_lacks: Mapping[str, tuple[PodSummary, str]]) -> None:
        """Take all pods that are stranded now by uid, each with what its node lacks."""
        now = self._clock.monotonic()
        self._since = {uid: self._since.get(uid, now) for uid in pods_and_lacks}
        for uid, (pod, why) in pods_and_lacks.items():
            if now - self._since[uid] >= AFTER:
                self._since[uid] = inf
                self._report(pod, why)


USER: Final = "vgpu-admission"  # in the record of a bind that nobody asked us about
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caches:
    """Where to look: all pods, and the GPUNodes by name or ``None`` while not all are known."""

    pods: Pods
    ledgers: Callable[[], Mapping[str, Ledger] | None]
    context_of: Callable[[str], AdmissionContext]


@dataclass(slots=True, kw_only=True)
class LateCommitController:
    """Commits for pods that were bound past the hook. Several may run; one is enough."""

    calls: ApiClient
    binder: BindingHandler
    caches: Caches
    record_event: Callable[[Event], None] = lambda _: None
    remember: Callable[[Mapping[str, Any]], None] = lambda _: None
    clock: Clock = SYSTEM
    _missing: frozenset[str] = frozenset()
    _unsettled: dict[str, None] = field(default_factory=dict)  # uids, in the order of their change
    _pod_changes: ChangeTracker[PodSummary] = field(default_factory=ChangeTracker)
    _ledger_changes: ChangeTracker[Ledger] = field(default_factory=ChangeTracker)
    _backoff: Backoff[tuple[PodSummary, str]] = field(init=False)
    _stranded: PodsWithoutGpuNode = field(init=False)
    _queue: Workqueue[str] = field(default_factory=Workqueue)

    def __post_init__(self) -> None:
        """Begin without failures."""
        self._backoff = Backoff(self.clock)
        self._stranded = PodsWithoutGpuNode(self._report_stranded, self.clock)

    async def sweep(self) -> None:
        """Commit for every pod that the caches show bound and without a promise, twice in a row.

        Once is not enough: the entry of a pod that was just bound may be on its way to us.
        """
        without_entry = self._pods_without_entry()
        twice = [place for place in without_entry if place[0].uid in self._missing]
        self._missing = frozenset(pod.uid for pod, _ in without_entry)
        due = {place[0].uid: place for place in self._backoff.due_keys(twice)}
        await self._queue.run_each(due, self._try_commit)

    async def _try_commit(self, place: tuple[PodSummary, str]) -> None:
        pod, failed = place[0], partial(self._backoff.note_failure, place)
        who = f"{pod.namespace}/{pod.name}"
        with isolated("late commit failed", failed, pod=who):
            try:
                if not await self.commit(pod):
                    failed()
            except (KubeError, LateError) as error:
                log.warning("late commit deferred", pod=who, why=str(error))
                failed()

    def _pods_without_entry(self) -> list[tuple[PodSummary, str]]:
        """Return bound, living pods that ask and lack an entry on their node, or word of it.

        A node that nobody has accounted for has nothing to give, and nobody knows what runs there.
        With each pod comes the version of the ledger: one that moved is worth another try at once.
        """
        pods, ledgers = self.caches.pods.by_uid, self.caches.ledgers()
        if pods is None or ledgers is None:
            return []
        self._note_changed(pods, ledgers)
        without_entry = []
        stranded: dict[str, tuple[PodSummary, str]] = {}
        for uid in list(self._unsettled):
            pod = pods.get(uid)
            if pod is None or not (pod.extended and pod.node) or pod.over or pod.deleting:
                del self._unsettled[uid]
                continue
            ledger = ledgers.get(pod.node)
            if ledger is None:
                stranded[uid] = pod, ""
            elif ledger.closed:
                if ledger.entry(uid) is None:
                    stranded[uid] = pod, ledger.closed
            elif pod.assignment_json and ledger.entry(uid) is not None:
                del self._unsettled[uid]
            elif pod.requests_gpus(self.caches.context_of(pod.namespace).vocabularies):
                without_entry.append((pod, ledger.resource_version))
        self._stranded.update(stranded)
        return without_entry

    def _note_changed(self, pods: Mapping[str, PodSummary], ledgers: Mapping[str, Ledger]) -> None:
        """Note the pods to look at.

        A sweep is every second, so pods that have what is theirs are skipped until they or the
        ledgers of their nodes change.
        """
        uids, names = self._pod_changes.take(pods), self._ledger_changes.take(ledgers)
        if uids is None or names is None:
            self._unsettled = dict.fromkeys(pods)
            return
        self._unsettled |= dict.fromkeys(uids)
        for name in names:
            self._unsettled |= {pod.uid: None for pod in self.caches.pods.on_node(name)}

    def _report_stranded(self, pod: PodSummary, why: str) -> None:
        """Say what the node of *pod* lacks; without a GPUNode another plugin may serve it."""
        context = self.caches.context_of(pod.namespace)
        upstream = context.settings.node_agent is NodeAgent.UPSTREAM
        if not pod.requests_gpus(context.vocabularies) or (upstream and not why):
            return
        why = why or "it has no GPUs known to vgpu-admission"
        note = f"bound without vgpu-admission, has no entry on node {quote(pod.node)}: {why}"
        self.record_event(_event(pod, "VgpuUnpromised", note=note))

    async def commit(self, pod: PodSummary) -> bool:
        """Commit the entry of *pod* and annotate it; return whether nothing is left to do."""
        try:
            live = await self._live(pod)
        except UnreadablePodError as error:
            return self._report_refusal(
                pod, unreadable_denial(pod.namespace, pod.name, error), started=False
            )
        document = await self._document(pod.node)
        if live is None or document is None:
            return True
        return await self._settle(pod, live, document)

    async def _settle(self, pod: PodSummary, live: LivePod, document: Mapping[str, Any]) -> bool:
        ledger = parse_ledger(document)
        if any(entry.uid == pod.uid for entry in ledger.unreadable):
            return self._report_refusal(pod, conflict(_UNREAD), started=live.started)
        if ledger.entry(pod.uid) is not None and has_assignment(live):
            return True
        context = self.caches.context_of(pod.namespace)
        judged = judge(as_bound(pod, USER), as_unbound(live), context)
        if isinstance(judged, Refusal | Denied):
            return self._report_refusal(pod, judged, started=live.started)
        if not isinstance(judged, BindRequest):
            return True
        upstream = family_of(judged.wanted.request).served_by(context.settings).is_other
        claim = late_claim(judged, ledger, document, upstream=upstream)
        if isinstance(claim, Refusal):
            return self._report_refusal(pod, claim, started=live.started)
        return await self._commit_claim(pod, claim, context)

    async def _commit_claim(
        self, pod: PodSummary, claim: LateClaim, context: AdmissionContext
    ) -> bool:
        outcome = await self.binder.commit(claim.bind, context)
        if isinstance(outcome, Commit):
            written = claim.bind.live.pod.metadata.annotations or {}
            added = late_annotations(outcome, written)
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
            changes = {"metadata": {"uid": pod.uid, "annotations": added}}
            await self.calls.merge_patch(path, changes)
            self._record(claim, outcome)
            self.record_event(_event(pod, "VgpuAssigned", note=_WAYS[claim.how]))
            return True
        if isinstance(outcome, Refusal | Denied):
            return self._report_refusal(pod, outcome, started=claim.bind.live.started)
        return True

    def _report_refusal(self, pod: PodSummary, why: Refusal | Denied, *, started: bool) -> bool:
        refusal = why.refusal if isinstance(why, Denied) else why
        so = "has no entry" if started else "so it does not start"
        note = f"bound without vgpu-admission, {so}: {refusal.message}"
        self.record_event(_event(pod, "VgpuUnpromised", note=note))
        return False

    def _record(self, claim: LateClaim, outcome: Commit) -> None:
        made = self.binder.records.late_record(
            claim.bind.bound, outcome, basis=str(claim.how), at=self.clock.wall()
        )
        self.remember(made)

    async def _live(self, pod: PodSummary) -> LivePod | None:
        """Return the pod as it is now, ``None`` where it is no longer the one, there and alive."""
        try:
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
            live = live_pod(await self.calls.get(path))
        except NotFoundError:
            return None
        there = (live.uid, live.node) == (pod.uid, pod.node)
        return live if there and not live.over and not live.deleting else None

    async def _document(self, node: str) -> dict[str, Any] | None:
        try:
            raw = await self.calls.get(f"{GPU_NODES}/{node}")
        except NotFoundError:
            return None
        document: dict[str, Any] = msgspec.json.decode(raw)
        return document


_UNREAD: Final = "its entry cannot be read; delete the pod so that it is rescheduled"
_WAYS: Final = {
    LateBasis.KEPT: "its annotations were missing; they were written from its entry",
    LateBasis.CONFIRMED: "its entry was missing; it was written from what the agent found in use",
    LateBasis.TOLD: "its entry was missing; it was written from its annotations",
    LateBasis.CHOSEN: "bound without vgpu-admission; its GPU was assigned afterwards",
}


def _event(pod: PodSummary, reason: str, *, note: str) -> Event:
    name, namespace = pod.name, pod.namespace
    regarding = Reference(api_version="v1", kind="Pod", name=name, namespace=namespace, uid=pod.uid)
    return Event(
        regarding=regarding,
        severity=Severity.NORMAL if reason == "VgpuAssigned" else Severity.WARNING,
        reason=reason,
        action="Commit",
        note=note,
        related=Reference(api_version="v1", kind="Node", name=pod.node),
    )
