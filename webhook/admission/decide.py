"""One pod at CREATE: parse, check, rewrite; confirm at validation."""

from collections.abc import Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from allocator.catalog.injection import Column
from allocator.catalog.vocabularies import Vocabulary
from allocator.config.node_templates import expected_kinds
from allocator.model.decision import Finding, Findings, ModeChoice, Reason, findings_of
from allocator.model.request import PodRequest
from allocator.model.value import Value
from allocator.placement.mode import nominal_size_warnings
from allocator.replay.recorded_request import RecordedRequest
from allocator.request.admitted import Asked, earlier_pass, named_mode, without_chosen_mode
from allocator.request.annotation_keys import read_keys, unread_key_warnings
from allocator.request.parse import lost_findings, parse_request, unserved_findings
from webhook.admission import reinvocation, tenant_checks
from webhook.admission.choice import ChooseMode, chosen_mode
from webhook.admission.containers import ContainerRef, container_refs
from webhook.admission.context import AdmissionContext
from webhook.admission.outcome import GpusHidden, Outcome, Refused, Rewritten, Untouched
from webhook.admission.rewrite import Rewrite, blind, is_blind
from webhook.review.json_patch import Intent, operations
from webhook.review.pod_schema import Pod


def decide(pod: Pod, context: AdmissionContext, choose: ChooseMode = chosen_mode) -> Outcome:
    """Decide about one pod at CREATE: parse its request, find obstacles, intend a change.

    *choose* chooses the mode as :func:`chosen_mode` does, and may remember what it chose.
    """
    containers, init_containers = pod.spec.containers, pod.spec.init_containers or ()
    request = parse_request(
        containers=containers,
        init_containers=init_containers,
        annotations=pod.metadata.annotations or {},
        vocabularies=context.vocabularies,
    )
    if request is None:
        return _without_request(pod, context)
    vocabularies = tuple(context.vocabularies)
    request = lost_findings(init_containers, containers, vocabularies, lost=context.lost) or request
    if isinstance(request, Findings):
        asked = reinvocation.encode_asked(reinvocation.as_it_stands(pod))
        digest = _digest(pod, asked, constraints=_annotations_as_they_stand(pod, context))
        return Refused(request, digest)
    return _with_request(pod, request, context, choose=choose)


def _without_request(pod: Pod, context: AdmissionContext) -> Outcome:
    """Hide GPUs from a pod that asks us for none; refuse forged grants."""
    findings = list(tenant_checks.annotations(pod))
    refs = container_refs(pod)
    for container in refs:
        findings += tenant_checks.container(tenant_checks.CheckedContainer(container, Column.VOID))
    if refusal := findings_of(findings):
        return Refused(refusal)
    vocabularies = tuple(context.vocabularies)
    unserved = unserved_findings(
        pod.spec.init_containers or (), pod.spec.containers, vocabularies, lost=context.lost
    )
    changes = tuple(change for container in refs if (change := blind(container, pod)) is not None)
    warnings = tuple(map(str, unserved))
    hidden = changes or any(map(is_blind, refs))
    return GpusHidden(Intent(containers=changes), warnings) if hidden else Untouched(warnings)


class _AskedRequest(Value, frozen=True):
    """A pod's request as it was first asked, without what an earlier pass of admission chose."""

    pod: Pod
    container_refs: Sequence[ContainerRef]
    vocabulary: Vocabulary
    request: PodRequest
    resources: Mapping[str, Mapping[str, str]]  # as they stand, by asking container
    asked: Asked
    text: str  # *asked*, encoded
    digest: str  # names what was asked
    chosen_before: ModeChoice | None  # by an earlier pass that is believed


def _with_request(
    pod: Pod, request: PodRequest, context: AdmissionContext, *, choose: ChooseMode
) -> Outcome:
    """Decide about a pod that asks for vGPU: what was asked, the mode, the rewritten pod.

    The order matters: the digest names what was asked, whatever is chosen later. So it comes
    first, it is the same in each pass, and a refusal for want of a mode carries it as well.
    """
    asked = _asked_request(pod, request, context)
    chosen = choose(asked.request, context, asked.chosen_before)
    recorded, decision = chosen.recorded, chosen.outcome.decision
    if isinstance(decision, Findings):
        return Refused(decision, asked.digest, (), recorded)
    return _rewrite(asked, chosen.outcome.request, decision, recorded=recorded, context=context)


