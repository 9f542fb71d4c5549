"""Outcomes of one review: what was decided about a pod, with everything needed to explain it."""

from typing import Final

from allocator.model.decision import Findings, ModeChoice
from allocator.model.request import PodRequest
from allocator.model.value import Value
from allocator.replay.recorded_request import RecordedRequest
from allocator.request.admitted import Asked
from webhook.review.json_patch import Intent


class Untouched(Value, frozen=True):
    """The pod is admitted unchanged."""

    warnings: tuple[str, ...] = ()


class GpusHidden(Value, frozen=True):
    """The pod asks for no vGPU; GPUs are hidden from containers that would see all of them.

    The *intent* is empty where the API server hid them before it called us.
    """

    intent: Intent
    warnings: tuple[str, ...] = ()


class Rewritten(Value, frozen=True):
    """The pod asks for vGPU and was rewritten; an empty *intent* means it already was.

    *recorded* is what was decided about, so that it can be decided again.
    """

    request: PodRequest
    choice: ModeChoice
    asked: Asked
    digest: str
    intent: Intent
    warnings: tuple[str, ...] = ()
    recorded: RecordedRequest | None = None


class Refused(Value, frozen=True):
    """The pod is refused."""

    findings: Findings
    digest: str = ""
    warnings: tuple[str, ...] = ()
    recorded: RecordedRequest | None = None  # where its request could be read


Outcome = Untouched | GpusHidden | Rewritten | Refused
CHANGING: Final = (Rewritten, GpusHidden)
REQUESTING: Final = (Rewritten, Refused)
