"""What a record says, in one short sentence."""

from functools import singledispatch
from typing import Any

import msgspec

from allocator.audit.record import (
    AdmissionRecord,
    AdmissionVerdict,
    AllocatedRecord,
    AnyRecord,
    BindRecord,
    BindVerdict,
    CertificateRecord,
    DevicePart,
    EvictedRecord,
    GivenPart,
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
from console.history.amounts import asked_text, device_text


def known_record(record: dict[str, Any]) -> AnyRecord | None:
    """Return the record in the classes of this version, ``None`` where it is of a later one."""
    try:
        known: AnyRecord = msgspec.convert(record, AnyRecord)
    except msgspec.ValidationError:
        return None
    return known


@singledispatch
def record_text(record: AnyRecord) -> str:  # noqa: ARG001 -- others read it
    """Return what *record* says; empty for a kind without words of its own."""
    return ""


@record_text.register
def _released(record: ReleasedRecord) -> str:
    return f"gave back {_given(record.containers)}: {record.why}"


@record_text.register
def _workload(record: WorkloadRecord) -> str:
    by = f" by {record.user}" if record.user else ""
    return f"{record.object.kind}/{record.object.name}: {record.operation.lower()}{by}"


@record_text.register
def _allocated(record: AllocatedRecord) -> str:
    waited = _seconds(" after ", record.waited_seconds)
    return f"{record.container} was handed {_devices(record.devices)}{waited}"


@record_text.register
def _started(record: StartedRecord) -> str:
    again = f" again ({record.restarts} restarts)" if record.restarts else ""
    return f"{record.container} started{again}"


@record_text.register
def _start_refused(record: StartRefusedRecord) -> str:
    return f"{record.container} may not start: {record.text}"


@record_text.register
def _violation(record: ViolationRecord) -> str:
    return f"{record.violation}: {record.text}"


@record_text.register
def _health(record: HealthRecord) -> str:
    state = "is back" if record.healthy else "is out of service"
    return f"{record.gpu} {state}{_tail(record.text)}"


@record_text.register
def _reconfigured(record: ReconfiguredRecord) -> str:
    return f"{record.gpu}{'' if record.done else ' failed'}{_tail(record.text)}"


@record_text.register
def _snapshot(record: SnapshotRecord) -> str:
    return f"what decisions rest on: {record.content_digest}"


@record_text.register(EvictedRecord)
@record_text.register(CertificateRecord)
def _own_text(record: EvictedRecord | CertificateRecord) -> str:
    return record.text


@record_text.register
def _admission(record: AdmissionRecord) -> str:
    if record.outcome is AdmissionVerdict.REFUSED:
        reason = record.findings[0].text if record.findings else record.reason
        return f"refused: {reason}"
    if record.outcome is AdmissionVerdict.REWRITTEN:
        return f"admitted as {record.mode or 'it is'}: {asked_text(record.containers)}"
    if record.outcome is AdmissionVerdict.ERROR:
        text = record.findings[0].text if record.findings else record.reason
        return f"failed: {text or 'see the log of the webhook'}"
    return "GPUs were hidden from it" if record.hidden else "asks for no share of a GPU"


@record_text.register
def _bind(record: BindRecord) -> str:
    if record.outcome is BindVerdict.PROMISED:
        return f"was promised {_given(record.containers)}"
    if record.outcome is BindVerdict.ELSEWHERE:
        return "was left to another device plugin"
    return f"bind refused: {record.text or record.reason}"


@record_text.register
def _waiting(record: WaitingRecord) -> str:
    if record.state == "over":
        return f"waits no longer{_seconds(', after ', record.seconds)}"
    return f"waits: {record.text or record.reason}"


@record_text.register
def _settings(record: SettingsRecord) -> str:
    by = f", written by {record.author}" if record.author else ""
    if not record.accepted:
        why = record.problems[0] if record.problems else "they are not valid"
        return f"{record.configmap} was rejected{by}: {why}"
    return f"{record.configmap} is in force{by}"


def _given(containers: tuple[GivenPart, ...]) -> str:
    return _devices(tuple(device for each in containers for device in each.devices))


def _devices(devices: tuple[DevicePart, ...]) -> str:
    return ", ".join(f"{device_text(each)} of {each.gpu}" for each in devices) or "nothing"


def _tail(text: str) -> str:
    return f": {text}" if text else ""


def _seconds(before: str, seconds: float | None) -> str:
    return "" if seconds is None else f"{before}{seconds:.3g} s"
