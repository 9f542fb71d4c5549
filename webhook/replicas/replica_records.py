"""Records of pods that are given a share: each costs little more than what is its own.

Most pods are replicas of a template, and most templates ask for what others ask for too. So what a
record says is kept in three places. What all share that ask for the same and are given the same is
encoded once; so is what the pods share besides about which one decision was made, and both are the
end of a line. Its start is what a pod has alone: identifiers, its name and the time. Whether two
share an end is decided by all that goes into it, never by a digest alone, because a tenant may look
for two that are equal. Runs for every review.
"""

from typing import Any, Final

import msgspec

from allocator.audit.lines import fields_of
from allocator.audit.record_source import THREE_DIGITS, RecordSource
from allocator.audit.record_writer import DeferRecord, RememberParts, make_now
from allocator.catalog.keys import ASKED_KEY
from allocator.model.decision import ModeChoice
from allocator.model.request import PodRequest
from allocator.model.untrusted import LONGEST_NAME
from allocator.replay.recorded_request import RecordedRequest
from webhook.admission.audit_record import (
    DecisionContext,
    OwnNames,
    alike_fields,
    changes_parts,
    confirmation_record,
    json_texts,
    pod_json,
    record,
)
from webhook.admission.outcome import Rewritten
from webhook.replicas.decided_pod import LARGEST_END, DecidedPass, RecordEnd
from webhook.replicas.kept_parts import KeptParts
from webhook.replicas.surroundings import ReviewUsers
from webhook.review.admission_review import Request
from webhook.review.json_patch import EncodedPatch

MOST_BYTES: Final = 8 * 1024 * 1024  # of what is alike
_LARGEST_COMPARED: Final = 4096  # bytes, in JSON, of what it is recognised by
_LARGEST_PATCH: Final = 16 * 1024  # bytes
_LARGEST_PART: Final = 64 * 1024  # bytes
_TEXT: Final = 64  # bytes of a text or a field besides its characters
_BATCH: Final = 64  # records that are made at a time
_ENCODE: Final = msgspec.json.Encoder().encode


class _Alike:
    """What is recorded of all that ask for the same and are given the same, as JSON fields."""

    def __init__(self, outcome: Rewritten, recorded: RecordedRequest, fields: bytes) -> None:
        self.end = b"],%b}\n" % fields  # of a line, from the end of its changes
        self._choice: ModeChoice = outcome.choice
        self._recorded = recorded
        self._given: PodRequest = outcome.request
        self._mode_asked: str | None = outcome.asked.mode
        self._warnings: tuple[str, ...] = outcome.warnings

    def is_of(self, outcome: Rewritten) -> bool:
        """Say whether the record of *outcome* has these fields."""
        return (
            (self._choice is outcome.choice or self._choice == outcome.choice)
            and (self._given is outcome.request or self._given == outcome.request)
            and self._is_recorded(outcome)
            and self._mode_asked == outcome.asked.mode
            and self._warnings == outcome.warnings
        )

    def _is_recorded(self, outcome: Rewritten) -> bool:
        """Say whether *outcome* is recorded alike, of which the request is the same."""
        kept, other = self._recorded, outcome.recorded
        if kept is other:  # nearly always
            return True
        if other is None or other.request is not outcome.request or kept.request is not self._given:
            return kept == other
        return (
            (kept.namespace is other.namespace or kept.namespace == other.namespace)
            and kept.earlier == other.earlier
            and kept.final == other.final
        )

    def compared(self) -> tuple[Any, ...]:
        """Return what it is recognised by."""
        return self._choice, self._recorded, self._given, self._mode_asked, self._warnings


class _NotedRecord:
    """What a record has of its pod alone, and how its line ends."""

    def __init__(
        self, names: OwnNames, *, at: int, seconds: float, age: float | None, end: RecordEnd
    ) -> None:
        self.names = names
        self.at = at
        self.seconds = seconds
        self.age = age
        self.end = end


