"""The audit record: what happened to a pod, a GPU or the settings, as every program writes it.

One record is one JSON object. On standard output it is one line; the console stores it. Programs
write records as mappings, because a mapping is encoded fastest; this module is what such a mapping
has to be, and tests decode with it all that programs write. ``docs/records.md`` and the JSON Schema
beside it are generated from it.

Amounts have their unit in their name. Names and texts of tenants are cut and escaped
(:func:`allocator.model.untrusted.escaped`). The value of a variable that is not ours is never part
of a record. A field that is unknown is absent, never 0 or a guess.
"""

from enum import StrEnum
from typing import Any, Final

import msgspec

SCHEMA: Final = 1  # raised when a field changes its meaning; new fields and kinds do not raise it


class Component(StrEnum):
    """The program that wrote a record."""

    WEBHOOK = "webhook"
    AGENT = "agent"
    CONSOLE = "console"


class AdmissionVerdict(StrEnum):
    """What admission did with a pod."""

    UNTOUCHED = "untouched"
    REWRITTEN = "rewritten"
    REFUSED = "refused"
    ERROR = "error"


class BindVerdict(StrEnum):
    """What was done with a bind."""

    PROMISED = "promised"
    REFUSED = "refused"
    ELSEWHERE = "elsewhere"  # left to another device plugin


