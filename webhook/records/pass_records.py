"""PassRecords: how reviews of pods are recorded. Runs for every review."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from allocator.audit.record_source import UNNAMED, RecordSource
from allocator.audit.record_writer import DeferRecord, RecordSink, make_now
from allocator.catalog.vocabularies import Vocabulary
from allocator.model.gpu import Snapshot
from webhook.admission.context import AdmissionView
from webhook.admission.outcome import REQUESTING
from webhook.replicas.decided_pod import DecidedPass, DecidedReview, RecordEnd
from webhook.replicas.replica_records import ReplicaRecords, lone_record
from webhook.replicas.surroundings import PassContext

FleetDigest = Callable[[Snapshot, Sequence[Vocabulary], int], str]
LOOKS: Final = 64  # replicas between two looks at the fleet that their records rest on
_NANOSECONDS: Final = 1_000_000  # of a millisecond


def _no_digest(_: Snapshot, __: Sequence[Vocabulary], ___: int) -> str:
    return ""


class PassRecords:
    """Makes the records of all passes of one webhook."""

    def __init__(  # noqa: PLR0913 -- whose they are, and where they lead
        self,
        sink: RecordSink,
        source: RecordSource = UNNAMED,
        *,
        now: Callable[[], int],
        fleet_digest: FleetDigest = _no_digest,
        defer: DeferRecord = make_now,
        replicas: ReplicaRecords | None = None,
    ) -> None:
        """Let *sink* take records, which *defer* lets be made several at a time.

        *fleet_digest* returns the digest of the GPUs that a decision rests on, recorded once;
        the last argument is the time in milliseconds since 1970.
        Without *replicas* each record is made by itself. *now* returns nanoseconds since 1970.
        """
        self._sink = sink
        self._source = source
        self._caller = source.caller
        self._fleet_digest = fleet_digest
        self._defer = defer
        self._replicas = replicas
        self._now = now
        self._replicas_noted = 0
        # By step, with and without a snapshot.
        self._asking: dict[str, PassContext] = {}
        self._others: dict[str, PassContext] = {}

    def note(self, reviewed: DecidedReview, view: AdmissionView, seconds: float) -> None:
        """Let a record be made of a pass that took *seconds*; what surrounds it is noted now."""
        replicas, decided = self._replicas, reviewed.decided
        outcome, end = decided.outcome, decided.end
        at = self._now() // _NANOSECONDS
        if replicas is not None and end is not None and self._is_of(end, reviewed, view):
            self._replicas_noted += 1
            if self._replicas_noted % LOOKS == 0:
                # The fleet that both rest on is to be written again now and then.
                self._fleet_digest(view.context.snapshot, view.context.vocabularies, at)
            if replicas.record_replica(reviewed.request, end, at=at, seconds=seconds, age=view.age):
                return
        snapshot = ""
        asks = isinstance(outcome, REQUESTING) and outcome.recorded is not None
        if asks and reviewed.step == "mutate":
            context = view.context
            snapshot = self._fleet_digest(context.snapshot, context.vocabularies, at)
        made = DecidedPass(
            request=reviewed.request,
            decided=decided,
            context=self._context(reviewed.step, view.settings_digest, snapshot),
            at=at,
            seconds=seconds,
            age=view.age,
        )
        if replicas is not None and replicas.record(made, reviewed.size):
            return
        self._defer(partial(self._make, made), reviewed.size)

    def _is_of(self, end: RecordEnd, reviewed: DecidedReview, view: AdmissionView) -> bool:
        """Say whether the record of a pod, which is equal to one that was reviewed, has *end*."""
        return end.is_of(
            reviewed.request,
            caller=self._caller(),
            step=reviewed.step,
            settings=view.settings_digest,
        )

    def _context(self, step: str, settings: str, snapshot: str) -> PassContext:
        """Return what answers of *step* rest on: the same object as long as it is the same."""
        caller, kept = self._caller(), self._asking if snapshot else self._others
        context = kept.get(step)
        if context is None or not context.is_of(caller, settings=settings, snapshot=snapshot):
            context = kept[step] = PassContext(
                self._source.program,
                caller=caller,
                step=step,
                settings=settings,
                snapshot=snapshot,
            )
        return context

    def _make(self, decision: DecidedPass) -> None:
        self._sink.remember(lone_record(decision, self._source))
