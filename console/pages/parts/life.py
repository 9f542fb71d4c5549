"""The life line: the records of a pod as events, each in a sentence."""

from collections.abc import Mapping, Sequence
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
from console.languages.messages import PageMessage, joined_text, message
from console.pages.parts.blocks import LifeEvent, LifeLine
from console.pages.parts.cell import MARKS, at, time_of
from console.pages.parts.durations import duration
from console.pages.parts.words import device_text, given_text, verdict_text
from console.records.rows import StoredRecord

Saying = tuple[str, str, Tone]  # what happened, in words, and its tone
_VERDICT_TONES: Final = {
    "rewritten": Tone.GOOD,
    "promised": Tone.GOOD,
    "refused": Tone.BAD,
    "error": Tone.BAD,
}
_BINDS: Final[Mapping[str, PageMessage]] = {
    "promised": message("bound"),
    "refused": message("bind refused"),
}
_WHY_RELEASED: Final = {
    "over": message("the pod is over"),
    "unbound": message("the pod was never bound"),
    "elsewhere": message("the pod was bound to another node"),
    "replaced": message("another entry took its place"),
}


def life_line(
    records: Sequence[StoredRecord], now: datetime, *, people: bool, most: int
) -> LifeLine:
    """Return *records*, the earliest first, as events; *most* is what the store returns at most."""
    events = tuple(life_event(stored, now, people=people) for stored in records)
    note = (
        message("Only the first {most} records are shown.", most=most)
        if len(records) >= most
        else ""
    )
    return LifeLine(
        title=message("What happened"),
        events=events,
        empty=note or ("" if events else message("No record of this pod is stored any more.")),
    )


