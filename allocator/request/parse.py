"""Requests: from the resources and annotations of a pod to its request, or to the findings."""

from collections.abc import Mapping, Sequence
from itertools import chain

from allocator.catalog.keys import LIBRARY_KEY, LIBRARY_OFF, PROFILE_KEY
from allocator.catalog.vocabularies import CATALOGUE, Vocabulary
from allocator.model.decision import Finding, Findings, Reason, all_findings, findings_of
from allocator.model.request import MOST_CONTAINERS, ContainerRequest, Mode, PodRequest
from allocator.model.untrusted import quote
from allocator.request.containers import (
    MOST_FINDINGS,
    ContainerSpec,
    asking_containers,
    conflicting_names,
    container_request,
)
from allocator.request.fast_path import parse_common
from allocator.request.pod_annotations import (
    AnnotationRequest,
    annotation_finding,
    annotation_request,
    fill_policies,
    several_gpus,
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
    if findings:
        return all_findings(findings[:MOST_FINDINGS])
    if len(asking) > MOST_CONTAINERS:
        return Findings(_too_many_containers(len(asking)))
    off = several_gpus(named, asking) or _library_off(
        annotations, named, asking, vocabulary=vocabulary
    )
    if isinstance(off, Finding):
        return Findings(off)
    return PodRequest(
        vocabulary=vocabulary.name,
        containers=tuple(asking),
        mode=Mode.HAMI_CORE if off else named.mode,
        profile=named.profile,
        filters=named.filters,
        fill_policies=policies,
        priority=named.priority,
        configured=None if vocabulary in CATALOGUE else vocabulary,
        mode_key=named.mode_key,
        library_off=off,
        family=vocabulary.family,
        one_numa=named.one_numa,
    )


def _library_off(
    annotations: Mapping[str, str],
    named: AnnotationRequest,
    asking: Sequence[ContainerRequest],
    *,
    vocabulary: Vocabulary,
) -> bool | Finding:
    """Say whether the library is off in a pod that names *named*, or what is wrong with that.

    A mode that the vocabulary brings, rather than a person names, gives way.
    """
    text = annotations.get(LIBRARY_KEY)
    if text is None:
        return False
    if text != LIBRARY_OFF:
        what = f"{LIBRARY_KEY} {quote(text)} is not {LIBRARY_OFF}"
        return annotation_finding(LIBRARY_KEY, what, f'set it to "{LIBRARY_OFF}", or remove it')
    mode, key = named.mode, PROFILE_KEY if named.profile is not None else named.mode_key
    if mode is not None and mode is not Mode.HAMI_CORE and mode is not vocabulary.mode:
        what = f"{LIBRARY_KEY} {LIBRARY_OFF} needs mode hami-core, but the mode is {mode}"
        remedy = f"remove {LIBRARY_KEY}, or remove {key}"
        return annotation_finding(LIBRARY_KEY, what, remedy, reason=Reason.CONFLICTING)
    if not any(container.whole for container in asking):
        what = f"{LIBRARY_KEY} {LIBRARY_OFF} needs a container that gets whole GPUs, and none does"
        return annotation_finding(
            LIBRARY_KEY, what, _whole_remedy(vocabulary), reason=Reason.CONFLICTING
        )
    return True


def _whole_remedy(vocabulary: Vocabulary) -> str:
    """Return how a container asks for a whole GPU in the resources of *vocabulary*."""
    if vocabulary.whole:
        return f"ask for {vocabulary.count} alone, or remove {LIBRARY_KEY}"
    return (
        f"ask for all memory (remove {vocabulary.memory}) and {vocabulary.cores}: 100, "
        f"or remove {LIBRARY_KEY}"
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
