"""Audit records for tests, and strategies that make the records of a few pods in any order."""

from itertools import count
from typing import Any, Final

from hypothesis import strategies as st
from msgspec.structs import replace

from allocator.audit.record import (
    AdmissionRecord,
    AdmissionVerdict,
    AnyRecord,
    AskedPart,
    BindRecord,
    BindVerdict,
    Component,
    DevicePart,
    EvictedRecord,
    FindingPart,
    GivenPart,
    HealthRecord,
    LateCommitRecord,
    OwnerPart,
    ReleasedRecord,
    SettingsRecord,
    SnapshotRecord,
    StartedRecord,
    ViolationRecord,
    WaitingRecord,
    WorkloadRecord,
)
from console.records.rows import StoredRecord
from console.records.times import milliseconds, rfc3339

NOON: Final = milliseconds("2026-11-20T12:00:00Z")
MINUTE: Final = 60_000  # milliseconds
WEBHOOK: Final = "service account vgpu-webhook"
_SERIAL = count(1)


def uid(number: int) -> str:
    """Return the uid of a pod or another object by number."""
    return f"6a7d0000-0000-4000-8000-{number:012x}"


def common(at: int = 0, **more: Any) -> dict[str, Any]:  # noqa: ANN401 -- any field
    """Return the fields of every record; *at* is in milliseconds after noon."""
    return {
        "id": f"{next(_SERIAL):032x}",
        "at": rfc3339(NOON + at),
        "component": Component.WEBHOOK,
        "namespace": "team-a",
    } | more


def mutated(at: int = 0, **more: Any) -> AdmissionRecord:  # noqa: ANN401 -- any field
    """Return an admission as the mutating pass records it."""
    fields: dict[str, Any] = {
        "step": "mutate",
        "outcome": AdmissionVerdict.REWRITTEN,
        "digest": "digest-a",
        "generate_name": "train-",
        "user": "amy",
        "vocabulary": "volcano",
        "mode": "hami-core",
        "mode_source": "best",
        "containers": (AskedPart(name="main", count=1, memory_mib=4096, cores_percent=25),),
    }
    return AdmissionRecord(**common(at) | fields | more)


def validated(at: int = 0, *, pod: int = 1, **more: Any) -> AdmissionRecord:  # noqa: ANN401 -- any field
    """Return an admission as the validating pass records it."""
    fields: dict[str, Any] = {
        "step": "validate",
        "outcome": AdmissionVerdict.REWRITTEN,
        "digest": "digest-a",
        "generate_name": "train-",
        "pod": f"train-{pod}",
        "pod_uid": uid(pod),
        "user": "amy",
        "mode": "hami-core",
    }
    return AdmissionRecord(**common(at) | fields | more)


def refused(at: int = 0, **more: Any) -> AdmissionRecord:  # noqa: ANN401 -- any field
    """Return a refusal."""
    reason = str(more.get("reason", "GpuMemoryShort"))
    fields: dict[str, Any] = {
        "step": "mutate",
        "outcome": AdmissionVerdict.REFUSED,
        "digest": "digest-r",
        "generate_name": "big-",
        "user": "bo",
        "reason": reason,
        "findings": (FindingPart(reason=reason, text="asks for too much", field="spec"),),
    }
    return AdmissionRecord(**common(at) | fields | more)


def bound(at: int = 0, *, pod: int = 1, **more: Any) -> BindRecord:  # noqa: ANN401 -- any field
    """Return a bind that promised 4096 MiB and 25 % of one GPU."""
    device = DevicePart(gpu="GPU-1", mode="hami-core", memory_mib=4096, cores_percent=25)
    fields: dict[str, Any] = {
        "outcome": BindVerdict.PROMISED,
        "pod": f"train-{pod}",
        "pod_uid": uid(pod),
        "digest": "digest-a",
        "node": "gpu-1",
        "user": "system:kube-scheduler",
        "mode": "hami-core",
        "mode_source": "best",
        "containers": (GivenPart(name="main", devices=(device,)),),
    }
    return BindRecord(**common(at) | fields | more)


def of_pod(at: int = 0, *, pod: int = 1, **more: Any) -> dict[str, Any]:  # noqa: ANN401 -- any field
    """Return the fields of a record about a pod on its node."""
    return common(at) | {"pod": f"train-{pod}", "pod_uid": uid(pod), "node": "gpu-1"} | more


def started(at: int = 0, *, pod: int = 1, **more: Any) -> StartedRecord:  # noqa: ANN401 -- any field
    """Return the first sight of a pod's processes."""
    return StartedRecord(
        **of_pod(at, pod=pod, component=Component.AGENT) | {"container": "main"} | more
    )


def released(at: int = 0, *, pod: int = 1, **more: Any) -> ReleasedRecord:  # noqa: ANN401 -- any field
    """Return the end of an entry, because its pod is over."""
    return ReleasedRecord(**of_pod(at, pod=pod) | {"why": "over"} | more)


def waiting(at: int = 0, *, pod: int = 1, **more: Any) -> WaitingRecord:  # noqa: ANN401 -- any field
    """Return the begin of a wait."""
    fields = {"state": "begun", "reason": "GpuMemoryShort", "node": ""}
    return WaitingRecord(**of_pod(at, pod=pod) | fields | more)


