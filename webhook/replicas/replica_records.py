"""Records of pods that are given a share: each costs little more than what is its own.

Most pods are replicas of a template, and most templates ask for what others ask for too. So a
record has three parts. What all share that ask for the same and are given the same is encoded
once; so is what the pods of one owner share besides. Each pod adds identifiers, its name and the
time. Whether two share a part is decided by all that goes into it, never by a digest alone, because
a tenant may look for two that are equal. Runs for every review.
"""

from datetime import datetime
from typing import Any, Final

import msgspec

from allocator.audit.lines import LARGEST, fields_of
from allocator.audit.record_source import RecordSource
from allocator.audit.record_writer import RememberEncodable
from allocator.model.decision import ModeChoice
from allocator.model.request import PodRequest
from allocator.model.untrusted import LONGEST_NAME, all_shown
from allocator.model.value import Value
from allocator.replay.recorded_request import RecordedRequest
from webhook.admission.audit_record import (
    DecisionContext,
    alike_fields,
    own_names,
    workload_fields,
)
from webhook.admission.outcome import Rewritten
from webhook.replicas.kept_parts import KeptParts, SeenNames
from webhook.review.admission_review import Request
from webhook.review.json_patch import EncodedPatch
from webhook.review.pod_schema import Metadata

MOST_BYTES: Final = 8 * 1024 * 1024  # of all parts of one kind that are kept
LARGEST_OWN: Final = 2048  # bytes of what is a pod's own, in JSON
_LARGEST_REST: Final = LARGEST - LARGEST_OWN
_LARGEST_COMPARED: Final = 4096  # bytes, in JSON, of what a part is recognised by
_LARGEST_PATCH: Final = 16 * 1024  # bytes
_LARGEST_PART: Final = 64 * 1024  # bytes
_DECISION: Final = 8192  # bytes of an outcome and its patch, most of which is kept elsewhere too
_TEXT: Final = 64  # bytes of a text or a field besides its characters
_NO_METADATA: Final = Metadata()
_SCHEMA: Final = b'"schema":'
_ENCODE: Final = msgspec.json.Encoder().encode


class ReplicaDecision(Value, frozen=True):
    """A decision that gives a pod a share, and what its record has besides.

    ``seconds`` is the duration, ``age`` that of the snapshot in seconds; ``settings`` and
    ``snapshot`` are digests.
    """

    request: Request
    outcome: Rewritten
    patch: EncodedPatch
    caller: tuple[str, ...]
    settings: str
    snapshot: str
    step: str
    at: datetime
    seconds: float
    age: float | None


class PodRecord(Value, frozen=True):
    """A record as it is encoded: what is its own, and then the rest as it is.

    ``schema`` is the JSON of that field's value, and goes on with all other fields.
    """

    kind: str
    id: str
    at: str
    review: str
    pod: str
    pod_uid: str
    duration_seconds: float
    settings: str
    snapshot_age_seconds: float | msgspec.UnsetType
    snapshot: str | msgspec.UnsetType
    schema: msgspec.Raw


class _Alike:
    """What is recorded of all that ask for the same and are given the same, as JSON fields."""

    def __init__(self, outcome: Rewritten, fields: bytes) -> None:
        self.fields = fields
        self._choice: ModeChoice = outcome.choice
        self._recorded: RecordedRequest | None = outcome.recorded
        self._given: PodRequest = outcome.request
        self._mode_asked: str | None = outcome.asked.mode
        self._warnings: tuple[str, ...] = outcome.warnings

    def is_of(self, outcome: Rewritten) -> bool:
        """Say whether the record of *outcome* has these fields."""
        return (
            self._choice == outcome.choice
            and (self._recorded is outcome.recorded or self._recorded == outcome.recorded)
            and self._given == outcome.request
            and self._mode_asked == outcome.asked.mode
            and self._warnings == outcome.warnings
        )

    def compared(self) -> tuple[Any, ...]:
        """Return what it is recognised by."""
        return self._choice, self._recorded, self._given, self._mode_asked, self._warnings


class _Workload:
    """What is recorded of all pods of one owner: the end of each record, as JSON."""

    def __init__(self, decision: ReplicaDecision, alike: _Alike, rest: bytes) -> None:
        request, metadata = decision.request, _metadata(decision.request)
        self.rest = msgspec.Raw(rest)
        self.rest_size = len(rest)
        self._alike = alike
        self._outcome = decision.outcome
        self._patch = decision.patch
        self._operation = request.operation
        self._namespace = request.namespace
        self._user = request.user_info
        self._prefix = metadata.generate_name
        self._owners = metadata.owner_references
        self._caller = decision.caller
        self._step = decision.step

    def is_of(self, decision: ReplicaDecision) -> bool:
        """Say whether the record of *decision* ends with it."""
        request = decision.request
        metadata = _metadata(request)
        return (
            self._user == request.user_info
            and self._namespace == request.namespace
            and self._operation == request.operation
            and self._owners == metadata.owner_references
            and self._prefix == metadata.generate_name
            and self._caller == decision.caller
            and self._step == decision.step
            and self._is_decided_alike(decision.outcome, decision.patch)
        )

    def _is_decided_alike(self, outcome: Rewritten, patch: EncodedPatch) -> bool:
        if self._outcome is outcome and self._patch is patch:
            return True  # it was decided once for both
        before = self._patch
        return (
            before.first == patch.first
            and before.others == patch.others
            and self._alike.is_of(outcome)
        )

    def compared(self) -> tuple[Any, ...]:
        """Return what it is recognised by, besides the patch and what others share."""
        return self._user, self._namespace, self._owners, self._prefix, self._caller


