"""Requests: from the resources and annotations of a pod to what it asks of us, or what is wrong."""

from collections.abc import Mapping, Sequence
from itertools import chain

from allocator.catalog.vocabularies import Vocabulary
from allocator.model.decision import Finding, Findings, Reason, all_findings, findings_of
from allocator.model.request import MOST_CONTAINERS, ContainerRequest, PodRequest
from allocator.request.containers import (
    MOST_FINDINGS,
    ContainerSpec,
    conflicting_names,
    container_request,
    spots,
)
from allocator.request.fast_path import parse_common
from allocator.request.pod_annotations import preferences, wishes
from allocator.request.resource_names import ResourceName, lexicon


def parse_request(
    *,
    containers: Sequence[ContainerSpec],
    init_containers: Sequence[ContainerSpec],
    annotations: Mapping[str, str],
    vocabularies: Sequence[Vocabulary],
) -> PodRequest | Findings | None:
    """Return what a pod asks for; ``None`` where it asks for nothing of ours.

    Findings say what is wrong with it: at most 16, in the order of init containers, containers
    and annotations. What two readers could read differently is refused, never guessed.
    """
    known = lexicon(tuple(vocabularies))
    quick = parse_common(init_containers, containers, known)
    if quick is not None:
        return _pod(quick.vocabulary, quick.asking, findings=(), annotations=annotations)
    first: ResourceName | None = None
    asking: list[ContainerRequest] = []
    findings: list[Finding] = []
    for container in spots(init_containers, containers, known):
        asked = container_request(container, known)
        if isinstance(asked, ContainerRequest):
            asking.append(asked)
        else:
            findings += asked
        if container.spoken and asked:  # an empty list asks for nothing
            word = container.spoken[0]
            first = first or word
            if word.vocabulary is not first.vocabulary:
                findings.append(
                    container.finding(word.name, conflicting_names(first.name, word.name))
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
    """Add what holds for the whole pod, in its *vocabulary*."""
    if vocabulary is None:
        return findings_of(findings[:MOST_FINDINGS])
    wished, packings = wishes(annotations, vocabulary), preferences(annotations)
    if isinstance(wished, Findings) or isinstance(packings, Findings):
        unread = [part.all for part in (wished, packings) if isinstance(part, Findings)]
        return all_findings([*findings, *chain.from_iterable(unread)][:MOST_FINDINGS])
    if findings:
        return all_findings(findings[:MOST_FINDINGS])
    if len(asking) > MOST_CONTAINERS:
        return Findings(_too_many_containers(len(asking)))
    return PodRequest(
        vocabulary=vocabulary.name,
        containers=tuple(asking),
        mode=wished.mode,
        profile=wished.profile,
        filters=wished.filters,
        packings=packings,
        priority=wished.priority,
    )


def _too_many_containers(number: int) -> Finding:
    """Refuse what could be promised, but not be read again in its node's ledger."""
    return Finding(
        reason=Reason.TOO_MANY,
        place="pod",
        field="spec",
        what=f"{number} containers ask for GPUs; a pod may have at most {MOST_CONTAINERS}",
        remedy=f"let at most {MOST_CONTAINERS} containers ask, or use several pods",
    )
