"""Ephemeral containers: blinded always, and refused where they would reach a GPU."""

from collections.abc import Iterator
from typing import Final

from allocator.catalog.injection import Column
from allocator.model.decision import Finding, Reason, findings_of
from allocator.request.resource_names import resource_names
from webhook.admission import tenant_checks
from webhook.admission.containers import ContainerRef, container_refs_of
from webhook.admission.context import AdmissionContext
from webhook.admission.outcome import GpusHidden, Outcome, Refused, Untouched
from webhook.admission.rewrite import blind, is_blind
from webhook.review.json_patch import Intent
from webhook.review.pod_schema import Container, Pod

_KIND: Final = "ephemeralContainers"


def decide(pod: Pod, before: Pod | None, context: AdmissionContext) -> Outcome:
    """Judge the ephemeral containers that *pod* has and *before* had not; old ones are fixed."""
    known = {c.name for c in (before.spec.ephemeral_containers or ())} if before else set()
    refs = container_refs_of(_KIND, pod.spec.ephemeral_containers or ())
    added = [container for container in refs if container.container.name not in known]
    shares = any(
        _asks(c, context) for c in (*pod.spec.containers, *(pod.spec.init_containers or ()))
    )
    findings = [
        finding
        for container in added
        for finding in _findings(container, context, with_gpus=shares)
    ]
    if refusal := findings_of(findings):
        return Refused(refusal)
    changes = tuple(change for container in added if (change := blind(container, pod)) is not None)
    hidden = changes or any(map(is_blind, added))
    return GpusHidden(intent=Intent(containers=changes)) if hidden else Untouched()


def _findings(
    container: ContainerRef, context: AdmissionContext, *, with_gpus: bool
) -> Iterator[Finding]:
    subject = tenant_checks.CheckedContainer(container, Column.VOID, shares_gpus=with_gpus)
    if _asks(container.container, context):
        yield Finding(
            reason=Reason.EPHEMERAL,
            place=container.place,
            field=f"{container.field}.resources",
            what="an ephemeral container cannot ask for GPUs",
            remedy="remove its resources",
        )
    yield from tenant_checks.container(subject)
    if with_gpus:
        yield from tenant_checks.privileged_findings(container)


def _asks(container: Container, context: AdmissionContext) -> bool:
    """Say whether *container* names a resource of any vocabulary."""
    resources, names = container.resources, resource_names(context.vocabularies)
    return resources is not None and bool(names.own_amounts(resources.limits, resources.requests))
