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
from msgspec.structs import replace

from allocator.audit.lines import fields_of
from allocator.audit.record_source import THREE_DIGITS, RecordSource
from allocator.audit.record_writer import (
    LARGEST_BATCH,
    DeferRecord,
    RecordSink,
    RememberParts,
    make_now,
)
from allocator.catalog.keys import ASKED_KEY
from allocator.model.decision import ModeChoice
from allocator.model.request import PodRequest
from allocator.model.untrusted import LONGEST_NAME, is_shown
from allocator.replay.recorded_request import RecordedRequest
from webhook.admission.audit_record import (
    DecisionContext,
    alike_fields,
    confirmation_record,
    json_texts,
    pod_json,
    record,
    shown_annotations,
    shown_rest,
)
from webhook.admission.outcome import Rewritten
from webhook.replicas.decided_pod import DecidedPass, RecordEnd
from webhook.replicas.kept_parts import KeptParts
from webhook.replicas.surroundings import ReviewUsers
from webhook.review.admission_review import Request
from webhook.review.json_patch import EncodedPatch

MOST_BYTES: Final = 8 * 1024 * 1024  # of what is alike
MOST_TAIL_BYTES: Final = 512 * 1024
_LARGEST_COMPARED: Final = 4096  # bytes, in JSON, of what it is recognised by
_LARGEST_PATCH: Final = 16 * 1024  # bytes
_LARGEST_PART: Final = 64 * 1024  # bytes
_TEXT: Final = 64  # bytes of a text or a field besides its characters
_BATCH: Final = 64  # records that are made at a time
_NO_NAMES: Final = '","pod":"","pod_uid":"","duration_seconds":'  # of the pods of most controllers
_SCHEMA: Final = ',"schema":'
_ENCODE: Final = msgspec.json.Encoder().encode


class _Alike:
    """What is recorded of all that ask for the same and are given the same, as JSON fields."""

    def __init__(self, outcome: Rewritten, recorded: RecordedRequest, fields: bytes) -> None:
        # From the end of the digest to the start of the changes.
        self.json = b'",%b,"changes":[' % fields
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

    def __init__(  # noqa: PLR0913 -- the fields of a record
        self,
        review: str,
        *,
        pod: str,
        pod_uid: str,
        at: int,
        seconds: float,
        age: float | None,
        end: RecordEnd,
    ) -> None:
        self.review = review
        self.pod = pod
        self.pod_uid = pod_uid
        self.at = at
        self.seconds = seconds
        self.age = age
        self.end = end

    def pass_of(self, decision: DecidedPass) -> DecidedPass:
        """Return what the record is of, where *decision* is about a pod that is equal."""
        return DecidedPass(
            request=replace(decision.request, uid=self.review, name=self.pod),
            decided=decision.decided,
            context=decision.context,
            at=self.at,
            seconds=self.seconds,
            age=self.age,
        )


