"""DecidedPod: a decision, shared by all pods that are equal as far as we read them.

What their records share is kept with it, so that one search finds both. Runs for every review.
"""

from typing import Final

from allocator.audit.line_buffer import LineEnd
from allocator.audit.lines import LARGEST
from webhook.admission.audit_record import metadata_of
from webhook.admission.outcome import Outcome
from webhook.replicas.surroundings import PassContext, ReviewUser
from webhook.review.admission_review import Request
from webhook.review.json_patch import EncodedPatch

KEPT_END: Final = LARGEST  # bytes of an end that is kept, and of the review it is compared with
LARGEST_OWN: Final = 2048  # bytes of what a record has of its pod alone, in JSON
LARGEST_END: Final = LARGEST - LARGEST_OWN  # bytes of all else
_LONGEST: Final = 512  # characters of a namespace and an operation


class RecordEnd(LineEnd):
    """How the records of a decision end, for pods that are reviewed alike.

    The pods are equal, and so are the kinds of GPU, or the decision would be another. So only what
    else surrounds a review is compared.
    """

    def __init__(self, decision: "DecidedPass") -> None:
        """End the line of *decision*, with what :meth:`complete` is told.

        Until then *decision* is kept.
        """
        super().__init__(b"", b"")
        request = decision.request
        # Names as they were sent; those of an equal pod are the same.
        metadata = metadata_of(request)
        self.pod = metadata.name or ""
        self.pod_uid = metadata.uid or ""
        self.decision: DecidedPass | None = decision
        self._namespace = request.namespace
        self._operation = request.operation
        self._context = decision.context
        self._user_info = request.user_info

    def complete(self, user: ReviewUser, own: bytes, tail: bytes) -> bool:
        """End lines with *own* and *tail*, unless they exceed ``LARGEST_END``; say if it is done.

        They are the value of ``schema`` and all after it; *user* asked.
        """
        size = len(own) + len(tail)
        if size > LARGEST_END:
            return False
        self.own, self.tail, self.size, self.decision = own, tail, size, None
        # That of other ends, too, which is in the processor's caches.
        self._user_info = user.info
        return True

    @property
    def is_small(self) -> bool:
        """Say whether what is compared takes little, but for the user, who may have many groups."""
        return len(self._namespace) + len(self._operation) <= _LONGEST

    def is_of(self, request: Request, *, caller: tuple[str, ...], step: str, settings: str) -> bool:
        """Say whether the record of *request*, which is about an equal pod, ends so.

        *caller* is what the caller showed, *settings* a digest.
        """
        context = self._context
        return (
            self._namespace == request.namespace
            and self._operation == request.operation
            and context.settings == settings
            and context.step == step
            and context.caller == caller
            and self._user_info == request.user_info
        )


class DecidedPod:
    """The outcome of a pass, and the patch that carries it out, if there is any."""

    def __init__(self, outcome: Outcome, patch: EncodedPatch | None) -> None:
        """Know of no record yet."""
        self.outcome = outcome
        self.patch = patch
        # Of the last record, unless it may take more than ``KEPT_END`` bytes.
        self.end: RecordEnd | None = None


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
        context: PassContext,
        at: int,
        seconds: float,
        age: float | None,
    ) -> None:
        """Keep a decision.

        *at* is in milliseconds since 1970, *seconds* the duration, *age* that of the snapshot in
        seconds.
        """
        self.request = request
        self.decided = decided
        self.context = context
        self.at = at
        self.seconds = seconds
        self.age = age
