"""Requests: from the resources and annotations of a pod to its request, or to the findings."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from allocator.catalog.vocabularies import VOCABULARIES, Vocabulary
from allocator.model.decision import Finding, Findings, Reason, all_findings, findings_of
from allocator.model.request import MOST_CONTAINERS, ContainerRequest, Mode, PodRequest
from allocator.model.sharing import ShareClass, books_cores, share_class
from allocator.model.units import NO_CORES
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
    sharing = _with_share(annotations, vocabulary, asking)
    if (
        isinstance(named, Findings)
        or isinstance(policies, Findings)
        or isinstance(sharing, Findings)
    ):
        refused = [part.all for part in (named, policies, sharing) if isinstance(part, Findings)]
        return all_findings([*findings, *chain.from_iterable(refused)][:MOST_FINDINGS])
    if findings:
        return all_findings(findings[:MOST_FINDINGS])
    if len(asking) > MOST_CONTAINERS:
        return Findings(_too_many_containers(len(asking)))
    off = library_off(annotations, named, asking, vocabulary=vocabulary)
    if isinstance(off, Finding):
        return Findings(off)
    return PodRequest(
        vocabulary=vocabulary.name,
        containers=sharing,
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


_GO_BOOLEANS: Final = frozenset(
    ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"]
)


def _share(
    annotations: Mapping[str, str], vocabulary: Vocabulary, asking: Sequence[ContainerRequest]
) -> str | Findings:
    """Return the sharing class of a pod, empty where its vocabulary has none."""
    findings: list[Finding] = []
    key = vocabulary.topology_key
    if key is not None and annotations.get(key, "true") not in _GO_BOOLEANS:
        what = f"{key} {quote(annotations[key])} is neither true nor false"
        findings.append(_annotation_finding(key, what, f"use true or false, or remove {key}"))
    if vocabulary.share_keys is None:
        return findings_of(findings) or ""
    counts = [container.count for container in asking]
    found = share_class(annotations, vocabulary.share_keys, counts)
    if not isinstance(found, ShareClass):
        findings += [_annotation_finding(d.key, d.what, d.remedy) for d in found]
    return findings_of(findings) or str(found)


def _with_share(
    annotations: Mapping[str, str], vocabulary: Vocabulary, asking: Sequence[ContainerRequest]
) -> tuple[ContainerRequest, ...] | Findings:
    """Return *asking* with their sharing class; one that goes first is charged for no compute."""
    share = _share(annotations, vocabulary, asking)
    if isinstance(share, Findings):
        return share
    if not share:
        return tuple(asking)
    booked = books_cores(share)
    return tuple(
        msgspec.structs.replace(one, share=share, cores=one.cores if booked else NO_CORES)
        for one in asking
    )


def _annotation_finding(key: str, what: str, remedy: str) -> Finding:
    field = f'metadata.annotations["{key}"]'
    return Finding(reason=Reason.MALFORMED, place="pod", field=field, what=what, remedy=remedy)


def _too_many_containers(number: int) -> Finding:
    """Return the finding about more containers than one ledger entry can hold."""
    return Finding(
        reason=Reason.TOO_MANY,
        place="pod",
        field="spec",
        what=f"{number} containers ask for GPUs; a pod may have at most {MOST_CONTAINERS}",
        remedy=f"let at most {MOST_CONTAINERS} containers ask, or use several pods",
    )