def violation(at: int = 0, *, pod: int = 1, **more: Any) -> ViolationRecord:  # noqa: ANN401 -- any field
    """Return a violation."""
    fields = {"violation": "memory", "text": "uses 5000 MiB", "container": "main"}
    return ViolationRecord(**of_pod(at, pod=pod, component=Component.AGENT) | fields | more)


def workload(at: int = 0, *, number: int = 90, **more: Any) -> WorkloadRecord:  # noqa: ANN401 -- any field
    """Return a review of a Job."""
    fields: dict[str, Any] = {
        "operation": "CREATE",
        "object": OwnerPart(kind="Job", name=f"job-{number}", uid=uid(number)),
        "user": "amy",
        "template": "template-1",
    }
    return WorkloadRecord(**common(at) | fields | more)


def health(at: int = 0, *, healthy: bool = False, **more: Any) -> HealthRecord:  # noqa: ANN401 -- any field
    """Return what became of a GPU."""
    fields: dict[str, Any] = {"component": Component.AGENT, "node": "gpu-1", "namespace": ""}
    return HealthRecord(**common(at) | fields | {"gpu": "GPU-1", "healthy": healthy} | more)


def settings_of(at: int = 0, **more: Any) -> SettingsRecord:  # noqa: ANN401 -- any field
    """Return settings that came into force."""
    fields = {
        "configmap": "vgpu-admission-settings",
        "content_digest": "s-1",
        "text": "fleet: open",
    }
    return SettingsRecord(**common(at, namespace="") | fields | {"author": "kubectl"} | more)


def snapshot_of(at: int = 0, **more: Any) -> SnapshotRecord:  # noqa: ANN401 -- any field
    """Return what decisions rested on."""
    fields: dict[str, Any] = {"content_digest": "f-1", "content": {"kinds": [1, 2]}}
    return SnapshotRecord(**common(at, namespace="") | fields | more)


def stored(*records: AnyRecord, sender: str = WEBHOOK) -> list[StoredRecord]:
    """Return *records* as the console received them."""
    return [StoredRecord(record=record, sender=sender) for record in records]


_AT = st.integers(0, 30).map(lambda seconds: seconds * 1000)
_PODS = st.integers(1, 3)
_JOBS = st.sampled_from([90, 91, 92])
_DIGESTS = st.sampled_from(["digest-a", "digest-b", ""])
_USERS = st.sampled_from(["amy", "bo", ""])
_NODES = st.sampled_from(["gpu-1", "gpu-2"])
_TEAMS = st.sampled_from(["team-a", "team-b"])
_OWNERS = st.just(()) | _JOBS.map(
    lambda number: (OwnerPart(kind="Job", name=f"job-{number}", uid=uid(number)),)
)
_ABOVE = st.just(()) | st.just((OwnerPart(kind="CronJob", name="c", uid=uid(92)),))


def _late(bind: BindRecord) -> LateCommitRecord:
    return LateCommitRecord(**{name: getattr(bind, name) for name in bind.__struct_fields__})


_BINDS = st.builds(bound, _AT, pod=_PODS, node=_NODES, outcome=st.sampled_from(BindVerdict))
_RECORDS: Final[st.SearchStrategy[AnyRecord]] = st.one_of(
    st.builds(mutated, _AT, digest=_DIGESTS, owners=_OWNERS, user=_USERS),
    st.builds(refused, _AT, digest=_DIGESTS, owners=_OWNERS, user=_USERS),
    st.builds(
        validated,
        _AT,
        pod=_PODS,
        digest=_DIGESTS,
        owners=_OWNERS,
        user=_USERS,
        outcome=st.sampled_from(AdmissionVerdict),
        step=st.sampled_from(["validate", "ephemeral"]),
    ),
    _BINDS,
    _BINDS.map(_late),
    st.builds(
        released,
        _AT,
        pod=_PODS,
        node=_NODES,
        why=st.sampled_from(["over", "unbound", "replaced"]),
    ),
    st.builds(
        waiting,
        _AT,
        pod=_PODS,
        state=st.sampled_from(["begun", "changed", "over"]),
        reason=st.sampled_from(["GpuMemoryShort", "GpuCoresShort"]),
    ),
    st.builds(
        started, _AT, pod=_PODS, node=_NODES, namespace=st.sampled_from(["team-a", "team-b"])
    ),
    st.builds(violation, _AT, pod=_PODS, node=_NODES),
    st.builds(lambda at, pod: EvictedRecord(**of_pod(at, pod=pod), text="too much"), _AT, _PODS),
    st.builds(
        workload,
        _AT,
        number=_JOBS,
        user=_USERS,
        template=st.sampled_from(["template-1", "template-2", ""]),
        owners=_ABOVE,
    ),
    st.builds(health, _AT, healthy=st.booleans()),
    st.builds(settings_of, _AT),
    st.builds(snapshot_of, _AT),
)


@st.composite
def histories(draw: st.DrawFn) -> list[AnyRecord]:
    """Return records of a few pods that share workloads, with all that may happen to them.

    Many are of one moment, and their ids are in another order than their times.
    """
    records = draw(st.lists(_RECORDS, min_size=1, max_size=14))
    ids = draw(st.permutations(range(len(records))))
    return [replace(one, id=f"{number:032x}") for one, number in zip(records, ids, strict=True)]
