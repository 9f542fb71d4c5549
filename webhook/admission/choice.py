"""Choosing the mode of one pod: the one step of a decision that others may remember."""

from collections.abc import Callable

from allocator.model.decision import ModeChoice
from allocator.model.request import PodRequest
from allocator.model.value import Value
from allocator.placement.mode import ModeOutcome, choose_mode
from allocator.replay.recorded_request import RecordedRequest
from webhook.admission.context import AdmissionContext


class ChosenMode(Value, frozen=True):
    """What was decided about, and what became of it."""

    recorded: RecordedRequest
    outcome: ModeOutcome


ChooseMode = Callable[[PodRequest, AdmissionContext, ModeChoice | None], ChosenMode]


def chosen_mode(
    request: PodRequest, context: AdmissionContext, earlier: ModeChoice | None
) -> ChosenMode:
    """Return the mode of *request* in *context*; *earlier* is what an earlier pass chose."""
    outcome = choose_mode(
        request,
        context.snapshot,
        settings=context.settings,
        namespace=context.namespace,
        earlier=earlier,
    )
    recorded = RecordedRequest(request=request, namespace=context.namespace, earlier=earlier)
    return ChosenMode(recorded, outcome)
