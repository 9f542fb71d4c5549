"""Fit: whether pods of a manifest would fit now, as a decision, as lines and as a document."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from allocator.config.manifest import ManifestPod
from allocator.config.namespace_policy import ANY_MODE, NamespacePolicy
from allocator.model.decision import Finding, Findings, ModeChoice, ModeSource
from allocator.model.gpu import Snapshot
from allocator.model.request import PodRequest
from allocator.placement.mode import choose_mode
from allocator.report import feasibility_text
from allocator.report.copies import ONE_POD, Copies
from allocator.report.feasibility import (
    Feasibility,
    FeasibilityVerdict,
    FleetSearch,
    exit_code,
    outlook,
)
from allocator.report.feasibility_json import (
    choice_document,
    copies_document,
    finding_document,
    outlook_document,
    request_document,
)
from allocator.report.mode_rows import ModeRow, mode_row_documents, mode_row_lines, mode_rows
from allocator.report.terminal_lines import Line, Tone, heading, row
from allocator.report.together import PodOfFile, judge_all
from allocator.request.admitted import admitted_request
from console.cluster.pod import PodView, lost_findings_of, request_of, unserved_findings_of
from console.cluster.snapshot import ClusterView
from console.get.listing import API_VERSION

KIND: Final = "Fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What would become of one pod that is created now."""

    manifest_pod: ManifestPod[PodView]
    verdict: FeasibilityVerdict
    request: PodRequest | None = None  # None: it asks for no GPU, or in a way that is refused
    choice: ModeChoice | None = None
    findings: tuple[Finding, ...] = ()  # why admission refuses it
    warnings: tuple[str, ...] = ()
    outlook: Feasibility | None = None
    modes: tuple[ModeRow, ...] = ()  # also those that are never chosen for it
    refusal: str = ""  # of the API server, where it did not let such a pod in


def refused_fit(answer: Fit, refusal: str) -> Fit:
    """Return *answer* for a pod that the API server refuses with the text *refusal*."""
    if answer.verdict is FeasibilityVerdict.NEVER:  # the graver news
        return replace(answer, refusal=refusal)
    verdict = FeasibilityVerdict.REFUSED
    outlook = None if answer.outlook is None else replace(answer.outlook, verdict=verdict)
    return replace(answer, verdict=verdict, outlook=outlook, refusal=refusal)


def fit_all(
    pods: Iterable[PodOfFile[PodView]],
    site: ClusterView,
    *,
    policies: Mapping[str, NamespacePolicy],
) -> list[tuple[str, Fit]]:
    """Return the file and the answer of each pod; the pods of one object share the GPUs.

    *policies* has what each namespace says of modes.
    """
    return judge_all(
        pods,
        lambda made, left: fit(made, site, policy=policies[made.namespace], left=left),
        lambda found, outlook: replace(found, outlook=outlook, verdict=outlook.verdict),
    )


def fit(
    manifest_pod: ManifestPod[PodView],
    site: ClusterView,
    *,
    policy: NamespacePolicy = ANY_MODE,
    left: Snapshot | None = None,
) -> Fit:
    """Return what would become of the pods of one template; *left* as for :func:`fit_of`."""
    configuration = site.configuration
    vocabularies = configuration.vocabularies
    request = request_of(manifest_pod.pod, vocabularies)
    if request is None:
        return Fit(
            manifest_pod=manifest_pod,
            verdict=FeasibilityVerdict.NO_REQUEST,
            warnings=tuple(
                map(str, unserved_findings_of(manifest_pod.pod, vocabularies, configuration.lost))
            ),
        )
    request = lost_findings_of(manifest_pod.pod, vocabularies, configuration.lost) or request
    if isinstance(request, Findings):
        return Fit(
            manifest_pod=manifest_pod, verdict=FeasibilityVerdict.REFUSED, findings=request.all
        )
    admitted = admitted_request(manifest_pod.pod.annotations, request, vocabularies)
    return fit_of(admitted.request, manifest_pod, site, policy=policy, left=left)


