"""One pod as it was known at a time: its records until then, folded and told as ``why`` does."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from allocator.audit.record import (
    AdmissionRecord,
    AdmissionVerdict,
    AnyRecord,
    DevicePart,
    EvictedRecord,
    StartRefusedRecord,
    WaitingRecord,
)
from allocator.model.decision import ModeSource
from allocator.model.untrusted import quote, zoned_time
from allocator.replay.content import ReplayContentError
from allocator.replay.request_codec import decode_request
from allocator.report import feasibility_text
from allocator.report.terminal_lines import Line, Tone, counted, row
from console.get.table import age
from console.history.amounts import asked_text
from console.history.answers import RecordAnswer
from console.history.decision_rows import decision_item
from console.history.periods import rfc3339
from console.history.record_text import known_record, record_text
from console.records.decision_row import RowContext, decision_row
from console.records.fold import absorb, new_state, subject_key
from console.records.query import PodOutcome
from console.records.rows import DecisionRow
from console.records.state import DecisionState
from console.records.times import milliseconds

MOST_EVENTS: Final = 8  # of the latest records
_WORDS: Final = {
    PodOutcome.REFUSED: ("REFUSED", Tone.BAD),
    PodOutcome.ADMITTED: ("WAITING", Tone.WARN),
    PodOutcome.WAITING: ("WAITING", Tone.WARN),
    PodOutcome.BOUND: ("BOUND", Tone.STRONG),
    PodOutcome.RUNNING: ("RUNNING", Tone.GOOD),
    PodOutcome.OVER: ("ENDED", Tone.LABEL),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPod:
    """What was known about a pod at the time ``at``."""

    at: datetime
    decision: DecisionRow
    answers: tuple[RecordAnswer, ...]  # its records until then, the earliest first
    records: tuple[AnyRecord, ...]  # those of them that this version knows


def past_pod(answers: Iterable[RecordAnswer], *, name: str, at: datetime) -> PastPod | None:
    """Return what *answers* tell about a pod at *at*; ``None`` where they tell of no decision.

    *answers* are records of pods of that name and of their request, in any order. Of several pods
    of one name the latest is meant, and a request that was refused once the latest was over.
    """
    known = sorted(_known(answers, at), key=lambda pair: (pair[1].at, pair[1].id))
    named = [record for _, record in known if record.pod == name]
    pods = [record for record in named if record.pod_uid]
    refused = [r for r in named if isinstance(r, AdmissionRecord) and not r.pod_uid]
    if pods:
        found = _of_pod(known, pods[-1].pod_uid, at)
        ended = found is not None and found.decision.state is PodOutcome.OVER
        if found is not None and not (ended and refused and refused[-1].at > pods[-1].at):
            return found
    return _of_request(known, refused[-1], at) if refused else None


_Pair = tuple[RecordAnswer, AnyRecord]


def _known(answers: Iterable[RecordAnswer], at: datetime) -> Iterator[_Pair]:
    """Yield each record that this version knows once, of those until *at*.

    An id is its sender's: a record of another one that has the same hides nothing.
    """
    seen = dict[str, list[AnyRecord]]()
    for answer in answers:
        record = known_record(answer.record)
        time = None if record is None else zoned_time(record.at)
        if record is None or time is None or time > at:
            continue
        same = seen.setdefault(record.id, [])
        if record not in same:
            same.append(record)
            yield answer, record


def _of_pod(known: Sequence[_Pair], uid: str, at: datetime) -> PastPod | None:
    own = [pair for pair in known if pair[1].pod_uid == uid]
    digest = next((record.digest for _, record in own if record.digest), "")
    first = own[0][1].at
    asked = [
        pair
        for pair in known
        if isinstance(pair[1], AdmissionRecord)
        and not pair[1].pod_uid
        and pair[1].outcome is not AdmissionVerdict.REFUSED
        and pair[1].digest == digest
        and pair[1].at <= first
    ]
    return _fold([*asked[-1:], *own], at, about=own)


def _of_request(known: Sequence[_Pair], record: AdmissionRecord, at: datetime) -> PastPod | None:
    key = subject_key(record)
    own = [pair for pair in known if subject_key(pair[1]) == key]
    return _fold(own, at, about=own)


def _fold(pairs: Sequence[_Pair], at: datetime, *, about: Sequence[_Pair]) -> PastPod | None:
    """Return the state that the records *about* one subject make; *pairs* are told as well."""
    key = subject_key(about[-1][1])
    if key is None:
        return None
    state = new_state(key)
    for _, record in about:
        absorb(state, record, milliseconds(record.at))
    request = _request_state(pairs[0][1])
    context = RowContext(request=request, people=True)
    return PastPod(
        at=at,
        decision=decision_row(state, context),
        answers=tuple(answer for answer, _ in pairs),
        records=tuple(record for _, record in pairs),
    )


def _request_state(record: AnyRecord) -> DecisionState | None:
    """Return the state of a request whose pod was not known yet, ``None`` for other records."""
    key = subject_key(record)
    if record.pod_uid or key is None:
        return None
    state = new_state(key)
    absorb(state, record, milliseconds(record.at))
    return state


def past_lines(past: PastPod) -> Iterator[Line]:
    """Yield what was missing then, how it was asked, decided and granted, as ``why`` does."""
    decision, at = past.decision, past.at
    word, tone, missing = _headline(past)
    yield from row(word, missing, tone)
    yield from row("pod", f"{decision.namespace}/{decision.pod}")
    yield from row("at", f"{rfc3339(at)}, by the records of the console")
    if asked := _asked_text(past):
        yield from row("asked", asked)
    if decision.verdict and decision.state is not PodOutcome.REFUSED:
        yield from row("admitted", _admitted_text(decision), Tone.STRONG)
    rule = next((r.rule for r in past.records if isinstance(r, AdmissionRecord) and r.rule), "")
    if rule:
        yield from row("why", f"{rule} (on the fleet of then)")
    granted = Tone.GOOD if decision.state is PodOutcome.RUNNING else Tone.PLAIN
    if decision.node:
        since = age(zoned_time(decision.bound_at), at)
        yield from row("bound", f"to {decision.node}, committed {since} before", granted)
        for number, text in enumerate(_grant_texts(decision)):
            yield from row("" if number else "holds", text, granted)
    if word == "WAITING":
        since = age(zoned_time(decision.waiting_since or decision.first), at)
        yield from row("waits", f"for {since}", Tone.WARN)
    if decision.violations:
        yield from row("violated", f"its limits, {counted(decision.violations, 'time')}", Tone.BAD)
    yield from _event_lines(past)


def _headline(past: PastPod) -> tuple[str, Tone, str]:
    """Return the state, its tone, and what was missing."""
    decision = past.decision
    word, tone = _WORDS[decision.state]
    last = past.records[-1]
    if decision.state is PodOutcome.BOUND and isinstance(last, StartRefusedRecord):
        text = f"container {quote(last.container)} does not start: {last.text}"
        return "FAILING", Tone.BAD, text
    texts = {
        PodOutcome.REFUSED: decision.text or decision.reason,
        PodOutcome.ADMITTED: "admitted; no record says what a scheduler had made of it",
        PodOutcome.WAITING: _waiting_text(past),
        PodOutcome.BOUND: f"bound to {decision.node}; no container runs yet",
        PodOutcome.RUNNING: f"on {decision.node}" if decision.node else "its node is not recorded",
        PodOutcome.OVER: _ended_text(past),
    }
    return word, tone, texts[decision.state]


def _waiting_text(past: PastPod) -> str:
    records = [r for r in past.records if isinstance(r, WaitingRecord) and (r.text or r.reason)]
    return (records[-1].text or records[-1].reason) if records else past.decision.waiting_reason


def _ended_text(past: PastPod) -> str:
    evicted = [record.text for record in past.records if isinstance(record, EvictedRecord)]
    return f"it was evicted: {evicted[-1]}" if evicted else "it is over"


def _asked_text(past: PastPod) -> str:
    """Return the request in a sentence, in short or empty where less of it is recorded."""
    for record in past.records:
        if isinstance(record, AdmissionRecord) and record.asked:
            try:
                return feasibility_text.request_text(decode_request(record.asked).request)
            except ReplayContentError:  # of a vocabulary or a version that is not known here
                break
    return asked_text(past.decision.asked) if past.decision.asked else ""


def _admitted_text(decision: DecisionRow) -> str:
    digest = f" [{decision.digest}]" if decision.digest else ""
    if not decision.mode:
        return f"{decision.verdict}{digest}"
    try:
        source = f", {feasibility_text.ADMITTED_SOURCES[ModeSource(decision.mode_source)]}"
    except ValueError:
        source = ""
    return f"mode {decision.mode}{source}{digest}"


def _grant_texts(decision: DecisionRow) -> Iterator[str]:
    for part in decision.given:
        for device in part.devices:
            mode = f"{device.mode}, " if device.mode else ""
            yield f"{part.name}: {mode}{_grant_text(device)} on {decision.node} {device.gpu}"


def _grant_text(device: DevicePart) -> str:
    memory = "" if device.memory_mib is None else f"{device.memory_mib} MiB"
    if device.profile:
        slot = "" if device.start is None else f" at slot {device.start}"
        return f"{device.profile}{slot}{f' ({memory})' if memory else ''}"
    cores = f" and {device.cores_percent} % of its compute" if device.cores_percent else ""
    return f"{memory or 'a GPU'}{cores}"


def _event_lines(past: PastPod) -> Iterator[Line]:
    """Yield the latest records as Events, the latest first."""
    events = [record for record in past.records if not _repeats(record)]
    for number, record in enumerate(reversed(events[-MOST_EVENTS:])):
        ago = age(zoned_time(record.at), past.at)
        kind = record.__struct_config__.tag
        text = f"{ago} before {record.component}: {kind}: {record_text(record)}"
        yield from row("" if number else "events", " ".join(text.split()))
    if len(events) > MOST_EVENTS:
        yield from row("", f"and {len(events) - MOST_EVENTS} earlier")


def _repeats(record: AnyRecord) -> bool:
    """Say whether a record only confirms what another one decided."""
    return (
        isinstance(record, AdmissionRecord)
        and record.step == "validate"
        and record.outcome is AdmissionVerdict.REWRITTEN
    )


def past_document(past: PastPod) -> dict[str, Any]:
    """Return what was known as a document; keys are only ever added."""
    return {
        "apiVersion": "vgpu-admission.io/v1alpha1",
        "kind": "PastWhy",
        "at": rfc3339(past.at),
        "decision": msgspec.to_builtins(decision_item(past.decision)),
        "life": [{"record": one.record, "sender": one.sender} for one in past.answers],
    }
