"""Records of replicas: what they have in common is encoded once, and each adds what is its own.

Most pods are replicas of a template, so the records of their decisions differ in identifiers,
names and times only. Whether two share the rest is decided by all that goes into it, never by a
digest alone, because a tenant may look for two that are equal. Runs for every review.
"""

from collections import OrderedDict
from datetime import datetime
from typing import Final

import msgspec

from allocator.audit.lines import LARGEST, rest_of_line, start_of_line
from allocator.audit.record_source import RecordSource
from allocator.audit.record_writer import DeferRecord, RememberJoined
from allocator.config.namespace_policy import ANY_MODE
from allocator.model.request import ANY_FILL_POLICY, PodRequest
from allocator.model.untrusted import LONGEST_NAME
from allocator.model.value import Value
from webhook.admission.audit_record import (
    DecisionContext,
    OwnNames,
    own_fields,
    own_names,
    shared_fields,
)
from webhook.admission.outcome import Rewritten
from webhook.review.admission_review import Request
from webhook.review.json_patch import EncodedPatch
from webhook.review.pod_schema import Metadata

MOST_BYTES: Final = 4 * 1024 * 1024  # of all that is kept
LARGEST_KEY: Final = 4096  # bytes
MOST_NOTED: Final = 1024  # records that wait to be made
_ENTRY: Final = 512  # bytes of an entry besides its texts
_SEEN: Final = 4096  # digests
_NO_FILTERS: Final = PodRequest("", ()).filters  # of all requests without any
_NO_METADATA: Final = Metadata()
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


class _Shared:
    """The fields that replicas share, as the rest of a line, and the patch that they show."""

    def __init__(self, key: bytes, patch: EncodedPatch, rest: bytes) -> None:
        self.rest = rest
        self._key = key
        self.size = _ENTRY + len(key) + len(rest) + len(patch.first)
        self._first: bytes = patch.first
        # The other operations stand in the rest as they are, so they are compared there.
        self._others_at = rest.find(patch.others[1:])

    def is_of(self, key: bytes, patch: EncodedPatch) -> bool:
        """Say whether it is what decisions with *key* and *patch* share."""
        others = patch.others[1:]  # without its first bracket, the JSON of no array begins another
        return (
            self._key == key
            and self.rest.startswith(others, self._others_at)
            and self._first == patch.first
        )


class _Noted:
    """What is its own in the record of a replica."""

    def __init__(self, rest: bytes, names: OwnNames, decision: ReplicaDecision) -> None:
        self.rest = rest
        self.names = names
        self.at = decision.at
        self.caller = decision.caller
        self.seconds: float = decision.seconds
        self.age = decision.age


