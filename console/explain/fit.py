"""Fits: what would become of a manifest's pods on a live cluster, without creating any."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from allocator.config.manifest import ManifestPod
from allocator.config.settings import Prefer
from allocator.model.decision import Finding, ModeChoice, ModeSource
from allocator.model.request import PodRequest
from allocator.placement.mode import choose_mode
from allocator.report import feasibility_text
from allocator.report.feasibility import (
    Feasibility,
    FeasibilityVerdict,
    FleetSearch,
    exit_code,
    outlook,
)
from allocator.report.feasibility_json import (
    choice_document,
    finding_document,
    outlook_document,
    request_document,
)
from allocator.report.terminal_lines import Line, Tone, heading, row
from allocator.request.admitted import admitted_request
from console.cluster.pod import PodView, request_of
from console.cluster.snapshot import ClusterView
from console.get.listing import API_VERSION

KIND: Final = "Fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What would become of the pod *made*: ``findings`` are what admission refuses it for."""

    made: ManifestPod[PodView]
    verdict: FeasibilityVerdict
    request: PodRequest | None = None
    choice: ModeChoice | None = None
    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()
    outlook: Feasibility | None = None


def fit(made: ManifestPod[PodView], site: ClusterView, *, prefer: Prefer | None = None) -> Fit:
    """Say what would become of a pod that a manifest makes."""
    known = site.configuration.vocabularies
    request = request_of(made.pod, known)
    if request is None:
        return Fit(made=made, verdict=FeasibilityVerdict.NO_REQUEST)
    if isinstance(request, tuple):
        return Fit(made=made, verdict=FeasibilityVerdict.REFUSED, findings=request)
    admitted = admitted_request(made.pod.annotations, request, known)
    return fit_of(admitted.request, made, site, prefer=prefer)


def fit_of(
    request: PodRequest,
    made: ManifestPod[PodView],
    site: ClusterView,
    *,
    prefer: Prefer | None = None,
) -> Fit:
    """Choose the mode as at CREATE, then look for a place among what is free now."""
    snapshot = site.snapshot()
    decided = choose_mode(request, snapshot, settings=site.configuration.settings, prefer=prefer)
    choice = None if decided.chosen is None else decided.chosen.choice
    final = choice is not None and choice.source is not ModeSource.BEST
    search = FleetSearch(
        snapshot=snapshot,
        mode=choice.mode if choice is not None and final else None,
        terms=site.configuration.policy_for(prefer),
    )
    feasibility = outlook(decided.request, search, refused=bool(decided.findings))
    warned = () if decided.chosen is None else decided.chosen.warnings
    return Fit(
        made=made,
        verdict=feasibility.verdict,
        request=decided.request,
        choice=choice,
        findings=decided.findings,
        warnings=tuple(map(str, warned)),
        outlook=feasibility,
    )


def lines(found: Fit, file: str) -> Iterator[Line]:
    """Yield the verdict, what was asked and would be given, where, and what it would take."""
    word, tone = feasibility_text.WORDS[found.verdict]
    made = found.made
    yield heading(_title(made), word, tone)
    if file:
        yield from row("from", f"{file}, {made.place}" if made.place else file)
    if found.request is not None:
        yield from row("asked", feasibility_text.request_text(found.request))
    for finding in found.findings:
        yield from row("refused", f"{finding} [{finding.reason}]", Tone.BAD)
    if found.choice is not None:
        yield from feasibility_text.mode_lines(found.choice)
    for warning in found.warnings:
        yield from row("warning", warning, Tone.WARN)
    yield from _search_lines(found)


def _title(made: ManifestPod[PodView]) -> str:
    if not made.name:
        return f"a pod in {made.namespace}"
    whose = "" if made.kind == "Pod" else f"{made.kind} "
    return f"{whose}{made.namespace}/{made.name}"


def _search_lines(found: Fit) -> Iterator[Line]:
    """Yield what the search for a place came to."""
    if found.outlook is None:
        return
    said = "".join(map(str, found.findings))
    given = None if found.choice is None else found.choice.mode
    yield from feasibility_text.placement_lines(found.outlook, given=given, said=said)
    yield from feasibility_text.remedy_lines(found.outlook, said=said)
    if found.verdict is not FeasibilityVerdict.REFUSED:
        yield from feasibility_text.candidate_lines(found.outlook.choice)


def fit_document(fits: Sequence[tuple[str, Fit]]) -> dict[str, Any]:
    """Return *fits*, each with the file it is about; keys are only ever added."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "exitCode": exit_code(found.verdict for _, found in fits),
        "pods": [pod_document(file, found) for file, found in fits],
    }


def pod_document(file: str, found: Fit) -> dict[str, Any]:
    """Return one of them."""
    made, choice = found.made, found.choice
    return {
        "file": file,
        "kind": made.kind,
        "namespace": made.namespace,
        "name": made.name,
        "place": made.place,
        "verdict": str(found.verdict),
        "asked": None if found.request is None else request_document(found.request),
        "admission": {
            **choice_document(choice),
            "findings": [finding_document(finding) for finding in found.findings],
            "warnings": list(found.warnings),
        },
        **outlook_document(found.outlook),
    }
