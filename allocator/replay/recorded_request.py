"""RecordedRequest: what was decided about. It is apart because mypyc drops its keywords."""

from dataclasses import dataclass

from allocator.config.namespace_policy import ANY_MODE, NamespacePolicy
from allocator.model.decision import ModeChoice
from allocator.model.request import Mode, PodRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """What was decided about: the request, and what else decided with the fleet.

    ``earlier`` is what an earlier pass of admission chose, and ``final`` the mode that a pod had
    when it was bound; ``None`` leaves the choice open.
    """

    request: PodRequest
    namespace: NamespacePolicy = ANY_MODE
    earlier: ModeChoice | None = None
    final: Mode | None = None
