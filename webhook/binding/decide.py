"""Bindings: whether a pod may be bound to a node, and what it asks for there.

The API server refuses the Binding of a gated, deleted or bound pod only after the hooks ran. So
the hook denies these itself, before it commits an entry that nobody would use
(docs/design.md, commit rule 1).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from allocator.catalog.vocabularies import Vocabulary
from allocator.config.namespace_policy import NamespacePolicy, isolation_finding
from allocator.config.settings import NodeAgent
from allocator.hami.device_list import wished_gpus
from allocator.ledger.assign import NoFit, PodClaim
from allocator.ledger.ledger import Ledger, node_for
from allocator.ledger.reclaim import MOST_PROMISES
from allocator.mig.geometry import Geometries
from allocator.model.allocation import Assignment, Entry
from allocator.model.decision import Finding, Findings, ModeSource, Reason
from allocator.model.demand import Demand
from allocator.model.gpu import Node
from allocator.model.request import PodRequest
from allocator.model.untrusted import quote
from allocator.request.admitted import admitted_request
from allocator.request.parse import parse_request
from allocator.volcano.device_list import (
    LIST_ANNOTATION,
    hard_policy,
    listed_positions,
    listed_uuids,
)
from webhook.admission.context import AdmissionContext
from webhook.review.admission_review import Refusal
from webhook.review.binding_schema import BindingReview, LivePod, UnreadablePodError

# DeviceClasses of NVIDIA's and HAMi's drivers stand for nvidia.com/gpu.
CLAIMED_PREFIX: Final = "nvidia.com/"
CONFLICT: Final = 409  # HTTP status of a refusal that may pass later or on another node
AHEAD: Final = timedelta(seconds=30)  # of the clock; clocks of replicas differ by some seconds


@dataclass(frozen=True, slots=True)
class NoRequest:
    """The pod asks for no vGPU."""


@dataclass(frozen=True, slots=True)
class ServedUpstream:
    """Another device plugin serves the node, so it has no GPUNode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindInputs:
    """What an answer about room on a node rests on, besides the settings."""

    claim: PodClaim
    node: Node  # as it was decided on, without the pod
    version: str  # of the ledger that it was decided on: "<uid>/<generation>"
    vocabularies: Sequence[Vocabulary]
    demand: Demand  # as learned until then
    geometries: Geometries | None
    namespace: NamespacePolicy
    earlier: bool  # an earlier entry of the pod, or its running containers, decided


@dataclass(frozen=True, slots=True)
class Denied:
    """A refusal with its ``reason`` code, and what it rests on where it is about room."""

    refusal: Refusal
    reason: Reason
    inputs: BindInputs | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BindRequest:
    """A Binding that passes if the node has room; ``source`` says how the mode was chosen."""

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
    why = unbindable_reason(bound, live)
    if why:
        return conflict(f"pod {quote(bound.pod)} {why}")
    if claimed := live.claimed & resources_of(context.vocabularies):
        return conflict(_claimed_text(bound, min(claimed)))
    if isinstance(request, Findings):
        return _invalid(bound, request.first)
    return _bind_request(bound, live, request, context=context)


def resources_of(vocabularies: Iterable[Vocabulary]) -> frozenset[str]:
    """Return the resources by which pods ask us for GPUs."""
    return frozenset(name for v in vocabularies for name in (*v.resources, v.slot))


def _claimed_text(bound: BindingReview, resource: str) -> str:
    """Say that the pod would get a device past us.

    Since Kubernetes 1.36 a scheduler serves an extended resource that a node has none of from a
    DeviceClass of that name, with a whole device that no ledger knows of. It takes its claim back
    once we refuse, but leaves the pod's status, with which kubelet would start the pod never.
    """
    return (
        f"pod {quote(bound.pod)}: {quote(resource)} was allocated from a DeviceClass, because node "
        f"{quote(bound.node)} had none to give; remove extendedResourceName from that DeviceClass, "
        "and delete the pod so that it is recreated without the claim"
    )


def _invalid(bound: BindingReview, finding: Finding) -> Denied:
    text = f"pod {quote(bound.pod)} cannot be given a GPU: {finding} [{finding.reason}]"
    return Denied(Refusal(code=422, message=text, reason="Invalid"), finding.reason)


def cache_suffices(bound: BindingReview, live: LivePod, context: AdmissionContext) -> bool:
    """Return whether the cached pod is enough to judge by.

    Its request is immutable and its uid becomes a precondition of the Binding. A pod that would
    be denied is read again, and so is one that its scheduler changes right before the bind: by an
    annotation, or by a claim for a resource which DeviceClasses of others may stand for.
    """
    mine = bound.binding.metadata.uid == live.uid
    settings = context.settings
    written_on = (
        settings.hami_register
        or settings.node_agent is NodeAgent.HAMI
        or live.pod.spec.scheduler_name in settings.volcano_schedulers
        or _may_be_claimed(live)
    )
    return mine and not written_on and not unbindable_reason(bound, live)


def _may_be_claimed(live: LivePod) -> bool:
    """Say whether the pod names a resource of NVIDIA's, for which a DeviceClass may stand."""
    spec = live.pod.spec
    return any(
        name.startswith(CLAIMED_PREFIX)
        for container in (*spec.containers, *(spec.init_containers or ()))
        if container.resources is not None
        for name in container.resources.limits or ()
    )


