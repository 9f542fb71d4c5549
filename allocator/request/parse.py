"""Requests: from the resources and annotations of a pod to its request, or to the findings."""

from collections.abc import Mapping, Sequence
from itertools import chain

from allocator.catalog.keys import GROUP_SIZE_KEY
from allocator.catalog.vocabularies import VOCABULARIES, Vocabulary
from allocator.model.decision import Finding, Findings, Reason, all_findings, findings_of
from allocator.model.request import MOST_CONTAINERS, ContainerRequest, Mode, PodRequest
from allocator.model.untrusted import quote
from allocator.request.amounts import LARGEST_GROUP, group_size
from allocator.request.containers import (
    MOST_FINDINGS,
    ContainerSpec,
    asking_containers,
    conflicting_names,
    container_request,
)
from allocator.request.fast_path import parse_common
from allocator.request.pod_annotations import (
    annotation_request,
    fill_policies,
    library_off,
)
from allocator.request.resource_names import ResourceName, resource_names


def parse_request(
    *,
    containers: Sequence[ContainerSpec],
    init_containers: Sequence[ContainerSpec],
    annotations: Mapping[str, str],
    vocabularies: Sequence[Vocabulary],
) -> PodRequest | Findings | None:
    """Return what a pod asks for; ``None`` where it asks for nothing of ours.

    Findings say what is wrong with it: at most 16, in the order of init containers, containers
    and annotations. An ambiguous request is refused, never guessed.
    """
    names = resource_names(tuple(vocabularies))
    common = parse_common(init_containers, containers, names)
    if common is not None:
        return _pod(common.vocabulary, common.asking, findings=(), annotations=annotations)
    first: ResourceName | None = None
    asking: list[ContainerRequest] = []
    findings: list[Finding] = []
    for container in asking_containers(init_containers, containers, names):
        asked = container_request(container, names)
        if isinstance(asked, ContainerRequest):
            asking.append(asked)
        else:
            findings += asked
        if container.known_names and asked:  # an empty list asks for nothing
            resource = container.known_names[0]
            first = first or resource
            if resource.vocabulary is not first.vocabulary:
                findings.append(
                    container.finding(resource.name, conflicting_names(first.name, resource.name))
                )
        if len(findings) >= MOST_FINDINGS:
            break
    vocabulary = first.vocabulary if first is not None else None
    return _pod(vocabulary, asking, findings=findings, annotations=annotations)


def _pod(
    vocabulary: Vocabulary | None,
    asking: Sequence[ContainerRequest],
    *,
    findings: Sequence[Finding],
    annotations: Mapping[str, str],
) -> PodRequest | Findings | None:
    """Return the request of the pod with the parts that its annotations name."""
    if vocabulary is None:
        return findings_of(findings[:MOST_FINDINGS])
    named = annotation_request(annotations, vocabulary)
    policies = fill_policies(annotations)
    if isinstance(named, Findings) or isinstance(policies, Findings):
        refused = [part.all for part in (named, policies) if isinstance(part, Findings)]
        return all_findings([*findings, *chain.from_iterable(refused)][:MOST_FINDINGS])
    if len(asking) > MOST_CONTAINERS and not findings:
        findings = (_too_many_containers(len(asking)),)
    if findings:
        return all_findings(findings[:MOST_FINDINGS])
    off = library_off(annotations, named, asking, vocabulary=vocabulary)
    grouped = annotations.get(GROUP_SIZE_KEY)
    if isinstance(off, Finding):
        return Findings(off)
    if grouped is not None and (flaw := _group_finding(grouped, asking)) is not None:
        return Findings(flaw)
    return PodRequest(
        vocabulary=vocabulary.name,
        containers=tuple(asking),
        mode=Mode.HAMI_CORE if off else named.mode,
        profile=named.profile,
        filters=named.filters,
        fill_policies=policies,
        priority=named.priority,
        configured=None if vocabulary in VOCABULARIES else vocabulary,
        mode_key=named.mode_key,
        library_off=off,
        family=vocabulary.family,
    )


def _group_finding(text: str, asking: Sequence[ContainerRequest]) -> Finding | None:
    """Return what is wrong with the size of a group, whose pods ask alike.

    Only what one container asks for has to divide it; several may share GPUs.
    """
    size, gpus = group_size(text), asking[0].count if len(asking) == 1 else 1
    if size and size % gpus == 0:
        return None
    what = f"{GROUP_SIZE_KEY} {quote(text)} is not a number of GPUs from 1 to {LARGEST_GROUP}"
    remedy = f'give the GPUs of all pods of one group, such as "{8 * gpus}", or remove it'
    if size:
        what = f"{GROUP_SIZE_KEY} {size} is not a multiple of the {gpus} GPUs of this pod"
        remedy = f'give a multiple of {gpus}, such as "{gpus * max(1, round(size / gpus))}"'
    return Finding(
        reason=Reason.MALFORMED,
        place="pod",
        field=f"metadata.annotations[{GROUP_SIZE_KEY}]",
        what=what,
        remedy=remedy,
    )


def _too_many_containers(number: int) -> Finding:
    """Return the finding about more containers than one ledger entry can hold."""
    return Finding(
        reason=Reason.TOO_MANY,
        place="pod",
        field="spec",
        what=f"{number} containers ask for GPUs; a pod may have at most {MOST_CONTAINERS}",
        remedy=f"let at most {MOST_CONTAINERS} containers ask, or use several pods",
    )