class ReplicaRecords:
    """Makes the records of pods that are given a share."""

    def __init__(
        self, remember: RememberParts, source: RecordSource, *, defer: DeferRecord = make_now
    ) -> None:
        """Let *remember* take each record; *defer* lets several be made at a time."""
        self._remember = remember
        self._source = source
        self._defer = defer
        self._users = ReviewUsers()
        # By what was asked.
        self._alike = KeptParts[_Alike](most_bytes=MOST_BYTES, largest=_LARGEST_PART)
        self._noted: list[_NotedRecord] = []

    @property
    def size(self) -> int:
        """Return the bytes of all that is kept here."""
        return self._alike.size

    @property
    def parts(self) -> int:
        """Return how many parts are kept here."""
        return len(self._alike)

    def record(self, decision: DecidedPass) -> bool:
        """Make the record of *decision* soon; return false where it has to be made by itself.

        Its end is kept with the decision, for :meth:`record_replica`.
        """
        patch = decision.decided.patch
        end = None if patch is None else self._end(decision, patch)
        if end is None:
            return False
        decision.decided.keep(end)
        return self.record_replica(
            decision.request, end, at=decision.at, seconds=decision.seconds, age=decision.age
        )

    def record_replica(
        self, request: Request, end: RecordEnd, *, at: int, seconds: float, age: float | None
    ) -> bool:
        """Make the record of *request* soon, which has *end*; return false as :meth:`record` does.

        The other arguments are fields of a :class:`DecidedPass`.
        """
        review, pod, pod_uid = request.uid, request.name or end.pod, end.pod_uid
        if len(review) + len(pod) + len(pod_uid) > LONGEST_NAME:
            return False
        names = review, pod, pod_uid
        self._noted.append(_NotedRecord(names, at=at, seconds=seconds, age=age, end=end))
        if len(self._noted) == 1:
            self._defer(self._write, 0)
        elif len(self._noted) >= _BATCH:
            self._write()
        return True

    def _write(self) -> None:
        """Write the records that were noted: together they cost less than one by one."""
        noted, self._noted = self._noted, []
        names = list[str]()
        for one in noted:
            names.extend(one.names)
        shown = json_texts(names)
        for place, one in enumerate(noted):
            try:
                own = one.names
                if shown is not names:
                    own = shown[3 * place], shown[3 * place + 1], shown[3 * place + 2]
                self._remember(self._start(one, own), one.end)
            except Exception:
                # Those after it are others' records.
                self._noted = noted[place + 1 :]
                if self._noted:
                    self._defer(self._write, 0)
                raise

    def _start(self, noted: _NotedRecord, names: tuple[str, str, str]) -> bytes:
        """Return the line of *noted* until the value of ``schema``; *names* are as recorded."""
        review, pod, pod_uid = names
        record_id, at = self._source.identity(noted.at)
        known = noted.age
        age = "" if known is None else f'"snapshot_age_seconds":{_thousandths(known)},'
        start = (
            f'{{"kind":"admission","id":"{record_id}","at":"{at}","review":"{review}","pod":"{pod}",'
            f'"pod_uid":"{pod_uid}","duration_seconds":{_millionths(noted.seconds)},{age}"schema":'
        )
        return start.encode()

    def _end(self, decision: DecidedPass, patch: EncodedPatch) -> RecordEnd | None:
        """Return the end of the record of *decision*; ``None`` where that cannot be or is large."""
        request, outcome = decision.request, decision.decided.outcome
        if not isinstance(outcome, Rewritten) or patch.size > _LARGEST_PATCH:
            return None
        alike = self._alike_of(outcome)
        if alike is None:
            return None
        user, context = self._users.user(request.user_info), decision.context
        first, last = changes_parts(patch)
        start = b"".join(
            (
                context.json,
                user.json,
                pod_json(request),
                b',"digest":"',
                outcome.digest.encode(),
                b'","changes":[',
                first,
                b"," if first and last else b"",
            )
        )
        end = RecordEnd(decision, user, (start, last, alike.end))
        return end if end.size <= LARGEST_END else None

    def _alike_of(self, outcome: Rewritten) -> _Alike | None:
        # Most that are decided alike ask for the same models, if for any.
        asked = outcome.intent.annotations.get(ASKED_KEY, "")
        models = outcome.request.filters.models
        name = "\n".join((asked, *models)) if models else asked
        kept = self._alike.get(name)
        if kept is not None and kept.is_of(outcome):
            return kept
        recorded = outcome.recorded
        fields = b"" if recorded is None else fields_of(alike_fields(outcome))
        if recorded is None or not fields:
            return None
        made = _Alike(outcome, recorded, fields)
        size = 4 * len(name) + len(fields) + _size_of(made.compared())
        self._alike.keep(name, made, size)
        return made


def lone_record(decision: DecidedPass, source: RecordSource) -> dict[str, Any]:
    """Return the record of *decision* made by itself, with the next identifier of *source*."""
    request, decided, pass_ = decision.request, decision.decided, decision.context
    context = DecisionContext(
        stamp=source.stamp_at(decision.at, pass_.caller),
        seconds=round(decision.seconds, 6),
        settings=pass_.settings,
        snapshot=pass_.snapshot,
        age=decision.age,
        step=pass_.step,
    )
    if pass_.step == "validate":
        return confirmation_record(request, decided.outcome, context)
    return record(request, decided.outcome, context, patch=decided.patch)


def _millionths(number: float) -> str:
    """Return *number*, which is not negative, in decimals; a format takes three times as long."""
    parts = int(number * 1e6 + 0.5)
    thousandths = parts // 1000
    last = THREE_DIGITS[parts % 1000]
    return f"{_whole(thousandths // 1000)}.{THREE_DIGITS[thousandths % 1000]}{last}"


def _thousandths(number: float) -> str:
    """Return *number*, which is not negative, in decimals."""
    parts = int(number * 1e3 + 0.5)
    return f"{_whole(parts // 1000)}.{THREE_DIGITS[parts % 1000]}"


def _whole(number: int) -> str:
    return "0" if number == 0 else str(number)  # nearly always


def _size_of(compared: tuple[Any, ...]) -> int:
    """Return about the bytes that *compared* takes; too many where it is large, or no JSON."""
    try:
        encoded = _ENCODE(compared)
    except (TypeError, ValueError):  # such as half a character
        return MOST_BYTES
    size = len(encoded)
    return size + _TEXT * encoded.count(b'"') // 2 if size <= _LARGEST_COMPARED else MOST_BYTES
