"""Plans: the admission and placement of a pod on a given fleet, and remedies if it does not fit."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from allocator.config.manifest import ManifestPod
from allocator.model.decision import ModeSource
from allocator.model.gpu import Snapshot
from allocator.model.request import Mode, PodRequest
from allocator.report.copies import Copies
from allocator.report.feasibility import (
    Feasibility,
    FeasibilityVerdict,
    FleetSearch,
    outlook,
)
from allocator.report.mode_rows import ModeRow, mode_rows
from allocator.report.together import PodOfFile, judge_all
from allocator.request.parse import parse_request
from webhook.admission.context import AdmissionContext
from webhook.admission.decide import decide
from webhook.admission.messages import refusal, warnings
from webhook.admission.outcome import GpusHidden, Outcome, Refused, Rewritten, Untouched
from webhook.review.json_patch import Operation, operations
from webhook.review.pod_schema import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the webhook answers the API server; ``message`` is what a refusal says."""

    allowed: bool
    operations: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    message: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would become of the pod *made*: at admission, and on the fleet as it is.

    ``request`` is ``None`` for a pod that asks for nothing, or not in a way that can be read;
    then there is no ``outlook`` either.
    """

    made: ManifestPod[Pod]
    verdict: FeasibilityVerdict
    outcome: Outcome
    answer: Answer
    request: PodRequest | None = None
    outlook: Feasibility | None = None
    modes: tuple[ModeRow, ...] = ()  # also those that are never chosen for it


def plans(pods: Iterable[PodOfFile[Pod]], context: AdmissionContext) -> list[tuple[str, Plan]]:
    """Return the file and the plan of each pod; the pods of one object share the fleet."""
    return judge_all(
        pods,
        lambda made, left: plan(made, context, left=left),
        lambda found, outlook: replace(found, outlook=outlook, verdict=outlook.verdict),
    )


def plan(
    made: ManifestPod[Pod], context: AdmissionContext, *, left: Snapshot | None = None
) -> Plan:
    """Decide about one pod as at CREATE, then look for places for as many as are wanted.

    They are looked for in what is *left* of the fleet, or in the snapshot of *context*.
    """
    outcome = decide(made.pod, context)
    answer = answer_of(made.pod, outcome)
    request = _request(made.pod, outcome, context)
    if request is None:
        verdict = (
            FeasibilityVerdict.REFUSED
            if isinstance(outcome, Refused)
            else FeasibilityVerdict.NO_REQUEST
        )
        return Plan(made=made, verdict=verdict, outcome=outcome, answer=answer)
    search = FleetSearch(
        snapshot=left or context.snapshot,
        mode=_final_mode(outcome),
        policy=context.policy,
    )
    copies = Copies(wanted=made.wanted, needed=made.needed)
    feasibility = outlook(request, search, refused=isinstance(outcome, Refused), copies=copies)
    return Plan(
        made=made,
        verdict=feasibility.verdict,
        outcome=outcome,
        answer=answer,
        request=request,
        outlook=feasibility,
        modes=mode_rows(request, search, context.vocabularies, namespace=context.namespace),
    )


def answer_of(pod: Pod, outcome: Outcome) -> Answer:
    """Return what the webhook says to a CREATE with this *outcome*."""
    shown = tuple(warnings(outcome.warnings))
    match outcome:
        case Refused():
            status = refusal(outcome)
            return Answer(
                allowed=False, warnings=shown, message=status.message, reason=status.reason
            )
        case Rewritten(intent=intent) | GpusHidden(intent=intent):
            return Answer(allowed=True, operations=tuple(operations(pod, intent)), warnings=shown)
        case Untouched():
            return Answer(allowed=True, warnings=shown)
        case _:
            assert_never(outcome)


def _request(pod: Pod, outcome: Outcome, context: AdmissionContext) -> PodRequest | None:
    """Return what the pod asks for, also where it was refused for something else."""
    if isinstance(outcome, Rewritten):
        return outcome.request
    request = parse_request(
        containers=pod.spec.containers,
        init_containers=pod.spec.init_containers or (),
        annotations=pod.metadata.annotations or {},
        vocabularies=context.vocabularies,
    )
    return request if isinstance(request, PodRequest) else None


def _final_mode(outcome: Outcome) -> Mode | None:
    """Return the mode that the Binding may not revise any more."""
    if isinstance(outcome, Rewritten) and outcome.choice.source is not ModeSource.BEST:
        return outcome.choice.mode
    return None
