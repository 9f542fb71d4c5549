"""RecentChoices: for equal requests the mode is chosen once, as long as nothing else changes.

A choice compares all kinds of GPU, and most workloads ask for what another one asked for. Requests
that get the same choice are then one object too, so that what is recorded of them is recognised
without comparing their fields. Runs for every pod of which no replica was decided of late.
"""

from typing import Final

from allocator.config.namespace_policy import ANY_MODE
from allocator.model.decision import ModeChoice
from allocator.model.request import PodRequest
from webhook.admission.choice import ChosenMode, chosen_mode
from webhook.admission.context import AdmissionContext

MOST_CHOICES: Final = 1024
_LONGEST: Final = 512  # characters of the texts of a request
_MOST_CONTAINERS: Final = 8


class RecentChoices:
    """Chooses modes, and remembers what was chosen in the last context."""

    def __init__(self) -> None:
        """Know no choice."""
        self._context: AdmissionContext | None = None
        self._chosen: dict[PodRequest, ChosenMode] = {}

    def __len__(self) -> int:
        """Return how many choices are kept."""
        return len(self._chosen)

    def chosen_mode(
        self, request: PodRequest, context: AdmissionContext, earlier: ModeChoice | None
    ) -> ChosenMode:
        """Return what the function of this name does."""
        # What an earlier pass or the namespace demands decides at once.
        if earlier is not None or context.namespace != ANY_MODE:
            return chosen_mode(request, context, earlier)
        if self._context is None or not choose_alike(self._context, context):
            self._chosen.clear()
        self._context = context  # the next comparison is the faster
        chosen = self._chosen.get(request)
        if chosen is not None:
            return chosen
        chosen = chosen_mode(request, context, earlier)
        if _is_small(request):
            if len(self._chosen) >= MOST_CHOICES:
                self._chosen.clear()
            self._chosen[request] = chosen
        return chosen


def choose_alike(one: AdmissionContext, other: AdmissionContext) -> bool:
    """Say whether modes are chosen alike in both, but for what their namespaces demand.

    Of a fleet, only its kinds of GPU decide.
    """
    fleet, others = one.snapshot, other.snapshot
    return (
        (fleet.offers is others.offers or fleet.offers == others.offers)
        and fleet.mixed == others.mixed
        and fleet.complete == others.complete
        and (one.settings is other.settings or one.settings == other.settings)
    )


def _is_small(request: PodRequest) -> bool:
    """Say whether *request* takes little; tenants decide how many names there are, and how long."""
    containers = request.containers
    if len(containers) > _MOST_CONTAINERS:
        return False
    length = 0
    for container in containers:
        length += len(container.name) + len(container.share)
    for constraint in request.constraints:
        length += len(constraint)
    return length <= _LONGEST
