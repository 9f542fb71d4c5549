"""One pod at CREATE: parse, check, rewrite; confirm at validation."""

from collections.abc import Sequence

from msgspec.structs import replace

from allocator.catalog.injection import Column
from allocator.catalog.vocabularies import Vocabulary
from allocator.model.decision import Finding, Reason
from allocator.model.request import PodRequest
from allocator.placement.mode import choose_mode
from allocator.request.admitted import Asked, earlier_pass, named_mode, without_chosen_mode
from allocator.request.parse import parse_request
from webhook.admission import reinvocation, tenant_checks
from webhook.admission.containers import ContainerRef, spots
from webhook.admission.context import AdmissionContext
from webhook.admission.outcome import GpusHidden, Outcome, Refused, Rewritten, Untouched
from webhook.admission.rewrite import Rewrite, blind
from webhook.review.json_patch import Intent, operations
from webhook.review.pod_schema import Pod


def decide(pod: Pod, context: AdmissionContext) -> Outcome:
    """Decide about one pod at CREATE: parse its request, find obstacles, intend a change."""
    request = parse_request(
        containers=pod.spec.containers,
        init_containers=pod.spec.init_containers or (),
        annotations=pod.metadata.annotations or {},
        vocabularies=context.vocabularies,
    )
    if request is None:
        return _without_request(pod)
    if isinstance(request, tuple):
        asked = reinvocation.encode_asked(reinvocation.as_it_stands(pod))
        digest = _digest(pod, asked, constraints=())
        return Refused(first=request[0], rest=request[1:], digest=digest)
    return _with_request(pod, request, context)


def _without_request(pod: Pod) -> Outcome:
    """Hide GPUs from a pod that asks for none; refuse forged grants."""
    findings = list(tenant_checks.annotations(pod))
    everyone = spots(pod)
    for container in everyone:
        findings += tenant_checks.container(tenant_checks.CheckedContainer(container, Column.VOID))
    if findings:
        return Refused(first=findings[0], rest=tuple(findings[1:]))
    changes = tuple(change for container in everyone if (change := blind(container)) is not None)
    return GpusHidden(intent=Intent(containers=changes)) if changes else Untouched()


def _with_request(pod: Pod, request: PodRequest, context: AdmissionContext) -> Outcome:
    """Decide about a pod that asks for vGPU."""
    vocabulary = next(v for v in context.vocabularies if v.name == request.vocabulary)
    everyone = spots(pod)
    now = _asking_resources(everyone, request, vocabulary)
    claim = earlier_pass(pod.metadata.annotations or {}, vocabulary)
    before = reinvocation.confirm_earlier(claim, now, vocabulary=vocabulary) if claim else None
    request = without_chosen_mode(request, claim)
    asked = before.asked if before else Asked(mode=named_mode(request), containers=now)
    text = reinvocation.encode_asked(asked)
    digest = _digest(pod, text, constraints=request.constraints)
    decided = choose_mode(
        request,
        context.snapshot,
        settings=context.settings,
        prefer=context.prefer,
        earlier=before.choice if before else None,
    )
    if decided.chosen is None:
        return Refused(first=decided.findings[0], rest=decided.findings[1:], digest=digest)
    rewrite = Rewrite(
        pod=pod,
        spots=everyone,
        request=decided.request,
        choice=decided.chosen.choice,
        vocabulary=vocabulary,
        settings=context.settings,
        resources=now,
        host_paths=context.host_paths,
        high_priority=context.high_priority,
    )
    intent, findings = rewrite.intent(text, digest)
    warnings = (*map(str, decided.chosen.warnings), *rewrite.warnings())
    if findings:
        return Refused(findings[0], tuple(findings[1:]), digest, warnings)
    return Rewritten(decided.request, rewrite.choice, asked, digest, intent, warnings)


def _asking_resources(
    everyone: Sequence[ContainerRef], request: PodRequest, vocabulary: Vocabulary
) -> dict[str, dict[str, str]]:
    """Return the resources of each asking container as they stand."""
    asking = {container.name for container in request.containers}
    return {
        spot.container.name: reinvocation.visible(spot.container, vocabulary)
        for spot in everyone
        if spot.container.name in asking
    }


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
    return Refused(first=finding, digest=outcome.digest)
