"""Records and rows of decisions for pages: a day in two namespaces, and strangers' worst."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, get_args, get_origin

import msgspec

from allocator.audit.record import (
    AnyRecord,
    AskedPart,
    DevicePart,
    GivenPart,
    OwnerPart,
    parse_record,
)
from console.records.query import PodOutcome
from console.records.rows import DecisionRow, StoredRecord, UsageRow

NOW: Final = datetime(2026, 11, 21, 12, 34, 56, tzinfo=UTC)
SETTINGS: Final = "sha256:5e77"
RULE: Final = "both can serve it, and the difference is at most 10 % of a GPU, so isolation wins"


def time(minutes: float) -> str:
    """Return RFC 3339 of so many minutes before the time of the tests."""
    moment = NOW - timedelta(minutes=minutes)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def identity(text: str) -> str:
    """Return an id that is the same in every run."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]


OF_AGENTS: Final = frozenset(
    {"allocated", "started", "start-refused", "violation", "evicted", "health", "reconfigured"}
)


def record(kind: str, minutes: float, **fields: object) -> StoredRecord:
    """Build a record of *kind* as a webhook or an agent sends it."""
    agent = kind in OF_AGENTS
    content = {
        "kind": kind,
        "at": time(minutes),
        "component": "agent" if agent else "webhook",
        **fields,
    }
    content["id"] = identity(repr(content))
    decoded: AnyRecord = parse_record(msgspec.json.encode(content))
    who = "agent" if agent else "webhook"
    return StoredRecord(record=decoded, sender=f"service account vgpu-{who}, by its token")


def device(
    gpu: str = "GPU-gpu-a-0", *, profile: str = "3g.20gb", memory: int = 19968
) -> DevicePart:
    """Build a grant; without a profile it is a share."""
    mode = "mig" if profile else "hami-core"
    start = 4 if profile else None
    return DevicePart(gpu=gpu, mode=mode, memory_mib=memory, profile=profile, start=start)


def row(pod: str, digest: str, state: PodOutcome, **fields: object) -> DecisionRow:
    """Build a decision about a pod of team-a that was let in 40 minutes ago."""
    defaults: dict[str, Any] = {
        "first": time(40),
        "last": time(40),
        "verdict": "rewritten",
        "namespace": "team-a",
        "owner": OwnerPart(kind="ReplicaSet", name="train-7f9c6d", uid="rs-1"),
        "user": "system:serviceaccount:kube-system:replicaset-controller",
        "requester": "amy@example.org",
        "requester_source": "workload",
        "vocabulary": "volcano",
        "mode": "mig",
        "mode_source": "best",
        "asked": (AskedPart(name="main", count=1, memory_mib=18000, cores_percent=40),),
        "pod_uid": pod,
    }
    return DecisionRow(pod=pod, digest=digest, state=state, **(defaults | fields))


def typical_rows() -> Sequence[DecisionRow]:
    """Build one decision in each state, of two namespaces."""
    share = GivenPart(name="main", devices=(device("GPU-gpu-b-0", profile="", memory=8000),))
    return (
        row(
            "train-0",
            "k7q2m4x7tb",
            PodOutcome.RUNNING,
            given=(GivenPart(name="main", devices=(device(),)),),
            node="gpu-a",
            bound_at=time(39.9),
            started_at=time(39),
            violations=1,
        ),
        row(
            "big-",
            "q4z7m2c6vd",
            PodOutcome.REFUSED,
            pod_uid="",
            verdict="refused",
            reason="GpuMemoryShort",
            text=REFUSAL,
            times=14,
            first=time(50),
            last=time(9),
            mode="",
            mode_source="",
            owner=OwnerPart(kind="ReplicaSet", name="big-5d7f6b", uid="rs-2"),
            asked=(AskedPart(name="main", count=1, memory_mib=90000),),
        ),
        row(
            "tune-9",
            "w3w3w3w3w3",
            PodOutcome.WAITING,
            requester="",
            requester_source="unknown",
            last=time(22),
            first=time(22),
            waiting_reason="GpuMemoryShort",
            waiting_since=time(21.9),
            asked=(AskedPart(name="main", count=1, memory_mib=15000),),
            mode="hami-core",
            mode_source="named",
        ),
        row(
            "eval-3",
            "e5e5e5e5e5",
            PodOutcome.OVER,
            namespace="team-b",
            requester="bob@example.org",
            requester_source="direct",
            owner=None,
            user="bob@example.org",
            given=(share,),
            node="gpu-b",
            mode="hami-core",
            mode_source="named",
            bound_at=time(119),
            started_at=time(118),
            over_at=time(60),
            first=time(120),
            last=time(120),
        ),
        row(
            "web-1",
            "",
            PodOutcome.ADMITTED,
            verdict="untouched",
            asked=(),
            mode="",
            mode_source="",
            vocabulary="",
            owner=None,
            requester_source="direct",
        ),
    )