def unbindable_reason(bound: BindingReview, live: LivePod) -> str:
    """Return why the API server would refuse the Binding; empty if it would not."""
    claimed = bound.binding.metadata.uid
    if claimed and claimed != live.uid:
        return f"has uid {live.uid}, not {claimed[:64]}: it was deleted and recreated"
    if live.deleting:
        return "is being deleted"
    if live.over:
        return "has ended"
    if live.gated:
        return "has scheduling gates"
    return f"is already bound to {quote(live.node)}" if live.node else ""


def _bind_request(
    bound: BindingReview, live: LivePod, request: PodRequest, *, context: AdmissionContext
) -> BindRequest | Denied:
    """Return the request in the mode of admission; a mode with source ``best`` stays open.

    The namespace may demand more now than it did when the pod was admitted.
    """
    present = live.pod.metadata.annotations or {}
    admitted = admitted_request(present, request, context.vocabularies)
    weak = isolation_finding(context.namespace, admitted.request, admitted.mode)
    if weak is not None:
        return _invalid(bound, weak)
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
            mode=admitted.mode or context.namespace.only_mode,
            gpus=listed_uuids(listed) or wished_gpus(present, bound.node),
            hard_policy=hard_policy(present, live.labels, context.settings.gpu_exclusive_rules),
            positions=listed_positions(listed),
        ),
    )


def surplus_ledgers(
    uid: str, elsewhere: Iterable[Ledger], most: int = MOST_PROMISES
) -> Sequence[Ledger]:
    """Return the ledgers that must lose their entry of pod *uid* before it gets another one.

    It has *most* at most then. All of *elsewhere* are of other nodes. The oldest entries go first,
    whoever asked for them: if forged reviews made them, the pod is not shut out (docs/design.md,
    commit rule 3).
    """
    entries = {ledger.name: entry for ledger in elsewhere if (entry := ledger.entry(uid))}
    having = [ledger for ledger in elsewhere if ledger.name in entries]
    having.sort(key=lambda ledger: (entries[ledger.name].since, ledger.name))
    return having[: max(0, len(having) - most + 1)]


def pending_refusal(node: str) -> Refusal:
    """Refuse another entry for a pod whose containers may have started on *node*."""
    return conflict(
        f"an earlier binding of the pod to {quote(node)} is still pending; the scheduler will retry"
    )


def locked_refusal(node: str) -> Refusal:
    """Refuse a pod while another one is about to start on *node*, whose plugin goes by a lock."""
    return conflict(
        f"node {quote(node)}: another pod is about to get its GPUs there, and the device plugin "
        "serves one pod at a time; the scheduler will retry"
    )


def bind_inputs(bind: BindRequest, context: AdmissionContext, ledger: Ledger) -> BindInputs:
    """Return what the answer to *bind* on *ledger* rests on."""
    uid = bind.wanted.uid
    return BindInputs(
        claim=bind.wanted,
        node=node_for(ledger, uid),
        version=f"{ledger.uid}/{ledger.generation}",
        vocabularies=context.vocabularies,
        demand=context.snapshot.demand,
        geometries=context.geometries,
        namespace=context.namespace,
        earlier=bool(bind.wanted.in_use) or ledger.entry(uid) is not None,
    )


def no_fit_denial(
    bind: BindRequest, no_fit: NoFit, ledger: Ledger, *, inputs: BindInputs | None = None
) -> Denied:
    """Say why the node of *ledger* has nothing for the pod: what ``FailedScheduling`` shows.

    Its user may not see pods of other namespaces, so those that came past us are only counted.
    """
    text = f"node {quote(bind.bound.node)}: {no_fit.finding} [{no_fit.finding.reason}]"
    if number := len(ledger.strangers):
        pods = "1 pod uses" if number == 1 else f"{number} pods use"
        text += f"; {pods} GPUs there without an entry: kubectl vgpu why names them"
    refusal = conflict(text) if no_fit.later else forbidden(text)
    return Denied(refusal, no_fit.finding.reason, inputs)


def entry_of(
    bind: BindRequest, assignment: Assignment, now: datetime, *, earlier: Entry | None = None
) -> Entry:
    """Return the entry for *assignment*; *now* is an aware time.

    It differs from the *earlier* one of the pod on that node at least in ``since``, which has no
    fractions of seconds. So a review can tell whether another one has renewed its entry, and a
    patch of the same devices changes the resource version. Many reviews in one second move
    ``since`` ahead by :data:`AHEAD` at most.
    """
    since = now.replace(microsecond=0)
    if earlier is not None and since <= earlier.since < since + AHEAD:
        since = earlier.since + timedelta(seconds=1)
    return Entry(
        namespace=bind.bound.namespace,
        pod=bind.bound.pod,
        uid=bind.live.uid,
        since=since,
        containers=assignment.containers,
    )


def unreadable_denial(namespace: str, name: str, error: UnreadablePodError) -> Denied:
    """Refuse a pod whose request cannot be read."""
    text = f"pod {quote(f'{namespace}/{name}')} cannot be read: {error} [{Reason.UNREADABLE}]"
    return Denied(Refusal(code=422, message=text, reason="Invalid"), Reason.UNREADABLE)


def conflict(message: str) -> Refusal:
    """Refuse with 409: the bind may pass later or on another node."""
    return Refusal(code=CONFLICT, message=message, reason="Conflict")


def forbidden(message: str) -> Refusal:
    """Refuse with 403: the bind will not pass on this node."""
    return Refusal(code=403, message=message, reason="Forbidden")