def life_event(stored: StoredRecord, now: datetime, *, people: bool) -> LifeEvent:
    """Return one record as an event; names of *people* are left out where they may not be seen."""
    record = stored.record
    what, text, tone = saying(record, people=people)
    node = record.node if record.component is Component.AGENT else ""
    source = " ".join(filter(None, (record.component, record.instance or node)))
    parts: list[str] = [source]
    if stored.sender and people:
        parts.append(message("sent by {sender}", sender=stored.sender))
    return LifeEvent(
        when=at(record.at, now),
        what=what,
        text=text,
        tone=tone,
        mark=MARKS.get(tone, ""),
        source=joined_text("; ", parts),
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
            held = message("it held {devices}", devices=what) if what else ""
            text = joined_text("; ", filter(None, (_WHY_RELEASED.get(why, why), held)))
            return message("released"), text, Tone.LABEL
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
    step: str = record.step
    if record.user and people:
        step = message("{step} for {user}", step=step, user=record.user)
    took = _milliseconds(record.duration_seconds)
    text: str = ""
    if record.findings:
        text = "; ".join(finding.text for finding in record.findings)
    elif record.mode:
        mode = message("mode {mode}", mode=record.mode)
        text = joined_text(": ", filter(None, (mode, record.rule)))
    age = _snapshot_age(record.snapshot_age_seconds)
    details = joined_text(", ", filter(None, (step, took, age)))
    if text:
        details = message("{text} ({details})", text=text, details=details)
    return verdict_text(record.outcome), details, tone


def _snapshot_age(seconds: float | None) -> str:
    return "" if seconds is None else message("on a snapshot {seconds:,.1f} s old", seconds=seconds)


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return message("in {milliseconds:,.1f} ms", milliseconds=1000 * seconds)


def _bind(record: BindRecord) -> Saying:
    tone = _VERDICT_TONES.get(record.outcome, Tone.PLAIN)
    given = given_text(record.containers)
    gpus = sorted({device.gpu for part in record.containers for device in part.devices})
    parts = [
        message("to {node}", node=record.node) if record.node else "",
        given,
        message("on {device}", device=", ".join(gpus)) if gpus else "",
        record.text,
        f"[{record.reason}]" if record.reason else "",
        _milliseconds(record.duration_seconds),
    ]
    what = _BINDS.get(record.outcome, message("left to another plugin"))
    if type(record) is not BindRecord:
        what = message("late: {what}", what=what)
    return what, joined_text(", ", filter(None, parts)), tone


def _on_node(
    record: AllocatedRecord | StartedRecord | StartRefusedRecord | ViolationRecord | EvictedRecord,
) -> Saying:
    match record:
        case AllocatedRecord(container=container, devices=devices, waited_seconds=waited):
            texts = [
                message(
                    "{amount} on {device}",
                    amount=device_text(device),
                    device=device.instance or device.gpu,
                )
                for device in devices
            ]
            if waited is not None:
                texts.append(message("after {seconds:,.1f} s", seconds=waited))
            text = joined_text(": ", (container, joined_text(", ", texts)))
            return message("allocated"), text, Tone.PLAIN
        case StartedRecord(container=container, restarts=restarts):
            again = message("restart {number}", number=restarts) if restarts else ""
            text = joined_text(", ", filter(None, (container, again)))
            return message("started"), text, Tone.GOOD
        case StartRefusedRecord(container=container, text=text):
            return message("start refused"), f"{container}: {text}", Tone.BAD
        case ViolationRecord(violation=violation, text=text, container=container):
            whose = f"{container}: " if container else ""
            return (
                message("violation: {violation}", violation=violation),
                f"{whose}{text}",
                Tone.BAD,
            )
        case EvictedRecord(text=text):
            return message("evicted"), text, Tone.BAD
        case _:
            assert_never(record)


def _waiting(record: WaitingRecord) -> Saying:
    if record.state == "over":
        seconds = record.seconds
        text = "" if seconds is None else message("after {seconds:,.0f} s", seconds=seconds)
        return message("waits no longer"), text, Tone.GOOD
    begun = record.state == "begun"
    what = message("waits") if begun else message("waits for another reason")
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
            what = message("reconfigured") if done else message("not reconfigured")
            return what, f"{gpu}: {text}", _tone(done)
        case HealthRecord(gpu=gpu, healthy=healthy, text=text):
            what = message("GPU returned") if healthy else message("GPU left service")
            return what, ": ".join(filter(None, (gpu, text))), _tone(healthy)
        case SettingsRecord(configmap=configmap, accepted=accepted, author=author):
            by = message("by {author}", author=author) if author and people else ""
            what = message("settings in force") if accepted else message("settings rejected")
            changed = joined_text(", ", filter(None, (configmap, by)))
            return what, joined_text("; ", (changed, *record.problems)), _tone(accepted)
        case CertificateRecord(done=done):
            return message("certificate"), with_end(record), _tone(done)
        case WorkloadRecord(warnings=warnings):
            text = _workload(record, people=people)
            return message("workload"), text, Tone.WARN if warnings else Tone.PLAIN
        case SnapshotRecord(content_digest=digest):
            text = message("of what decisions rest on, {digest}", digest=digest)
            return message("snapshot"), text, Tone.PLAIN
        case _:
            assert_never(record)


def _workload(record: WorkloadRecord, *, people: bool) -> PageMessage:
    """Return who did what with a workload, and what the webhook said."""
    operation, name = record.operation.lower(), f"{record.object.kind} {record.object.name}"
    if record.user and people:
        text = message(
            "{operation} of {object} by {user}", operation=operation, object=name, user=record.user
        )
    else:
        text = message("{operation} of {object}", operation=operation, object=name)
    warned = [message("warned: {warning}", warning=warning) for warning in record.warnings]
    return joined_text("; ", (text, *warned))


def with_end(record: CertificateRecord) -> PageMessage:
    """Return what became of a certificate, and until when it is valid."""
    until = message("valid until {time}", time=record.not_after) if record.not_after else ""
    return joined_text(", ", filter(None, (record.text, until)))


def _tone(good: bool) -> Tone:  # noqa: FBT001 -- the truth is all there is
    return Tone.GOOD if good else Tone.BAD


def started_after(row_first: str, started_at: str) -> str:
    """Return how long after its admission a pod started; empty where one is unknown."""
    first, started = time_of(row_first), time_of(started_at)
    if first is None or started is None:
        return ""
    return message("{duration} after admission", duration=duration(started - first))
