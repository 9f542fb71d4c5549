"""Binding: whether a pod may go to a node, and what it is then to be promised there.

The registry refuses a Binding of a gated, deleted or bound pod only after the hooks ran, so what
it would refuse is denied before anything is committed (docs/design.md, commit rule 1).
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from allocator.catalog.vocabularies import Vocabulary
from allocator.ledger.assign import NoFit, PodClaim
from allocator.model.allocation import Assignment, Entry
from allocator.model.decision import ModeSource, Reason
from allocator.model.request import PodRequest
from allocator.model.untrusted import quote
from allocator.request.admitted import admitted_request
from allocator.request.parse import parse_request
from allocator.volcano.device_list import LIST_ANNOTATION, listed_positions, listed_uuids
from webhook.admission.context import AdmissionContext
from webhook.review.admission_review import Refusal
from webhook.review.binding_schema import BindingReview, LivePod, UnreadablePodError

CONFLICT: Final = 409  # the status of what may well pass later or elsewhere
MOST_PROMISES: Final = 2  # of one pod that is not bound yet


@dataclass(frozen=True, slots=True)
class NoRequest:
    """The pod asks for nothing of ours."""


@dataclass(frozen=True, slots=True)
class ServedUpstream:
    """Another plugin serves the node and keeps account of it: no ledger of ours exists."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The pod itself or the node stands in the way; ``reason`` is the kind of obstacle."""

    refusal: Refusal
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class BindRequest:
    """The pod may go there if the node has what it asks for; ``source`` is how its mode came."""

    bound: BindingReview
    live: LivePod
    vocabulary: Vocabulary
    source: ModeSource
    wanted: PodClaim


Judgement = NoRequest | Refusal | Denied | BindRequest


def judge(bound: BindingReview, live: LivePod, context: AdmissionContext) -> Judgement:
    """Judge a Binding against the pod as it is now."""
    request = parse_request(
        containers=live.pod.spec.containers,
        init_containers=live.pod.spec.init_containers or (),
        annotations=live.pod.metadata.annotations or {},
        vocabularies=context.vocabularies,
    )
    if request is None:
        return NoRequest()
    why = _unbindable_reason(bound, live)
    if why:
        return conflict(f"pod {quote(bound.pod)} {why}")
    if isinstance(request, tuple):
        text = f"pod {quote(bound.pod)} cannot be promised a GPU: {request[0]}"
        refusal = Refusal(code=422, message=f"{text} [{request[0].reason}]", reason="Invalid")
        return Denied(refusal, request[0].reason)
    return _wish(bound, live, request, context=context)


def cache_suffices(bound: BindingReview, live: LivePod, context: AdmissionContext) -> bool:
    """Say whether a pod that a cache remembers is enough to judge by.

    What it asks for cannot change, and its uid becomes a precondition of the Binding. What would
    deny the bind must be read anew, and so must a pod whose scheduler writes on it right before.
    """
    mine = bound.binding.metadata.uid == live.uid
    written_on = live.pod.spec.scheduler_name in context.settings.volcano_schedulers
    return mine and not written_on and not _unbindable_reason(bound, live)


def _unbindable_reason(bound: BindingReview, live: LivePod) -> str:
    """Say what the registry would refuse; empty where it is nothing."""
    claimed = bound.binding.metadata.uid
    if claimed and claimed != live.uid:
        return f"has uid {live.uid}, not {claimed[:64]}: it was deleted and made anew"
    if live.deleting:
        return "is being deleted"
    if live.over:
        return "has ended"
    if live.gated:
        return "has scheduling gates"
    return f"is already bound to {quote(live.node)}" if live.node else ""


def _wish(
    bound: BindingReview, live: LivePod, request: PodRequest, *, context: AdmissionContext
) -> BindRequest:
    """Take the mode from admission's word; one that was the best then may be revised now."""
    present = live.pod.metadata.annotations or {}
    admitted = admitted_request(present, request, context.vocabularies)
    brought = bound.binding.metadata.annotations or {}
    listed = brought.get(LIST_ANNOTATION) or present.get(LIST_ANNOTATION, "")
    return BindRequest(
        bound=bound,
        live=live,
        vocabulary=admitted.vocabulary,
        source=admitted.source,
        wanted=PodClaim(
            uid=live.uid,
            request=admitted.request,
            mode=admitted.mode,
            gpus=listed_uuids(listed),
            positions=listed_positions(listed),
        ),
    )


def too_many(bind: BindRequest, others: frozenset[str]) -> Refusal | None:
    """Refuse a third promise to a pod that has promises on *others* than this node."""
    elsewhere = sorted(others - {bind.bound.node})
    if len(elsewhere) < MOST_PROMISES:
        return None
    names = " and ".join(quote(name) for name in elsewhere[:MOST_PROMISES])
    return conflict(f"earlier binds of the pod to {names} are not settled yet; it is tried again")


def no_fit_denial(bind: BindRequest, no_fit: NoFit) -> Denied:
    """Say why the node has nothing for the pod: what ``FailedScheduling`` shows its user."""
    text = f"node {quote(bind.bound.node)}: {no_fit.finding} [{no_fit.finding.reason}]"
    return Denied(conflict(text) if no_fit.later else forbidden(text), no_fit.finding.reason)


def entry_of(bind: BindRequest, assignment: Assignment, since: datetime) -> Entry:
    """Return the promise that *assignment* is, from *since* on, an aware time."""
    return Entry(
        namespace=bind.bound.namespace,
        pod=bind.bound.pod,
        uid=bind.live.uid,
        since=since.replace(microsecond=0),
        containers=assignment.containers,
    )


def unreadable_denial(namespace: str, name: str, error: UnreadablePodError) -> Denied:
    """Refuse a pod of which nobody can tell what it asks for."""
    text = f"pod {quote(f'{namespace}/{name}')} cannot be read: {error} [{Reason.UNREADABLE}]"
    return Denied(Refusal(code=422, message=text, reason="Invalid"), Reason.UNREADABLE)


def conflict(message: str) -> Refusal:
    """Refuse what may well pass later or elsewhere."""
    return Refusal(code=CONFLICT, message=message, reason="Conflict")


def forbidden(message: str) -> Refusal:
    """Refuse what will not pass there."""
    return Refusal(code=403, message=message, reason="Forbidden")