def fit_of(
    request: PodRequest,
    manifest_pod: ManifestPod[PodView],
    site: ClusterView,
    *,
    policy: NamespacePolicy = ANY_MODE,
    left: Snapshot | None = None,
) -> Fit:
    """Choose the mode as at CREATE, then search for nodes among what is free now.

    *left* is what other pods of the same object leave of it.
    """
    copies = Copies(wanted=manifest_pod.wanted, needed=manifest_pod.needed)
    found = fit_of_request(request, site, policy=policy, left=left, copies=copies)
    return Fit(
        manifest_pod=manifest_pod,
        verdict=found.outlook.verdict,
        request=found.request,
        choice=found.choice,
        findings=found.findings,
        warnings=tuple(map(str, () if found.choice is None else found.choice.warnings)),
        outlook=found.outlook,
        modes=found.modes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFit:
    """What would become of a request that is made now; ``findings`` say why it is refused."""

    request: PodRequest
    choice: ModeChoice | None = None
    findings: tuple[Finding, ...] = ()
    outlook: Feasibility
    modes: tuple[ModeRow, ...] = ()


def fit_of_request(
    request: PodRequest,
    site: ClusterView,
    *,
    policy: NamespacePolicy = ANY_MODE,
    left: Snapshot | None = None,
    copies: Copies = ONE_POD,
) -> RequestFit:
    """Choose the mode as at CREATE, then search among what is free now, or *left*."""
    snapshot = site.snapshot()
    outcome = choose_mode(request, snapshot, settings=site.configuration.settings, namespace=policy)
    decision = outcome.decision
    choice = decision if isinstance(decision, ModeChoice) else None
    findings = decision.all if isinstance(decision, Findings) else ()
    final = choice is not None and choice.source is not ModeSource.BEST
    search = FleetSearch(
        snapshot=left or snapshot,
        mode=choice.mode if choice is not None and final else None,
        policy=site.configuration.policy_for(policy),
    )
    feasibility = outlook(outcome.request, search, refused=bool(findings), copies=copies)
    return RequestFit(
        request=outcome.request,
        choice=choice,
        findings=findings,
        outlook=feasibility,
        modes=mode_rows(request, search, site.configuration.vocabularies, namespace=policy),
    )


def lines(answer: Fit, file: str) -> Iterator[Line]:
    """Yield the verdict, the request, the GPUs it would get, and what it would take."""
    word, tone = feasibility_text.WORDS[answer.verdict]
    manifest_pod = answer.manifest_pod
    yield heading(_title(manifest_pod), word, tone)
    if file:
        yield from row("from", f"{file}, {manifest_pod.place}" if manifest_pod.place else file)
    if answer.request is not None:
        yield from row("asked", feasibility_text.request_text(answer.request))
    for finding in answer.findings:
        yield from row("refused", f"{finding} [{finding.reason}]", Tone.BAD)
    if answer.refusal:
        yield from row("refused", answer.refusal, Tone.BAD)
    if answer.choice is not None:
        yield from feasibility_text.mode_lines(answer.choice)
    yield from mode_row_lines(answer.modes)
    for warning in answer.warnings:
        yield from row("warning", warning, Tone.WARN)
    yield from _search_lines(answer)


def _title(manifest_pod: ManifestPod[PodView]) -> str:
    if not manifest_pod.name:
        return f"a pod in {manifest_pod.namespace}"
    whose = "" if manifest_pod.kind == "Pod" else f"{manifest_pod.kind} "
    return f"{whose}{manifest_pod.namespace}/{manifest_pod.name}"


def _search_lines(answer: Fit) -> Iterator[Line]:
    """Yield the result of the search for a node."""
    if answer.outlook is None:
        return
    refusal = "".join(map(str, answer.findings))
    mode = None if answer.choice is None else answer.choice.mode
    yield from feasibility_text.placement_lines(answer.outlook, given=mode, refusal=refusal)
    yield from feasibility_text.remedy_lines(answer.outlook, refusal=refusal)
    if answer.verdict is not FeasibilityVerdict.REFUSED:
        yield from feasibility_text.candidate_lines(answer.outlook.choice)


def fit_document(fits: Sequence[tuple[str, Fit]]) -> dict[str, Any]:
    """Return *fits*, each with its file, as a document; keys are only ever added."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "exitCode": exit_code(answer.verdict for _, answer in fits),
        "pods": [pod_document(file, answer) for file, answer in fits],
    }


def pod_document(file: str, answer: Fit) -> dict[str, Any]:
    """Return the answer about one pod of *file*."""
    manifest_pod, choice = answer.manifest_pod, answer.choice
    return {
        "file": file,
        "kind": manifest_pod.kind,
        "namespace": manifest_pod.namespace,
        "name": manifest_pod.name,
        "place": manifest_pod.place,
        "verdict": str(answer.verdict),
        "asked": None if answer.request is None else request_document(answer.request),
        "admission": {
            **choice_document(choice),
            "findings": [finding_document(finding) for finding in answer.findings],
            "warnings": list(answer.warnings),
        },
        **outlook_document(answer.outlook),
        "copies": copies_document(answer.outlook),
        "modes": mode_row_documents(answer.modes),
    }
