"""Folding records into the states of decisions: which state a record is about, and what changes.

The result is the same in whatever order records arrive. Records that agents write change only what
agents know; they cannot rename a pod, or change what was decided about it.
"""

import re
from hashlib import blake2s
from typing import Final

import msgspec

from allocator.audit.record import (
    AdmissionRecord,
    AdmissionVerdict,
    AnyRecord,
    BindRecord,
    BindVerdict,
    Component,
    LateCommitRecord,
    ReleasedRecord,
    StartedRecord,
    ViolationRecord,
    WaitingRecord,
)
from console.records.state import (
    NEVER,
    AdmissionRegister,
    BindRegister,
    DecisionState,
    NameRegister,
    ReleaseRegister,
    Stamp,
    Subject,
    WaitingRegister,
    greatest,
    least,
    stamp_of,
)

OVER: Final = "over"  # of a released entry: its pod is over
_BEGUN: Final = "begun"
_EPHEMERAL: Final = "ephemeral"
_VALIDATE: Final = "validate"
_STAND_IN: Final = 10  # bytes
_PACKED_UID: Final = b"u"
_UID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
# Control-plane records are believed about names before those of agents.
_ADMISSION_RANK, _BIND_RANK, _OTHER_RANK, _AGENT_RANK = range(4)


class SubjectKey(msgspec.Struct, frozen=True):
    """Which state a record is folded into."""

    subject: Subject
    identity: str  # uid of the pod, or digest of the request

    @property
    def database_key(self) -> bytes:
        """Return the key as bytes, whose first says what it is; a usual uid takes 17."""
        if self.subject is Subject.POD and _UID.fullmatch(self.identity):
            return _PACKED_UID + bytes.fromhex(self.identity.replace("-", ""))
        return f"{self.subject}{self.identity}".encode()


def uid_text(raw: bytes) -> str:
    """Return sixteen bytes as Kubernetes writes a uid."""
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def parse_key(key: bytes) -> SubjectKey:
    """Return the key that :attr:`SubjectKey.database_key` made."""
    if key.startswith(_PACKED_UID):
        return SubjectKey(Subject.POD, uid_text(key[1:]))
    return SubjectKey(Subject(chr(key[0])), key[1:].decode())


def decision_digest(record: AdmissionRecord) -> str:
    """Return the digest of a request, or a stand-in for one that has none.

    A request that could not be parsed has no digest. Its stand-in is the same for the same owner,
    name and reason, so that a repeated request stays one row.
    """
    if record.digest:
        return record.digest
    owner = record.owners[0].uid if record.owners else ""
    name = record.generate_name or record.pod
    text = msgspec.json.encode((record.namespace, owner, name, record.reason))
    return f"~{blake2s(text, digest_size=_STAND_IN).hexdigest()}"


def subject_key(record: AnyRecord) -> SubjectKey | None:
    """Return which state *record* is folded into, ``None`` where it is about no pod."""
    if isinstance(record, AdmissionRecord):
        if record.outcome is AdmissionVerdict.REFUSED:
            return SubjectKey(Subject.REFUSED, decision_digest(record))
        if record.outcome is AdmissionVerdict.ERROR:
            return SubjectKey(Subject.FAILED, decision_digest(record))
        if not record.pod_uid:
            if record.step == _EPHEMERAL:
                return None
            return SubjectKey(Subject.PENDING, decision_digest(record))
    if record.pod_uid:
        return SubjectKey(Subject.POD, record.pod_uid)
    return None


def confirmed_key(record: AnyRecord) -> SubjectKey | None:
    """Return the pending request whose end *record* tells, ``None`` where it tells none."""
    if isinstance(record, AdmissionRecord) and record.step == _VALIDATE:
        return SubjectKey(Subject.PENDING, decision_digest(record))
    return None


def new_state(key: SubjectKey) -> DecisionState:
    """Return a state of which nothing is known yet."""
    if key.subject is Subject.POD:
        return DecisionState(subject=key.subject, pod_uid=key.identity)
    return DecisionState(subject=key.subject, digest=key.identity)