def _asked_request(pod: Pod, request: PodRequest, context: AdmissionContext) -> _AskedRequest:
    """Return what was asked before admission changed the pod, if an earlier pass did."""
    vocabulary = next(v for v in context.vocabularies if v.name == request.vocabulary)
    refs = container_refs(pod)
    resources = _asking_resources(refs, request, vocabulary)
    claim = earlier_pass(pod.metadata.annotations or {}, vocabulary)
    earlier = (
        reinvocation.confirm_earlier(claim, resources, vocabulary=vocabulary) if claim else None
    )
    request = without_chosen_mode(request, claim)
    asked = earlier.asked if earlier else Asked(mode=named_mode(request), containers=resources)
    text = reinvocation.encode_asked(asked)
    return _AskedRequest(
        pod=pod,
        container_refs=refs,
        vocabulary=vocabulary,
        request=request,
        resources=resources,
        asked=asked,
        text=text,
        digest=_digest(pod, text, constraints=request.constraints),
        chosen_before=earlier.choice if earlier else None,
    )


def _rewrite(
    asked: _AskedRequest,
    request: PodRequest,
    choice: ModeChoice,
    *,
    recorded: RecordedRequest,
    context: AdmissionContext,
) -> Outcome:
    """Return the rewritten pod, or what forbids it."""
    rewrite = Rewrite(
        pod=asked.pod,
        container_refs=asked.container_refs,
        request=request,
        choice=choice,
        vocabulary=asked.vocabulary,
        settings=context.settings,
        resources=asked.resources,
        host_paths=context.host_paths,
        high_priority=context.high_priority,
        extender=context.extender,
    )
    intent, findings = rewrite.intent(asked.text, asked.digest)
    offers = expected_kinds(context.snapshot.offers, context.settings.node_templates)
    warnings = (
        *map(str, choice.warnings),
        *nominal_size_warnings(request, choice, offers),
        *rewrite.warnings(),
        *unread_key_warnings(
            asked.pod.metadata.annotations or {},
            asked.vocabulary,
            earlier=asked.chosen_before is not None,
        ),
    )
    if refusal := findings_of(findings):
        return Refused(refusal, asked.digest, warnings, recorded)
    return Rewritten(request, rewrite.choice, asked.asked, asked.digest, intent, warnings, recorded)


def _asking_resources(
    refs: Sequence[ContainerRef], request: PodRequest, vocabulary: Vocabulary
) -> dict[str, dict[str, str]]:
    """Return the resources of each asking container as they stand."""
    asking = {container.name for container in request.containers}
    return {
        ref.container.name: reinvocation.visible_resources(ref.container, vocabulary)
        for ref in refs
        if ref.container.name in asking
    }


def _annotations_as_they_stand(pod: Pod, context: AdmissionContext) -> tuple[str, ...]:
    """Return the annotations that are read, so that another mistake in one has another digest."""
    written = pod.metadata.annotations or {}
    keys = frozenset(chain.from_iterable(map(read_keys, context.vocabularies)))
    return tuple(f"{key}={written[key]}" for key in sorted(keys.intersection(written)))


def _digest(pod: Pod, asked: str, *, constraints: tuple[str, ...]) -> str:
    owners = pod.metadata.owner_references or ()
    return reinvocation.digest_of(
        asked,
        namespace=pod.metadata.namespace or "",
        owner=next((owner.uid for owner in owners if owner.controller), ""),
        constraints=constraints,
    )


def confirm(pod: Pod, context: AdmissionContext) -> Outcome:
    """Refuse a pod whose injection is incomplete or was tampered with.

    Volumes are not required, only tolerated: a namespace's Pod Security level may have changed
    since the mutating pass, and the agent's answer serves in either case.
    """
    outcome = decide(pod, replace(context, host_paths=False))
    if not isinstance(outcome, Rewritten):
        return outcome if isinstance(outcome, Refused) else Untouched()
    missing = operations(pod, outcome.intent)
    if not missing:
        return outcome
    finding = Finding(
        reason=Reason.INCOMPLETE,
        place="pod",
        field=missing[0]["path"],
        what=f"the vGPU injection is incomplete at {missing[0]['path'][:128]}",
        remedy="keep later webhooks from removing what vgpu-admission adds, then recreate the pod",
    )
    return Refused(Findings(finding), outcome.digest)