class ReplicaRecords:
    """Makes the records of pods that are given a share."""

    def __init__(
        self,
        remember: RememberParts,
        source: RecordSource,
        *,
        lone: RecordSink,
        defer: DeferRecord = make_now,
    ) -> None:
        """Let *remember* take each record, and *lone* those that are too large for it.

        *defer* lets several be made at a time.
        """
        self._remember = remember
        self._source = source
        self._lone = lone
        self._defer = defer
        self._users = ReviewUsers()
        # By what was asked.
        self._alike = KeptParts[_Alike](most_bytes=MOST_BYTES, largest=_LARGEST_PART)
        # What lines end with that carry out the same, with that, by its size: most patches add the
        # same to their pods, and a number is found much faster than a patch.
        self._tails = KeptParts[tuple[bytes, bytes]](
            most_bytes=MOST_TAIL_BYTES, largest=_LARGEST_PART
        )
        self._noted: list[_NotedRecord] = []
        self._noted_size = 0  # bytes of the reviews that are held until their records are made
        # The last age of a snapshot in milliseconds, and its JSON: reviews share them.
        self._age, self._age_json = -1, ""

    @property
    def size(self) -> int:
        """Return the bytes of all that is kept here."""
        return self._alike.size + self._tails.size

    @property
    def parts(self) -> int:
        """Return how many such requests are kept."""
        return len(self._alike)

    def record(self, decision: DecidedPass, size: int) -> bool:
        """Make the record of *decision* soon; return false where it has to be made by itself.

        How it ends is kept with the decision, for :meth:`record_replica`; *size* is the bytes of
        the review, which is held until then.
        """
        decided = decision.decided
        patch, is_share = decided.patch, isinstance(decided.outcome, Rewritten)
        if not is_share or patch is None or patch.size > _LARGEST_PATCH:
            return False
        request, end = decision.request, RecordEnd(decision)
        decided.end = end
        if self._note(
            request, end, at=decision.at, seconds=decision.seconds, age=decision.age, size=size
        ):
            return True
        decided.end = None
        return False

    def record_replica(
        self, request: Request, end: RecordEnd, *, at: int, seconds: float, age: float | None
    ) -> bool:
        """Make the record of *request* soon, which has *end*; return false as :meth:`record` does.

        The other arguments are fields of a :class:`DecidedPass`.
        """
        return self._note(request, end, at=at, seconds=seconds, age=age, size=0)

    def _note(  # noqa: PLR0913 -- the fields of a record
        self,
        request: Request,
        end: RecordEnd,
        *,
        at: int,
        seconds: float,
        age: float | None,
        size: int,
    ) -> bool:
        review, pod, pod_uid = request.uid, request.name or end.pod, end.pod_uid
        if len(review) + len(pod) + len(pod_uid) > LONGEST_NAME:
            return False
        noted = _NotedRecord(
            review, pod=pod, pod_uid=pod_uid, at=at, seconds=seconds, age=age, end=end
        )
        self._noted.append(noted)
        self._noted_size += size
        if len(self._noted) >= _BATCH or self._noted_size > LARGEST_BATCH:
            # At once, but so that a record which cannot be made fails no review.
            self._defer(self._write, LARGEST_BATCH)
        elif len(self._noted) == 1:
            self._defer(self._write, 0)
        return True

    def _write(self) -> None:
        """Write the records that were noted: together they cost less than one by one."""
        noted, self._noted, self._noted_size = self._noted, [], 0
        texts = list[str]()
        for one in noted:
            texts.append(one.review)
            if one.pod:
                texts.append(one.pod)
            if one.pod_uid:
                texts.append(one.pod_uid)
        plain = is_shown("".join(texts), _BATCH * LONGEST_NAME)
        for place, one in enumerate(noted):
            try:
                decision = one.end.decision
                if decision is None or self._complete(one.end, decision):
                    self._remember(self._start(one, plain=plain), one.end)
                else:
                    self._lone.remember(lone_record(one.pass_of(decision), self._source))
            except Exception:
                # Those after it are others' records.
                self._noted = noted[place + 1 :]
                if self._noted:
                    self._defer(self._write, 0)
                raise

    def _start(self, noted: _NotedRecord, *, plain: bool) -> bytes:
        """Return the line of *noted* until the value of ``schema``; *plain* names stay as sent."""
        review, pod, pod_uid = noted.review, noted.pod, noted.pod_uid
        if not plain:
            review, pod, pod_uid = json_texts([review, pod, pod_uid])
        names = _NO_NAMES
        if pod or pod_uid:
            names = f'","pod":"{pod}","pod_uid":"{pod_uid}","duration_seconds":'
        before, second, third, after = self._source.identity_json(noted.at)
        millionths = int(noted.seconds * 1e6 + 0.5)
        thousandths = millionths // 1000
        # One text is made of many at once, because each takes time.
        start = "".join(
            (
                '{"kind":"admission",',
                before,
                second,
                third,
                after,
                ',"review":"',
                review,
                names,
                _whole(thousandths // 1000),
                THREE_DIGITS[thousandths % 1000],
                THREE_DIGITS[millionths % 1000],
                _SCHEMA if noted.age is None else self._json_of_age(noted.age),
            )
        )
        return start.encode()

    def _json_of_age(self, age: float) -> str:
        thousandths = int(age * 1e3 + 0.5)
        if thousandths != self._age:
            whole, rest = _whole(thousandths // 1000), THREE_DIGITS[thousandths % 1000]
            self._age = thousandths
            self._age_json = f',"snapshot_age_seconds":{whole}{rest}{_SCHEMA}'
        return self._age_json

    def _complete(self, end: RecordEnd, decision: DecidedPass) -> bool:
        """Make what *end* ends lines with; return false where that cannot be or is large."""
        outcome, patch = decision.decided.outcome, decision.decided.patch
        if patch is None or not isinstance(outcome, Rewritten):
            return False  # none of these was noted
        user, alike = self._users.user(decision.request.user_info), self._alike_of(outcome)
        made = False
        if alike is not None:
            changes, tail = shown_annotations(patch), self._tail_of(patch)
            own = (
                decision.context.json,
                user.json,
                pod_json(decision.request),
                b',"digest":"',
                outcome.digest.encode(),
                alike.json,
                changes,
                b"," if changes and not tail.startswith(b"]") else b"",
            )
            made = end.complete(user, b"".join(own), tail)
        if not (made and user.is_small and end.is_small):
            decision.decided.end = None  # the next one is made anew
        return made

    def _tail_of(self, patch: EncodedPatch) -> bytes:
        """Return the end of a line from the last operations of *patch* on."""
        last = patch.last
        kept = self._tails.get(len(last))
        if kept is not None and kept[0] == last:
            return kept[1]
        tail = shown_rest(patch) + b"]}\n"
        self._tails.keep(len(last), (last, tail), len(last) + len(tail))
        return tail

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


def _whole(number: int) -> str:
    """Return *number*, which is not negative, and the point that follows it."""
    return "0." if number == 0 else f"{number}."  # nearly always


def _size_of(compared: tuple[Any, ...]) -> int:
    """Return about the bytes that *compared* takes; too many where it is large, or no JSON."""
    try:
        encoded = _ENCODE(compared)
    except (TypeError, ValueError):  # such as half a character
        return MOST_BYTES
    size = len(encoded)
    return size + _TEXT * encoded.count(b'"') // 2 if size <= _LARGEST_COMPARED else MOST_BYTES
