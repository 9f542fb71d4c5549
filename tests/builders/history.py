"""What a console would answer: decisions of a day, the life of one pod, and usage by person."""

from typing import Any

from allocator.audit.record import AskedPart, DevicePart, GivenPart, OwnerPart
from console.records.query import PodOutcome
from console.records.rows import DecisionRow, UsageRow

TRAIN = DecisionRow(
    digest="k7q2m4x9tb",
    pod_uid="uid-train-0",
    first="2026-11-21T08:52:10.123Z",
    last="2026-11-21T08:52:10.123Z",
    verdict="rewritten",
    namespace="team-nlp",
    pod="train-7f9c6d-x2x4k",
    owner=OwnerPart(kind="ReplicaSet", name="train-7f9c6d", uid="uid-rs"),
    user="system:serviceaccount:kube-system:replicaset-controller",
    requester="amy",
    requester_source="workload",
    vocabulary="volcano",
    mode="mig",
    mode_source="scored",
    asked=(AskedPart(name="main", count=1, memory_mib=18000, cores_percent=40),),
    given=(
        GivenPart(
            name="main",
            devices=(
                DevicePart(
                    gpu="GPU-a01-2", mode="mig", memory_mib=19968, profile="3g.20gb", start=4
                ),
            ),
        ),
    ),
    node="gpu-a01",
    state=PodOutcome.RUNNING,
    bound_at="2026-11-21T08:52:41.000Z",
    started_at="2026-11-21T08:52:44.500Z",
)
REFUSED = DecisionRow(
    digest="p2c8w0r5hd",
    first="2026-11-21T12:00:00.000Z",
    last="2026-11-21T12:25:56.000Z",
    times=14,
    verdict="refused",
    reason="GpuMemoryShort",
    text="container main asks for 90000 MiB on one GPU; the largest has 40960 MiB",
    namespace="team-nlp",
    pod="big-5d8f7b-",
    owner=OwnerPart(kind="ReplicaSet", name="big-5d8f7b"),
    user="system:serviceaccount:kube-system:replicaset-controller",
    asked=(AskedPart(name="main", count=2, memory_mib=90000),),
    state=PodOutcome.REFUSED,
)
WAITING = DecisionRow(
    digest="aaaaabbbbb",
    pod_uid="uid-tune-0",
    first="2026-11-21T12:12:00.000Z",
    last="2026-11-21T12:12:00.000Z",
    verdict="rewritten",
    namespace="team-cv",
    pod="tune-0",
    user="bo",
    requester="bo",
    requester_source="direct",
    mode="hami-core",
    mode_source="pod",
    asked=(AskedPart(name="main", count=1, memory_percent=50, cores_percent=60),),
    state=PodOutcome.WAITING,
    waiting_reason="NodeGpuMemoryShort",
    waiting_since="2026-11-21T12:12:05.000Z",
)
OVER = DecisionRow(
    digest="cccccddddd",
    pod_uid="uid-eval-3",
    first="2026-10-20T12:12:00.000Z",
    last="2026-10-20T12:12:00.000Z",
    verdict="rewritten",
    namespace="team-cv",
    pod="eval-3",
    user="bo",
    requester="bo",
    requester_source="direct",
    mode="hami-core",
    asked=(AskedPart(name="main", count=1, memory_mib=8000, cores_percent=60),),
    given=(
        GivenPart(
            name="main",
            devices=(
                DevicePart(gpu="GPU-b02-0", mode="hami-core", memory_mib=8000, cores_percent=60),
            ),
        ),
    ),
    node="gpu-b02",
    state=PodOutcome.OVER,
    violations=2,
)
DECISIONS = (REFUSED, WAITING, TRAIN, OVER)

USAGE = (
    UsageRow(
        namespace="team-nlp",
        requester="amy",
        admitted=12,
        running=2,
        promised_mib=39936,
        promised_cores_percent=85,
        mib_hours=1234567.0,
        core_hours=321.5,
    ),
    UsageRow(namespace="team-nlp", admitted=0, refused=14),
    UsageRow(
        namespace="team-cv",
        requester="bo",
        admitted=3,
        refused=1,
        running=1,
        promised_mib=8000,
        promised_cores_percent=60,
        mib_hours=8000.0,
        core_hours=0.6,
    ),
)


def record(kind: str, at: str, **more: object) -> dict[str, Any]:
    """Return a record of the pod TRAIN as a program writes it."""
    return {
        "kind": kind,
        "id": f"{kind}-{at}",
        "at": at,
        "component": "webhook",
        "schema": 1,
        "namespace": TRAIN.namespace,
        "pod": TRAIN.pod,
        "pod_uid": TRAIN.pod_uid,
        "digest": TRAIN.digest,
        **more,
    }


GIVEN = [
    {"name": "main", "devices": [{"gpu": "GPU-a01-2", "profile": "3g.20gb", "start": 4}]},
]
LIFE = (
    record(
        "admission",
        "2026-11-21T08:52:10.123Z",
        step="mutate",
        outcome="rewritten",
        mode="mig",
        costs_per_mille={"mig": 41, "hami-core": 250},
        rule="a MIG instance withholds less of the fleet than a share would",
        containers=[{"name": "main", "count": 1, "memory_mib": 18000, "cores_percent": 40}],
    ),
    record(
        "waiting",
        "2026-11-21T08:52:11.500Z",
        state="begun",
        reason="NodeGpuMemoryShort",
        text="no node has 18000 MiB free on one GPU",
    ),
    record("waiting", "2026-11-21T08:52:40.900Z", state="over", seconds=29.4),
    record(
        "bind",
        "2026-11-21T08:52:41.000Z",
        outcome="promised",
        node="gpu-a01",
        containers=GIVEN,
    ),
    record(
        "allocated",
        "2026-11-21T08:52:43.100Z",
        component="agent",
        node="gpu-a01",
        container="main",
        devices=GIVEN[0]["devices"],
        waited_seconds=1.72,
    ),
    record(
        "started",
        "2026-11-21T08:52:44.500Z",
        component="agent",
        node="gpu-a01",
        container="main",
    ),
    record(
        "violation",
        "2026-11-21T11:00:00.000Z",
        component="agent",
        node="gpu-a01",
        container="main",
        violation="memory",
        text="its processes hold 21000 of 19968 MiB",
    ),
)
SETTINGS = {
    "kind": "settings",
    "id": "settings-1",
    "at": "2026-11-21T07:00:00.000Z",
    "component": "webhook",
    "configmap": "vgpu-admission-settings",
    "content_digest": "sha256:1",
    "text": "prefer: mig\n",
    "author": "kubectl-edit",
}
LATER = {  # of a version that is not written yet
    "kind": "teleported",
    "id": "t-1",
    "at": "2026-11-21T07:00:00.000Z",
    "component": "agent",
    "namespace": "team-nlp",
}
REFUSAL = record(
    "admission",
    "2026-11-21T07:30:00.000Z",
    step="mutate",
    outcome="refused",
    reason="GpuMemoryShort",
    findings=[{"reason": "GpuMemoryShort", "text": REFUSED.text}],
)
RECORDS = (*reversed(LIFE), REFUSAL, SETTINGS, LATER)