class ReplicaRecords:
    """Makes the records of pods that are given a share."""

    def __init__(self, remember: RememberEncodable, source: RecordSource) -> None:
        """Let *remember* take each record."""
        self._remember = remember
        self._source = source
        self._seen = SeenNames()  # digests
        bounds = {"most_bytes": MOST_BYTES, "largest": _LARGEST_PART}
        self._alike = KeptParts[_Alike](**bounds)  # by what was asked
        self._workloads = KeptParts[_Workload](**bounds)  # by digest

    @property
    def size(self) -> int:
        """Return the bytes of all that is kept."""
        return self._alike.size + self._workloads.size

    @property
    def parts(self) -> tuple[int, int]:
        """Return how many parts are kept: of what is alike, and of workloads."""
        return len(self._alike), len(self._workloads)

    def record(self, decision: ReplicaDecision) -> bool:
        """Make the record of *decision*; return false where it has to be made by itself."""
        names = own_names(decision.request)
        if all_shown(names, LONGEST_NAME) != names:
            return False
        workload = self._workloads.get(decision.outcome.digest)
        if workload is not None and workload.is_of(decision):
            rest, size = workload.rest, workload.rest_size
        else:
            encoded = self._rest(decision)
            if not encoded:
                return False
            rest, size = msgspec.Raw(encoded), len(encoded)
        record_id, at = self._source.identity(decision.at)
        review, pod, pod_uid = names
        age = decision.age
        made = PodRecord(
            "admission",
            record_id,
            at,
            review,
            pod,
            pod_uid,
            _rounded(decision.seconds, 1e6),
            decision.settings,
            msgspec.UNSET if age is None else _rounded(age, 1e3),
            decision.snapshot or msgspec.UNSET,
            rest,
        )
        self._remember(made, size + LARGEST_OWN)
        return True

    def _rest(self, decision: ReplicaDecision) -> bytes:
        """Return the end of the record of *decision*; empty where that cannot be or is large."""
        patch, digest = decision.patch, decision.outcome.digest
        if len(patch.first) + len(patch.others) > _LARGEST_PATCH:
            return b""
        alike = self._alike_of(decision.outcome)
        if alike is None:
            return b""
        stamp = self._source.stamp(decision.at, decision.caller)
        context = DecisionContext(
            stamp=stamp, seconds=decision.seconds, settings="", step=decision.step
        )
        fields = fields_of(
            workload_fields(decision.request, decision.outcome, context, patch=patch)
        )
        if not fields.startswith(_SCHEMA):
            return b""  # they are no JSON
        rest = b"%b,%b" % (fields[len(_SCHEMA) :], alike.fields)
        if len(rest) > _LARGEST_REST:
            return b""
        if self._seen.note(digest):
            workload = _Workload(decision, alike, rest)
            size = _DECISION + len(rest) + _size_of(workload.compared())
            self._workloads.keep(digest, workload, size)
        return rest

    def _alike_of(self, outcome: Rewritten) -> _Alike | None:
        try:
            name = _ENCODE((outcome.asked, outcome.request.filters))
        except (TypeError, ValueError):  # such as half a character
            return None
        kept = self._alike.get(name)
        if kept is not None and kept.is_of(outcome):
            return kept
        fields = b"" if outcome.recorded is None else fields_of(alike_fields(outcome))
        if not fields:
            return None
        made = _Alike(outcome, fields)
        size = len(name) + len(fields) + _size_of(made.compared())
        self._alike.keep(name, made, size)
        return made


def _metadata(request: Request) -> Metadata:
    return request.object.metadata if request.object is not None else _NO_METADATA


def _rounded(number: float, parts: float) -> float:
    """Return *number*, which is not negative, to one of so many *parts*; faster than ``round``."""
    return int(number * parts + 0.5) / parts


def _size_of(compared: tuple[Any, ...]) -> int:
    """Return about the bytes that *compared* takes; too many where it is large, or no JSON."""
    try:
        encoded = _ENCODE(compared)
    except (TypeError, ValueError):  # such as half a character
        return MOST_BYTES
    size = len(encoded)
    return size + _TEXT * encoded.count(b'"') // 2 if size <= _LARGEST_COMPARED else MOST_BYTES