def confirm(state: DecisionState, at: int) -> None:
    """Note that the pod of a pending request is known.

    The state stays, because it says what the pod asked for, which reviews of the pod do not repeat.
    """
    state.confirmed = True
    state.active = max(state.active, at)


def absorb(state: DecisionState, record: AnyRecord, at: int) -> None:
    """Change *state* by *record*, of the time *at* in milliseconds since 1970."""
    stamp = stamp_of(at, record.id)
    state.active = max(state.active, at)
    agent = record.component is Component.AGENT
    _name(state, record)
    match record:
        case AdmissionRecord() if not agent:
            if record.step != _EPHEMERAL or state.subject is not Subject.POD:
                _admission(state, record, stamp)
        case BindRecord() if not agent and record.outcome is not BindVerdict.REFUSED:
            _bind(state, record, stamp)
        case WaitingRecord() if not agent:
            _waiting(state, record, stamp)
        case ReleasedRecord() if not agent:
            _release(state, record, stamp)
        case StartedRecord():
            state.started[record.node] = least(state.started.get(record.node), at)
        case ViolationRecord():
            state.violations[record.node] = state.violations.get(record.node, 0) + 1
        case _:
            pass


def _name(state: DecisionState, record: AnyRecord) -> None:
    if record.component is Component.AGENT:
        rank = _AGENT_RANK
    elif isinstance(record, AdmissionRecord):
        rank = _ADMISSION_RANK
    else:
        rank = _BIND_RANK if isinstance(record, BindRecord) else _OTHER_RANK
    if record.namespace:
        prefix = record.generate_name if isinstance(record, AdmissionRecord) else ""
        name = NameRegister(rank=rank, namespace=record.namespace, pod=record.pod or prefix)
        state.name = min(state.name, name)
    if state.subject is Subject.POD and record.digest and rank != _AGENT_RANK:
        state.digest = min(state.digest, record.digest) if state.digest else record.digest


def _admission(state: DecisionState, record: AdmissionRecord, stamp: Stamp) -> None:
    at, _ = stamp
    state.first, state.last = least(state.first, at), greatest(state.last, at)
    state.times += 1
    known = state.admission.stamp
    earliest = state.subject is Subject.PENDING  # the digest fixes the rest, whenever it is seen
    if known != NEVER and (stamp > known if earliest else stamp < known):
        return
    finding = record.findings[0] if record.findings else None
    text = finding.text if finding else (record.warnings[0] if record.warnings else "")
    state.admission = AdmissionRegister(
        stamp=stamp,
        digest=decision_digest(record),
        verdict=record.outcome.value,
        reason=record.reason or (finding.reason if finding else ""),
        text=text,
        user=record.user,
        vocabulary=record.vocabulary,
        mode=record.mode or record.mode_asked,
        mode_source=record.mode_source,
        owner=record.owners[0] if record.owners else None,
        asked=record.containers,
    )


def _bind(state: DecisionState, record: BindRecord | LateCommitRecord, stamp: Stamp) -> None:
    at, _ = stamp
    state.bound_first = least(state.bound_first, at)
    state.bound_last = greatest(state.bound_last, at)
    if stamp > state.bind.stamp:
        state.bind = BindRegister(
            stamp=stamp,
            node=record.node,
            mode=record.mode,
            mode_source=record.mode_source,
            given=record.containers,
        )


def _waiting(state: DecisionState, record: WaitingRecord, stamp: Stamp) -> None:
    if record.state == _BEGUN:
        state.waiting_begun = greatest(state.waiting_begun, stamp[0])
    if stamp > state.waiting.stamp:
        state.waiting = WaitingRegister(stamp=stamp, state=record.state, reason=record.reason)


def _release(state: DecisionState, record: ReleasedRecord, stamp: Stamp) -> None:
    if record.why == OVER:
        state.over = least(state.over, stamp[0])
    elif stamp > state.release.stamp:
        state.release = ReleaseRegister(stamp=stamp, node=record.node)