class ReplicaRecords:
    """Makes the records of pods that are given a share and have replicas."""

    def __init__(
        self, remember: RememberJoined, source: RecordSource, *, defer: DeferRecord
    ) -> None:
        """Let *remember* take each record in two parts; *defer* calls what makes several."""
        self._remember = remember
        self._source = source
        self._defer = defer
        self._noted: list[_Noted] = []
        self._seen = [""] * _SEEN  # digests of late, each at the place that its hash names
        self._kept: OrderedDict[str, _Shared] = OrderedDict()  # by digest, the last used at the end
        self.size = 0  # bytes of all that is kept

    def record(self, decision: ReplicaDecision) -> bool:
        """Make the record of *decision* soon; return false where no replica was here of late."""
        digest = decision.outcome.digest
        shared = self._kept.get(digest)
        if shared is None and not self._is_replica(digest):
            return False
        key = _key(decision)
        if shared is None or not shared.is_of(key, decision.patch):
            return bool(key) and self._record_first(key, decision)
        self._kept.move_to_end(digest)
        noted = self._noted
        noted.append(_Noted(shared.rest, own_names(decision.request), decision))
        if len(noted) == 1:
            self._defer(self.make_noted, 0)
        elif len(noted) >= MOST_NOTED:
            self.make_noted()
        return True

    def make_noted(self) -> None:
        """Make the records of replicas that were noted."""
        noted, self._noted = self._noted, []
        for one in noted:
            self._remember(self._start(one), one.rest)

    def _is_replica(self, digest: str) -> bool:
        """Say whether *digest* was here of late; from now on it was.

        What a single pod shares with no other is not kept: that would cost more than it saves.
        """
        place = hash(digest) % _SEEN
        seen = self._seen[place] == digest
        self._seen[place] = digest
        return seen

    def _record_first(self, key: bytes, decision: ReplicaDecision) -> bool:
        """Make a record by itself, and keep what it shares; say whether it may be kept."""
        patch, stamp = decision.patch, self._source.stamp(decision.at, decision.caller)
        seconds = round(decision.seconds, 6)
        context = DecisionContext(
            stamp=stamp,
            seconds=seconds,
            settings=decision.settings,
            snapshot=decision.snapshot,
            step=decision.step,
        )
        rest = rest_of_line(shared_fields(decision.request, decision.outcome, context, patch=patch))
        if not rest or len(rest) > LARGEST or patch.others[1:] not in rest:
            return False  # it is cut, or shows its patch only in part
        own = own_fields(own_names(decision.request), stamp, seconds=seconds, age=decision.age)
        self._remember(start_of_line(own), rest)
        self._keep(decision.outcome.digest, _Shared(key, patch, rest))
        return True

    def _start(self, noted: _Noted) -> bytes:
        """Return the line of a record up to what replicas share."""
        review, pod, pod_uid = noted.names
        texts, age = review + pod + pod_uid, noted.age
        usual = texts.isascii() and texts.isprintable() and '"' not in texts and "\\" not in texts
        if not usual or len(texts) > LONGEST_NAME or age is None:
            stamp = self._source.stamp(noted.at, noted.caller)
            own = own_fields(noted.names, stamp, seconds=round(noted.seconds, 6), age=age)
            return start_of_line(own)
        record_id, at = self._source.identity(noted.at)
        line = (
            f'{{"kind":"admission","id":"{record_id}","at":"{at}","review":"{review}",'
            f'"pod":"{pod}","pod_uid":"{pod_uid}","duration_seconds":{noted.seconds:.6f},'
            f'"snapshot_age_seconds":{age:.3f},'
        )
        return line.encode()

    def _keep(self, digest: str, shared: _Shared) -> None:
        before = self._kept.pop(digest, None)
        if before is not None:
            self.size -= before.size
        self._kept[digest] = shared
        self.size += shared.size
        while self.size > MOST_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self.size -= oldest.size


def _key(decision: ReplicaDecision) -> bytes:
    """Return everything that replicas share but their patch; empty where that is too much.

    It has all that :func:`webhook.admission.audit_record.shared_fields` reads.
    """
    request, outcome = decision.request, decision.outcome
    recorded, choice = outcome.recorded, outcome.choice
    if recorded is None:
        return b""
    metadata = request.object.metadata if request.object is not None else _NO_METADATA
    asked, given, earlier = recorded.request, outcome.request, recorded.earlier
    parts = (
        outcome.digest,
        asked.vocabulary,
        asked.containers,
        asked.mode,
        asked.profile,
        None if asked.filters is _NO_FILTERS else asked.filters,
        None if asked.fill_policies is ANY_FILL_POLICY else asked.fill_policies,
        asked.priority,
        asked.mode_key,
        asked.library_off,
        asked.one_numa,
        asked.ignore_links,
        None if recorded.namespace is ANY_MODE else recorded.namespace,
        None if earlier is None else (earlier.mode, earlier.source, earlier.why),
        recorded.final,
        # Nearly always what is given is what was asked; constraints say what filters do.
        None
        if given is asked
        else (given.vocabulary, given.containers, given.constraints, given.priority),
        choice.mode,
        choice.source,
        choice.why,
        [(cost.mode, cost.cost) for cost in choice.mode_costs],
        outcome.asked.mode,
        outcome.warnings,
        request.operation,
        request.namespace,
        request.user_info,
        metadata.generate_name,
        metadata.owner_references,
        decision.caller,
        decision.settings,
        decision.snapshot,
        decision.step,
    )
    try:
        key = _ENCODE(parts)
    except (TypeError, ValueError):  # what JSON cannot hold; a record of it is cut
        return b""
    return key if len(key) <= LARGEST_KEY else b""
