"""Choosing the mode of one pod: the one step of a decision that others may remember."""

from collections.abc import Callable

from allocator.model.decision import ModeChoice
from allocator.model.request import PodRequest
from allocator.model.value import Value
from allocator.placement.mode import ModeOutcome, choose_mode
from webhook.admission.context import AdmissionContext


class ChosenMode(Value, frozen=True):
    """What was asked, and what became of it."""

    asked: PodRequest
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
    return ChosenMode(request, outcome)
