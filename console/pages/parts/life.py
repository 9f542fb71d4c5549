"""The life line: the records of a pod as events, each in a sentence."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, assert_never

from allocator.audit.record import (
    AdmissionRecord,
    AllocatedRecord,
    AnyRecord,
    BindRecord,
    CertificateRecord,
    Component,
    EvictedRecord,
    HealthRecord,
    ReconfiguredRecord,
    ReleasedRecord,
    SettingsRecord,
    SnapshotRecord,
    StartedRecord,
    StartRefusedRecord,
    ViolationRecord,
    WaitingRecord,
    WorkloadRecord,
)
from allocator.report.terminal_lines import Tone
from console.get.table import span
from console.pages.parts.blocks import LifeEvent, LifeLine
from console.pages.parts.cell import MARKS, at, time_of
from console.pages.parts.words import device_text, given_text
from console.records.rows import StoredRecord

Saying = tuple[str, str, Tone]  # what happened, in words, and its tone
_VERDICT_TONES: Final = {
    "rewritten": Tone.GOOD,
    "promised": Tone.GOOD,
    "refused": Tone.BAD,
    "error": Tone.BAD,
}
_WHY_RELEASED: Final = {
    "over": "the pod is over",
    "unbound": "the pod was never bound",
    "elsewhere": "the pod was bound to another node",
    "replaced": "another entry took its place",
}


def life_line(
    records: Sequence[StoredRecord], now: datetime, *, people: bool, most: int
) -> LifeLine:
    """Return *records*, the earliest first, as events; *most* is what the store returns at most."""
    events = tuple(life_event(stored, now, people=people) for stored in records)
    note = f"Only the first {most} records are shown." if len(records) >= most else ""
    return LifeLine(
        title="What happened",
        events=events,
        empty=note or ("" if events else "No record of this pod is stored any more."),
    )


def life_event(stored: StoredRecord, now: datetime, *, people: bool) -> LifeEvent:
    """Return one record as an event; names of *people* are left out where they may not be seen."""
    record = stored.record
    what, text, tone = saying(record, people=people)
    node = record.node if record.component is Component.AGENT else ""
    source = " ".join(filter(None, (record.component, record.instance or node)))
    sender = f"; sent by {stored.sender}" if stored.sender and people else ""
    return LifeEvent(
        when=at(record.at, now),
        what=what,
        text=text,
        tone=tone,
        mark=MARKS.get(tone, ""),
        source=f"{source}{sender}",
    )


def saying(record: AnyRecord, *, people: bool) -> Saying:
    """Return what a record tells."""
    match record:
        case AdmissionRecord():
            return _admission(record, people=people)
        case BindRecord():  # and late commits
            return _bind(record)
        case ReleasedRecord(why=why, containers=containers):
            what = given_text(containers)
            text = f"{_WHY_RELEASED.get(why, why)}{f'; it held {what}' if what else ''}"
            return "released", text, Tone.LABEL
        case (
            AllocatedRecord()
            | StartedRecord()
            | StartRefusedRecord()
            | ViolationRecord()
            | EvictedRecord()
        ):
            return _on_node(record)
        case WaitingRecord():
            return _waiting(record)
        case _:
            return _of_others(record, people=people)


def _admission(record: AdmissionRecord, *, people: bool) -> Saying:
    tone = _VERDICT_TONES.get(record.outcome, Tone.PLAIN)
    by = f" for {record.user}" if record.user and people else ""
    took = _milliseconds(record.duration_seconds)
    if record.findings:
        text = "; ".join(finding.text for finding in record.findings)
    elif record.mode:
        text = f"mode {record.mode}{f': {record.rule}' if record.rule else ''}"
    else:
        text = ""
    age = _snapshot_age(record.snapshot_age_seconds)
    details = ", ".join(filter(None, (f"{record.step}{by}", took, age)))
    return str(record.outcome), f"{text} ({details})" if text else details, tone


def _snapshot_age(seconds: float | None) -> str:
    return "" if seconds is None else f"on a snapshot {seconds:,.1f} s old"


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"in {1000 * seconds:,.1f} ms"


def _bind(record: BindRecord) -> Saying:
    tone = _VERDICT_TONES.get(record.outcome, Tone.PLAIN)
    given = given_text(record.containers)
    gpus = sorted({device.gpu for part in record.containers for device in part.devices})
    parts = [
        f"to {record.node}" if record.node else "",
        given,
        f"on {', '.join(gpus)}" if gpus else "",
        record.text,
        f"[{record.reason}]" if record.reason else "",
        _milliseconds(record.duration_seconds),
    ]
    what = {"promised": "bound", "refused": "bind refused"}.get(
        record.outcome, "left to another plugin"
    )
    if type(record) is not BindRecord:
        what = f"late: {what}"
    return what, ", ".join(filter(None, parts)), tone


def _on_node(
    record: AllocatedRecord | StartedRecord | StartRefusedRecord | ViolationRecord | EvictedRecord,
) -> Saying:
    match record:
        case AllocatedRecord(container=container, devices=devices, waited_seconds=waited):
            texts = ", ".join(
                f"{device_text(device)} on {device.instance or device.gpu}" for device in devices
            )
            after = "" if waited is None else f", after {waited:,.1f} s"
            return "allocated", f"{container}: {texts}{after}", Tone.PLAIN
        case StartedRecord(container=container, restarts=restarts):
            again = f", restart {restarts}" if restarts else ""
            return "started", f"{container}{again}", Tone.GOOD
        case StartRefusedRecord(container=container, text=text):
            return "start refused", f"{container}: {text}", Tone.BAD
        case ViolationRecord(violation=violation, text=text, container=container):
            whose = f"{container}: " if container else ""
            return f"violation: {violation}", f"{whose}{text}", Tone.BAD
        case EvictedRecord(text=text):
            return "evicted", text, Tone.BAD
        case _:
            assert_never(record)


def _waiting(record: WaitingRecord) -> Saying:
    if record.state == "over":
        seconds = record.seconds
        text = "" if seconds is None else f"after {seconds:,.0f} s"
        return "waits no longer", text, Tone.GOOD
    what = "waits" if record.state == "begun" else "waits for another reason"
    return what, ": ".join(filter(None, (record.reason, record.text))), Tone.WARN


def _of_others(
    record: ReconfiguredRecord
    | HealthRecord
    | SettingsRecord
    | CertificateRecord
    | WorkloadRecord
    | SnapshotRecord,
    *,
    people: bool,
) -> Saying:
    match record:
        case ReconfiguredRecord(gpu=gpu, done=done, text=text):
            return "reconfigured" if done else "not reconfigured", f"{gpu}: {text}", _tone(done)
        case HealthRecord(gpu=gpu, healthy=healthy, text=text):
            what = "GPU returned" if healthy else "GPU left service"
            return what, ": ".join(filter(None, (gpu, text))), _tone(healthy)
        case SettingsRecord(configmap=configmap, accepted=accepted, author=author):
            by = f", by {author}" if author and people else ""
            what = "settings in force" if accepted else "settings rejected"
            problems = "".join(f"; {problem}" for problem in record.problems)
            return what, f"{configmap}{by}{problems}", _tone(accepted)
        case CertificateRecord(text=text, done=done, not_after=not_after):
            until = f", valid until {not_after}" if not_after else ""
            return "certificate", f"{text}{until}", _tone(done)
        case WorkloadRecord(operation=operation, object=owner, user=user, warnings=warnings):
            by = f" by {user}" if user and people else ""
            said = "".join(f"; warned: {warning}" for warning in warnings)
            text = f"{operation.lower()} of {owner.kind} {owner.name}{by}{said}"
            return "workload", text, Tone.WARN if warnings else Tone.PLAIN
        case SnapshotRecord(content_digest=digest):
            return "snapshot", f"of what decisions rest on, {digest}", Tone.PLAIN
        case _:
            assert_never(record)


def _tone(good: bool) -> Tone:  # noqa: FBT001 -- the truth is all there is
    return Tone.GOOD if good else Tone.BAD


def started_after(row_first: str, started_at: str) -> str:
    """Return how long after its admission a pod started; empty where one is unknown."""
    first, started = time_of(row_first), time_of(started_at)
    return "" if first is None or started is None else f"{span(started - first)} after admission"