class RequesterSource(StrEnum):
    """How the person behind a pod was found."""

    DIRECT = "direct"  # created the pod
    WORKLOAD = "workload"  # created or last changed the pod template
    UNKNOWN = "unknown"


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a record."""


class OwnerPart(Part, frozen=True, kw_only=True):
    """An object that owns a pod, or that a review is about."""

    kind: str
    name: str
    uid: str = ""


class AskedPart(Part, frozen=True, kw_only=True):
    """What one container asks for. ``memory_percent`` and ``memory_mib`` exclude each other."""

    name: str
    count: int
    stage: str = "main"  # init | sidecar | main
    memory_mib: int | None = None
    memory_percent: int | None = None
    cores_percent: int | None = None


class DevicePart(Part, frozen=True, kw_only=True):
    """One grant: a MIG instance, or a share of a GPU."""

    gpu: str  # UUID
    mode: str = ""
    memory_mib: int | None = None
    cores_percent: int | None = None
    profile: str = ""  # of a MIG instance
    start: int | None = None  # its first memory slot
    instance: str = ""  # UUID of the MIG instance, once it exists


class GivenPart(Part, frozen=True, kw_only=True):
    """What one container is given."""

    name: str
    devices: tuple[DevicePart, ...] = ()


class FindingPart(Part, frozen=True, kw_only=True):
    """One reason why a pod is refused."""

    reason: str
    text: str
    field: str = ""


class ChangePart(Part, frozen=True, kw_only=True):
    """One operation of the patch; ``value`` only where it is wholly ours."""

    op: str
    path: str
    value: Any = msgspec.UNSET


class Record(Part, frozen=True, kw_only=True, tag_field="kind"):
    """What every record has.

    ``id`` is a UUID of version 7 without hyphens; a record that is sent twice is stored once.
    ``caller`` is what the caller of a review had to show (``path``, ``certificate``, ``source``);
    it is empty where nobody called, and where anybody might have.
    """

    id: str
    at: str  # RFC 3339 in UTC, milliseconds
    component: Component
    schema: int = SCHEMA
    instance: str = ""  # name of the program's pod
    node: str = ""
    namespace: str = ""
    pod: str = ""  # its name
    pod_uid: str = ""
    digest: str = ""  # of the request as first asked; stamped on the pod
    caller: tuple[str, ...] = ()
    version: str = ""  # of the program
    cut: bool = False  # parts were left out, because the record was too large


class AdmissionRecord(Record, frozen=True, kw_only=True, tag="admission"):
    """A decision at CREATE. The ``validate`` pass knows the final name and uid of the pod."""

    step: str  # mutate | validate | ephemeral
    outcome: AdmissionVerdict
    review: str = ""  # uid of the AdmissionReview
    operation: str = ""
    generate_name: str = ""
    owners: tuple[OwnerPart, ...] = ()
    user: str = ""
    groups: tuple[str, ...] = ()
    reason: str = ""  # of the first finding
    findings: tuple[FindingPart, ...] = ()
    warnings: tuple[str, ...] = ()
    hidden: bool = False  # GPUs were hidden from a pod that asks for none
    vocabulary: str = ""
    mode: str = ""
    mode_source: str = ""
    mode_asked: str = ""
    costs_per_mille: dict[str, int] = {}
    rule: str = ""  # why this mode, in words
    containers: tuple[AskedPart, ...] = ()
    constraints: tuple[str, ...] = ()
    priority: str = ""
    changes: tuple[ChangePart, ...] = ()
    asked: dict[str, Any] = {}  # the request as replay needs it
    snapshot: str = ""  # digest of the SnapshotRecord that was decided on
    snapshot_age_seconds: float | None = None
    settings: str = ""  # digest of the SettingsRecord in force
    duration_seconds: float | None = None
    size_bytes: int | None = None  # of a review that could not be read, as far as it was


class BindRecord(Record, frozen=True, kw_only=True, tag="bind"):
    """The answer to a Binding."""

    outcome: BindVerdict
    review: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    code: int | None = None  # of a refusal, as HTTP status
    reason: str = ""
    text: str = ""
    mode: str = ""
    mode_source: str = ""
    wished: tuple[str, ...] = ()  # GPUs that the scheduler named
    containers: tuple[GivenPart, ...] = ()
    weights: dict[str, dict[str, int]] = {}  # learned demand by board and profile
    ledger: str = ""  # resourceVersion of the GPUNode that the decision was made on
    snapshot: str = ""  # digest of the SnapshotRecord with the node's boards and GPUs
    # Grants that were there: position of the GPU, MiB, cores, start, number of the profile; the
    # last two are -1 where it is no MIG instance.
    taken: tuple[tuple[int, int, int, int, int], ...] = ()
    taken_positions: tuple[str, ...] = ()  # Volcano's names of their places, where it has some
    taken_shares: tuple[str, ...] = ()  # their sharing classes, where GPUs have such
    live: tuple[tuple[int, int, int], ...] = ()  # MIG instances: GPU, start, profile
    asked: dict[str, Any] = {}  # the request as replay needs it
    demand: dict[str, dict[str, float]] = {}  # learned arrivals by board and profile
    hard_policy: str = ""  # of the scheduler, by which only the GPUs that it named will do
    positions: tuple[tuple[str, str], ...] = ()  # GPU and MIG position that the scheduler named
    earlier: bool = False  # an earlier entry or its running containers decided
    settings: str = ""
    duration_seconds: float | None = None


class LateCommitRecord(BindRecord, frozen=True, kw_only=True, tag="late-commit"):
    """An entry committed after its pod was bound."""

    basis: str = ""  # what the entry rests on


class ReleasedRecord(Record, frozen=True, kw_only=True, tag="released"):
    """An entry was removed from the ledger."""

    why: str  # over | unbound | elsewhere | replaced
    since: str = ""  # of the entry
    containers: tuple[GivenPart, ...] = ()


class AllocatedRecord(Record, frozen=True, kw_only=True, tag="allocated"):
    """A container was handed its devices, before it starts."""

    container: str
    devices: tuple[DevicePart, ...] = ()
    waited_seconds: float | None = None  # for its MIG instance, for example


class StartedRecord(Record, frozen=True, kw_only=True, tag="started"):
    """Processes of a container were seen for the first time."""

    container: str
    restarts: int | None = None


class StartRefusedRecord(Record, frozen=True, kw_only=True, tag="start-refused"):
    """A container may not start yet, or not at all; kubelet tries again."""

    container: str
    text: str


class ReconfiguredRecord(Record, frozen=True, kw_only=True, tag="reconfigured"):
    """MIG instances of a GPU were created or destroyed."""

    gpu: str
    done: bool
    text: str


class ViolationRecord(Record, frozen=True, kw_only=True, tag="violation"):
    """A container holds or does more than it was promised."""

    violation: str
    text: str
    container: str = ""


class EvictedRecord(Record, frozen=True, kw_only=True, tag="evicted"):
    """A pod was evicted by our policy."""

    text: str


class HealthRecord(Record, frozen=True, kw_only=True, tag="health"):
    """A GPU left service, or returned."""

    gpu: str
    healthy: bool
    text: str = ""


class WaitingRecord(Record, frozen=True, kw_only=True, tag="waiting"):
    """A pod found no node, waits for another reason than before, or waits no longer."""

    state: str  # begun | changed | over
    reason: str = ""
    text: str = ""
    seconds: float | None = None  # how long it waited, once that is over


class SettingsRecord(Record, frozen=True, kw_only=True, tag="settings"):
    """Settings or a device configuration came into force, or were rejected."""

    configmap: str
    content_digest: str
    text: str
    author: str = ""  # the manager that metadata.managedFields names for the key
    changed_at: str = ""
    accepted: bool = True
    problems: tuple[str, ...] = ()


class CertificateRecord(Record, frozen=True, kw_only=True, tag="certificate"):
    """A certificate was issued, renewed or could not be."""

    text: str
    done: bool = True
    not_after: str = ""


class WorkloadRecord(Record, frozen=True, kw_only=True, tag="workload"):
    """Somebody created or changed an object with a pod template.

    ``template`` is a digest of the template, and ``user`` who applied it. ``owners`` of the object,
    its controller first, lead on to the workload above it, as from a ReplicaSet to its Deployment.
    """

    operation: str
    object: OwnerPart
    owners: tuple[OwnerPart, ...] = ()
    template: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class SnapshotRecord(Record, frozen=True, kw_only=True, tag="snapshot"):
    """What decisions rest on, by the digest of its content; each program sends it once.

    ``content`` is JSON: the kinds of GPU of the fleet, or the boards and GPUs of one node.
    """

    content_digest: str
    content: dict[str, Any]


AnyRecord = (
    AdmissionRecord
    | BindRecord
    | LateCommitRecord
    | ReleasedRecord
    | AllocatedRecord
    | StartedRecord
    | StartRefusedRecord
    | ReconfiguredRecord
    | ViolationRecord
    | EvictedRecord
    | HealthRecord
    | WaitingRecord
    | SettingsRecord
    | CertificateRecord
    | WorkloadRecord
    | SnapshotRecord
)
_DECODER: Final = msgspec.json.Decoder(AnyRecord)


def parse_record(line: bytes | str) -> AnyRecord:
    """Return the record of one line; fields of a later version are ignored.

    Raises :class:`msgspec.ValidationError`, which names the field and what it should be.
    """
    decoded: AnyRecord = _DECODER.decode(line)
    return decoded
