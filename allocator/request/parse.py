"""Requests: from the resources and annotations of a pod to its request, or to the findings."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from allocator.catalog.keys import GROUP_SIZE_KEY, LIBRARY_KEY, LIBRARY_OFF, MODE_KEY, PROFILE_KEY
from allocator.catalog.vocabularies import CATALOGUE, VOLCANO, LostVocabulary, Vocabulary
from allocator.model.decision import Finding, Findings, Reason, all_findings, findings_of
from allocator.model.request import (
    MOST_CONTAINERS,
    ContainerRequest,
    FillPolicies,
    Mode,
    PodRequest,
)
from allocator.model.sharing import ShareClass, books_cores, share_class
from allocator.model.units import NO_CORES
from allocator.model.untrusted import escaped, quote
from allocator.request.amounts import LARGEST_GROUP, PartialFinding, group_size
from allocator.request.containers import (
    MOST_FINDINGS,
    ZERO,
    AskingContainer,
    ContainerSpec,
    asking_containers,
    conflicting_names,
    container_request,
    unserved_name,
)
from allocator.request.fast_path import parse_common
from allocator.request.pod_annotations import (
    AnnotationRequest,
    annotation_finding,
    annotation_request,
    fill_policies,
)
from allocator.request.resource_names import ResourceName, ResourceNames, resource_names

_LIBRARY_MODES: Final = frozenset({None, Mode.HAMI_CORE, Mode.MEMORY_ONLY})


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
    parts = _annotation_parts(annotations, vocabulary, asking)
    if isinstance(parts, Findings):
        return all_findings([*findings, *parts.all][:MOST_FINDINGS])
    if len(asking) > MOST_CONTAINERS and not findings:
        findings = (_too_many_containers(len(asking)),)
    if findings:
        return all_findings(findings[:MOST_FINDINGS])
    named, policies, containers = parts
    off = _several_gpus(named, asking) or _library_off(
        annotations, named, asking, vocabulary=vocabulary
    )
    if isinstance(off, Finding):
        return Findings(off)
    flaw = _group_finding(annotations, asking)
    if flaw is not None:
        return Findings(flaw)
    return PodRequest(
        vocabulary=vocabulary.name,
        containers=containers,
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
        ignore_links=_ignores_links(annotations, vocabulary),
    )


def _annotation_parts(
    annotations: Mapping[str, str], vocabulary: Vocabulary, asking: Sequence[ContainerRequest]
) -> tuple[AnnotationRequest, FillPolicies, tuple[ContainerRequest, ...]] | Findings:
    """Return what annotations name, their fill policies, and *asking* with its sharing class.

    Findings are those of all three.
    """
    named = annotation_request(annotations, vocabulary)
    policies = fill_policies(annotations)
    sharing = _with_share(annotations, vocabulary, asking)
    if (
        isinstance(named, Findings)
        or isinstance(policies, Findings)
        or isinstance(sharing, Findings)
    ):
        refused = [part.all for part in (named, policies, sharing) if isinstance(part, Findings)]
        return all_findings(list(chain.from_iterable(refused)))
    return named, policies, sharing


def _several_gpus(named: AnnotationRequest, asking: Sequence[ContainerRequest]) -> Finding | None:
    """Find a container that asks for several GPUs in mode mps: a process reaches one daemon."""
    if named.mode is not Mode.MPS:
        return None
    several = next((container for container in asking if container.count > 1), None)
    if several is None:
        return None
    return annotation_finding(
        named.mode_key or MODE_KEY,
        f"container {quote(several.name)} asks for {several.count} GPUs, but a process in mode "
        "mps reaches the daemon of one GPU only",
        "ask for 1 GPU per container, or use mode hami-core",
        reason=Reason.CONFLICTING,
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
    if vocabulary.mode not in _LIBRARY_MODES:
        what = f"{LIBRARY_KEY} is about a library that mode {vocabulary.mode} does not use"
        return annotation_finding(
            LIBRARY_KEY, what, f"remove {LIBRARY_KEY}", reason=Reason.CONFLICTING
        )
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


# As Go's strconv.ParseBool reads them, by which HAMi reads this annotation.
_GO_TRUE: Final = frozenset(["1", "t", "T", "TRUE", "true", "True"])
_GO_FALSE: Final = frozenset(["0", "f", "F", "FALSE", "false", "False"])


def _ignores_links(annotations: Mapping[str, str], vocabulary: Vocabulary) -> bool:
    """Say whether the pod wants its node chosen without the links between GPUs."""
    key = vocabulary.topology_key
    return key is not None and annotations.get(key) in _GO_FALSE


def _share(
    annotations: Mapping[str, str], vocabulary: Vocabulary, asking: Sequence[ContainerRequest]
) -> str | Findings:
    """Return the sharing class of a pod, empty where its vocabulary has none."""
    findings: list[Finding] = []
    key = vocabulary.topology_key
    if key is not None and annotations.get(key, "true") not in _GO_TRUE | _GO_FALSE:
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


def _group_finding(
    annotations: Mapping[str, str], asking: Sequence[ContainerRequest]
) -> Finding | None:
    """Return what is wrong with the size of a group, whose pods ask alike.

    Only what one container asks for has to divide it; several may share GPUs.
    """
    text = annotations.get(GROUP_SIZE_KEY)
    if text is None:
        return None
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


def unserved_findings(
    init_containers: Sequence[ContainerSpec],
    containers: Sequence[ContainerSpec],
    vocabularies: tuple[Vocabulary, ...],
    *,
    lost: Sequence[LostVocabulary] = (),
) -> Sequence[Finding]:
    """Return a finding for each vocabulary that a pod asks in and that is not served.

    The settings leave it out, or it is *lost*. Another device plugin may give what the pod asks
    for, so this is no reason for a refusal.
    """
    names = resource_names(vocabularies)
    if not (names.unserved or lost):
        return ()
    lost_names = _names_lost(vocabularies, lost)
    findings: dict[str, Finding] = {}
    for of_init, group in ((True, init_containers), (False, containers)):
        for position, container in enumerate(group):
            if (resources := container.resources) is None:
                continue
            asking = AskingContainer(container, resources, position, of_init, {}, ())
            for name, text in (resources.limits or {}).items():
                found = lost_names.get(name)
                vocabulary = found.vocabulary if found else names.unserved_vocabulary(name)
                if vocabulary is None or vocabulary.name in findings or text in ZERO:
                    continue
                flaw = (
                    unserved_name(name, vocabulary)
                    if found is None
                    else _lost_name(name, found, names)
                )
                findings[vocabulary.name] = asking.finding(name, flaw)
    return (*findings.values(),)


def lost_findings(
    init_containers: Sequence[ContainerSpec],
    containers: Sequence[ContainerSpec],
    vocabularies: tuple[Vocabulary, ...],
    *,
    lost: Sequence[LostVocabulary],
) -> Findings | None:
    """Return what containers that ask in a served vocabulary ask for in a *lost* one besides.

    It would be dropped, so these pods are refused.
    """
    if not lost:
        return None
    lost_names, names = _names_lost(vocabularies, lost), resource_names(vocabularies)
    found: list[Finding] = []
    for container in asking_containers(init_containers, containers, names):
        limits = container.resources.limits or {}
        unread = [name for name, text in limits.items() if name in lost_names and text not in ZERO]
        if unread and container.known_names:
            flaw = _lost_name(unread[0], lost_names[unread[0]], names)
            found.append(container.finding(unread[0], flaw))
    return findings_of(found[:MOST_FINDINGS])


def _names_lost(
    vocabularies: Sequence[Vocabulary], lost: Sequence[LostVocabulary]
) -> Mapping[str, LostVocabulary]:
    """Return the resources that nobody reads because their vocabulary is *lost*."""
    read = {name for vocabulary in vocabularies for name in vocabulary.resources}
    return {name: each for each in lost for name in each.vocabulary.resources if name not in read}


def _lost_name(name: str, lost: LostVocabulary, names: ResourceNames) -> PartialFinding:
    vocabulary = lost.vocabulary.name
    other = VOLCANO.count if names.slot is None else names.slot.name
    return PartialFinding(
        reason=Reason.UNSERVED,
        what=f"{escaped(name)} belongs to the vocabulary {vocabulary}, which this cluster does not"
        f" serve, because {escaped(lost.name)} is Volcano's {lost.key} here",
        remedy=f"ask by the names of another vocabulary, such as {escaped(other or VOLCANO.slot)},"
        f" or ask the administrators to rename {escaped(lost.name)} in one of the two",
    )
