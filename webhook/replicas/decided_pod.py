"""DecidedPod: a decision, shared by all pods that are equal as far as we read them.

What their records share is kept with it, so that one search finds both. Runs for every review.
"""

from typing import Final

from allocator.audit.lines import LARGEST
from webhook.admission.outcome import Outcome
from webhook.review.admission_review import Request
from webhook.review.json_patch import EncodedPatch

KEPT_END: Final = LARGEST  # bytes of an end that is kept, and of the review it is compared with
LARGEST_OWN: Final = 2048  # bytes of what a record has of its pod alone, in JSON
LARGEST_END: Final = LARGEST - LARGEST_OWN  # bytes of all else
_LONGEST_COMPARED: Final = 512  # characters
_MOST_GROUPS: Final = 16


class RecordEnd:
    """How the records of a decision end, for pods that are reviewed alike.

    The pods are equal, so only what surrounds the review of one is compared.
    """

    def __init__(self, decision: "DecidedPass", fields: bytes) -> None:
        """End the line of *decision* with the value of ``schema``, and *fields* after it."""
        request = decision.request
        self.fields = fields
        self._user = request.user_info
        self._namespace = request.namespace
        self._operation = request.operation
        self._caller = decision.caller
        self._settings = decision.settings
        self._snapshot = decision.snapshot
        self._step = decision.step

    @property
    def is_small(self) -> bool:
        """Say whether what is compared takes little; who asks may have many groups."""
        user = self._user
        groups = user.groups or ()
        length = len(self._namespace) + len(self._operation) + len(user.username)
        for group in groups:
            length += len(group)
        return length <= _LONGEST_COMPARED and len(groups) <= _MOST_GROUPS

    def is_of(self, decision: "DecidedPass") -> bool:
        """Say whether the record of *decision*, which is about an equal pod, ends so."""
        request = decision.request
        return (
            self._namespace == request.namespace
            and self._operation == request.operation
            and self._step == decision.step
            and self._settings == decision.settings
            and self._snapshot == decision.snapshot
            and self._caller == decision.caller
            and self._user == request.user_info
        )


class DecidedPod:
    """The outcome of a pass, and the patch that carries it out, if there is any."""

    def __init__(self, outcome: Outcome, patch: EncodedPatch | None) -> None:
        """Know of no record yet."""
        self.outcome = outcome
        self.patch = patch
        self.end: RecordEnd | None = None  # of the last record

    def keep(self, end: RecordEnd) -> None:
        """Keep *end* for the next record, unless it may take more than ``KEPT_END`` bytes."""
        if end.is_small:
            self.end = end


class DecidedReview:
    """A decision about the pod of one review.

    This class and the next are no msgspec classes: compiled code reads their fields much faster.
    """

    def __init__(  # noqa: PLR0917 -- interpreted code makes one, and names cost time there
        self, request: Request, decided: DecidedPod, step: str, started: float, size: int
    ) -> None:
        """Keep a decision; *started* is of a monotonic clock, *size* the bytes of the review."""
        self.request = request
        self.decided = decided
        self.step = step
        self.started = started
        self.size = size


class DecidedPass:
    """A decision, the request of the pass that asked for it, and what its record has besides."""

    def __init__(  # noqa: PLR0913 -- the fields of a record
        self,
        *,
        request: Request,
        decided: DecidedPod,
        caller: tuple[str, ...],
        settings: str,
        snapshot: str,
        step: str,
        at: int,
        seconds: float,
        age: float | None,
    ) -> None:
        """Keep a decision.

        *at* is in milliseconds since 1970, *seconds* the duration, *age* that of the snapshot in
        seconds; *settings* and *snapshot* are digests.
        """
        self.request = request
        self.decided = decided
        self.caller = caller
        self.settings = settings
        self.snapshot = snapshot
        self.step = step
        self.at = at
        self.seconds = seconds
        self.age = age