REFUSAL: Final = (
    'container "main": asks for 90000 MiB on one GPU; the largest has 40192; ask for at most 40192'
)


def typical_records() -> list[StoredRecord]:
    """Build the life of a pod from its Deployment to a violation, and what went on beside it."""
    pod = {"namespace": "team-a", "pod": "train-0", "pod_uid": "train-0", "digest": "k7q2m4x7tb"}
    share = {"gpu": "GPU-gpu-a-0", "mode": "mig", "memory_mib": 19968, "profile": "3g.20gb"}
    given = [{"name": "main", "devices": [share | {"start": 4}]}]
    asked = [{"name": "main", "count": 1, "stage": "app", "memory_mib": 18000, "cores_percent": 40}]
    admission = {
        "step": "mutate",
        "outcome": "rewritten",
        "user": "system:serviceaccount:kube-system:replicaset-controller",
        "mode": "mig",
        "mode_source": "best",
        "costs_per_mille": {"mig": 500, "hami-core": 449},
        "rule": RULE,
        "containers": asked,
        "changes": _changes(),
        "snapshot": "sha256:beef",
        "snapshot_age_seconds": 0.4,
        "settings": SETTINGS,
        "duration_seconds": 0.0031,
        "version": "0.1.0",
        "vocabulary": "volcano",
    }
    return [
        record(
            "workload",
            40.2,
            namespace="team-a",
            operation="CREATE",
            object={"kind": "Deployment", "name": "train"},
            user="amy@example.org",
        ),
        record("admission", 40, **pod, **admission),
        record("waiting", 39.95, **pod, state="begun", reason="GpuMemoryShort", text="2 nodes"),
        record("waiting", 39.92, **pod, state="over", seconds=2.0),
        record("bind", 39.9, **pod, node="gpu-a", outcome="promised", containers=given),
        record("start-refused", 39.8, **pod, node="gpu-a", container="main", text="recut first"),
        record(
            "reconfigured", 39.5, node="gpu-a", gpu="GPU-gpu-a-0", done=True, text="made 3g.20gb"
        ),
        record(
            "allocated",
            39.4,
            **pod,
            node="gpu-a",
            container="main",
            devices=[share | {"start": 4, "instance": "MIG-5c1e"}],
            waited_seconds=24.5,
        ),
        record("started", 39, **pod, node="gpu-a", container="main"),
        record(
            "violation",
            20,
            **pod,
            node="gpu-a",
            container="main",
            violation="memory",
            text="holds 20100 MiB of 19968",
        ),
        record("health", 15, node="gpu-a", gpu="GPU-gpu-a-2", healthy=False, text="XID 79"),
        record(
            "settings",
            2000,
            configmap="vgpu-admission-system/vgpu-settings",
            content_digest="sha256:0a1b",
            text="prefer: density\nlogLevel: info\n",
            author="kubectl-edit",
        ),
        record(
            "settings",
            1000,
            configmap="vgpu-admission-system/vgpu-settings",
            content_digest=SETTINGS,
            text="logLevel: info\n",
            author="flux",
        ),
        record(
            "admission",
            9,
            namespace="team-a",
            pod="big-",
            digest="q4z7m2c6vd",
            step="mutate",
            outcome="refused",
            reason="GpuMemoryShort",
            findings=[
                {
                    "reason": "GpuMemoryShort",
                    "text": REFUSAL,
                    "field": "spec.containers[0].resources.limits[volcano.sh/vgpu-memory]",
                }
            ],
            containers=[{"name": "main", "count": 1, "memory_mib": 90000}],
        ),
        record(
            "admission",
            120,
            namespace="team-b",
            pod="eval-3",
            pod_uid="eval-3",
            digest="e5e5e5e5e5",
            step="mutate",
            outcome="rewritten",
            user="bob@example.org",
            mode="hami-core",
            mode_source="named",
        ),
        record(
            "waiting",
            21.9,
            namespace="team-a",
            pod="tune-9",
            pod_uid="tune-9",
            digest="w3w3w3w3w3",
            state="begun",
            reason="GpuMemoryShort",
            text="short by 10640 MiB on the closest of 2 GPUs; try at most 4360 MiB",
        ),
        record("certificate", 900, text="serving certificate renewed", not_after=time(-9000)),
    ]


def _changes() -> list[dict[str, Any]]:
    limits = "/spec/containers/0/resources/limits"
    return [
        {"op": "remove", "path": f"{limits}/volcano.sh~1vgpu-cores"},
        {"op": "add", "path": "/metadata/annotations/volcano.sh~1vgpu-mode", "value": "mig"},
        {"op": "add", "path": "/spec/containers/0/env/0", "value": {"name": "A", "value": "1"}},
        {"op": "replace", "path": "/spec/volumes"},
    ]


def typical_usage() -> tuple[UsageRow, ...]:
    return (
        UsageRow(
            namespace="team-a",
            requester="amy@example.org",
            admitted=3,
            refused=1,
            running=1,
            promised_mib=19968,
            mib_hours=13312.0,
            core_hours=0.3,
        ),
        UsageRow(namespace="team-a", admitted=1, running=0, mib_hours=0.0),
        UsageRow(namespace="team-b", requester="bob@example.org", admitted=1, mib_hours=7866.7),
    )


# A name that is as long as one may be, and text that would be HTML, SQL, or turned round.
LONGEST_NAME: Final = "-".join(["x" * 62] * 4)[:253]
HOSTILE: Final = (
    '<script>alert(1)</script>"><img src=x onerror=alert(2)>',
    "' OR 1=1; DROP TABLE records; --",
    "\u202egnp.exe\u2066 \u05d0\u05d1\u05d2 \x1b[2J\x00",
    "{{ 7*7 }}{% raw %}",
    "javascript:alert(3)//" + "y" * 400,
    LONGEST_NAME,
)


def hostile_rows() -> Sequence[DecisionRow]:
    """Build decisions with the worst in every field that is text."""
    return tuple(
        replace(
            row(text, f"hostile{number}", state),
            verdict=text,
            reason=text,
            text=text,
            namespace=text,
            owner=OwnerPart(kind=text, name=text, uid=text),
            user=text,
            requester=text,
            requester_source=text,
            vocabulary=text,
            mode=text,
            mode_source=text,
            node=text,
            waiting_reason=text,
            pod_uid=f"uid-{number}",
            first=text,
            bound_at=text,
            started_at=text,
            asked=(AskedPart(name=text, count=10**12, stage=text, memory_mib=10**15),),
            given=(GivenPart(name=text, devices=(replace_gpu(text),)),),
        )
        for number, (text, state) in enumerate(zip(HOSTILE, PodOutcome, strict=True))
    )


def replace_gpu(text: str) -> DevicePart:
    return DevicePart(gpu=text, mode=text, memory_mib=10**15, profile=text, instance=text)


def hostile_records() -> list[StoredRecord]:
    """Build a record of each kind with the worst in every field that is text."""
    return [
        StoredRecord(record=_filled(kind, text, f"uid-{number}"), sender=text)
        for number, text in enumerate(HOSTILE)
        for kind in KINDS
    ]


KINDS: Final = get_args(AnyRecord)


def _filled(kind: type[AnyRecord], text: str, uid: str) -> AnyRecord:
    """Build a record of pod *uid* whose other fields all have *text* for their text."""
    values = {
        field.name: _value(field.type, text)
        for field in msgspec.structs.fields(kind)
        if field.name not in ("id", "at", "schema", "pod_uid")
    }
    made: AnyRecord = kind(id=identity(f"{kind} {text}"), at=time(10), pod_uid=uid, **values)
    return made


def _value(wanted: Any, text: str) -> Any:  # noqa: ANN401 -- of any type
    """Return a value of the type *wanted* that is as bad as it may be."""
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is tuple:
        inner = arguments[:1] if arguments[-1] is Ellipsis else arguments
        return tuple(_value(one, text) for one in inner)
    if origin is dict:
        return {text: _value(arguments[1], text)}
    if origin is not None:  # a union: of the first that is no None
        return _value(next(one for one in arguments if one is not type(None)), text)
    if isinstance(wanted, type) and issubclass(wanted, StrEnum):
        return next(iter(wanted))
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        fields = msgspec.structs.fields(wanted)
        return wanted(**{field.name: _value(field.type, text) for field in fields})
    return {str: text, int: 10**15, float: 1e15, bool: True}.get(wanted, text)
