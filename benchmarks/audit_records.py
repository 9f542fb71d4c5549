"""Records of a busy cluster, repeatable: pods of teams that are admitted, bound, run and end."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from allocator.audit.record import (
    AdmissionRecord,
    AdmissionVerdict,
    AllocatedRecord,
    AnyRecord,
    AskedPart,
    BindRecord,
    BindVerdict,
    ChangePart,
    Component,
    DevicePart,
    FindingPart,
    GivenPart,
    HealthRecord,
    OwnerPart,
    ReleasedRecord,
    StartedRecord,
    ViolationRecord,
    WaitingRecord,
    WorkloadRecord,
)
from console.records.rows import StoredRecord
from console.records.times import rfc3339

NAMESPACES: Final = 120
USERS: Final = 400
GPUS_PER_NODE: Final = 8
HOUR: Final = 3_600_000  # milliseconds
REASONS: Final = (
    "GpuMemoryShort", "GpuCoresShort", "ConflictingRequest", "InvalidRequest", "ModeUnavailable",
    "ProfileUnknown", "GpuCountShort", "ReservedVariable",
)  # fmt: skip
_MODES: Final = ("hami-core", "hami-core", "mig")
_KINDS: Final = ("Job", "Job", "StatefulSet", "ReplicaSet")
_BASE32: Final = "abcdefghijklmnopqrstuvwxyz234567"
_GROUPS: Final = (
    "system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated",
)  # fmt: skip
_REFUSED: Final = 0.15  # of all decisions
_OVER: Final = 0.97  # of pods
_SIBLINGS: Final = 0.5  # of pods share their workload with the one before
_WAITED: Final = 0.1
_VIOLATED: Final = 0.01


@dataclass(slots=True)
class _Pod:
    """What all records of one pod share."""

    namespace: str
    name: str
    prefix: str
    uid: str
    digest: str
    owner: OwnerPart
    person: str
    mode: str
    memory: int
    cores: int
    node: str
    gpu: str


@dataclass(slots=True)
class RecordMaker:
    """Makes the records of decisions from *start* on, *step* milliseconds apart."""

    seed: int
    start: int
    step: float
    nodes: int = 5000
    _random: random.Random = field(init=False)
    _serial: int = field(init=False, default=0)
    _last: _Pod | None = field(init=False, default=None)  # whose workload has more pods

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def decisions(self, count: int) -> Iterator[list[StoredRecord]]:
        """Yield the records of one decision after the other."""
        for number in range(count):
            at = self.start + int(number * self.step)
            refused = self._random.random() < _REFUSED
            records = self._refusals(at) if refused else self._life(at)
            yield [
                StoredRecord(record=record, sender=_sender(record.component, record.node))
                for record in records
            ]

    def health(self, at: int) -> Iterator[StoredRecord]:
        """Yield one record of each GPU of each node; one in a thousand is ill."""
        for node in range(self.nodes):
            for gpu in range(GPUS_PER_NODE):
                ill = self._random.random() < 0.001  # noqa: PLR2004 -- one in a thousand
                yield StoredRecord(
                    record=HealthRecord(
                        id=self._id(at), at=rfc3339(at), component=Component.AGENT,
                        node=f"gpu-{node:04}", gpu=f"GPU-{node:08x}-{gpu:04x}", healthy=not ill,
                        text="XID 79" if ill else "",
                    ),
                    sender=f"node gpu-{node:04}",
                )  # fmt: skip

    def _id(self, at: int) -> str:
        """Return a UUID of version 7."""
        self._serial += 1
        return f"{at:012x}7{self._random.getrandbits(12):03x}{self._random.getrandbits(64):016x}"

    def _uid(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))

    def _digest(self) -> str:
        return "".join(self._random.choices(_BASE32, k=10))

    def _pod(self) -> _Pod:
        draw = self._random
        namespace = f"team-{min(int(draw.expovariate(1 / 25)), NAMESPACES - 1):03}"
        prefix = f"train-{draw.randrange(1000)}-{draw.randrange(9)}-"
        node = draw.randrange(self.nodes)
        return _Pod(
            namespace=namespace,
            name=f"{prefix}{''.join(draw.choices(_BASE32, k=5))}",
            prefix=prefix,
            uid=self._uid(),
            digest=self._digest(),
            owner=OwnerPart(kind=draw.choice(_KINDS), name=prefix[:-1], uid=self._uid()),
            person=f"user-{draw.randrange(USERS)}@example.com",
            mode=draw.choice(_MODES),
            memory=draw.choice((2048, 4096, 4864, 8192, 10240, 16384)),
            cores=draw.choice((10, 14, 25, 28, 50)),
            node=f"gpu-{node:04}",
            gpu=f"GPU-{node:08x}-{draw.randrange(GPUS_PER_NODE):04x}-4000-8000-{draw.getrandbits(48):012x}",
        )  # fmt: skip

    def _common(self, pod: _Pod, at: int, *, uid: bool = True) -> dict[str, Any]:
        return {
            "id": self._id(at), "at": rfc3339(at), "component": Component.WEBHOOK,
            "instance": f"vgpu-webhook-5d9c7b9f6d-{'x7kq2' if at % 2 else 'p4mzl'}",
            "namespace": pod.namespace, "pod": pod.name if uid else "",
            "pod_uid": pod.uid if uid else "", "digest": pod.digest, "version": "0.1.0",
        }  # fmt: skip

    def _agent(self, pod: _Pod, at: int) -> dict[str, Any]:
        common = self._common(pod, at)
        return common | {
            "component": Component.AGENT, "instance": f"vgpu-agent-{pod.node[-4:]}q",
            "node": pod.node,
        }  # fmt: skip

    def _admission(self, pod: _Pod, at: int, step: str) -> AdmissionRecord:
        known: dict[str, Any] = {"mode": pod.mode}
        if step == "mutate":
            asked = AskedPart(name="main", count=1, memory_mib=pod.memory, cores_percent=pod.cores)
            known |= {
                "vocabulary": "volcano",
                "mode_source": "best",
                "costs_per_mille": {"hami-core": pod.cores * 10, "mig": 286},
                "rule": "it costs at most 100 more and isolates in hardware",
                "containers": (asked,),
                "priority": "low",
                "changes": _changes(pod),
                "asked": _request(pod),
                "snapshot": "b52a9f3c8d7e6f10",
                "snapshot_age_seconds": round(self._random.random(), 3),
                "settings": "93af27c1d4e8b605",
            }
        return AdmissionRecord(
            **self._common(pod, at, uid=step != "mutate"),
            **known,
            caller=("path",),
            step=step,
            outcome=AdmissionVerdict.REWRITTEN,
            review=self._uid(),
            operation="CREATE",
            generate_name=pod.prefix,
            owners=(pod.owner,),
            user="system:serviceaccount:kube-system:job-controller",
            groups=_GROUPS,
            duration_seconds=round(self._random.random() / 1000, 6),
        )

    def _life(self, at: int) -> Iterator[AnyRecord]:
        draw, before = self._random, self._last
        if before is not None and draw.random() < _SIBLINGS:
            name = f"{before.prefix}{''.join(draw.choices(_BASE32, k=5))}"
            pod = replace(before, name=name, uid=self._uid())
        else:
            pod = self._pod()
            yield WorkloadRecord(
                **self._common(pod, at - 500, uid=False) | {"digest": ""},
                operation="CREATE", object=pod.owner, template=self._digest(), user=pod.person,
                groups=("system:authenticated",),
            )  # fmt: skip
        self._last = pod
        yield self._admission(pod, at, "mutate")
        yield self._admission(pod, at + 3, "validate")
        bound = at + draw.randrange(50, 3000)
        if draw.random() < _WAITED:
            yield WaitingRecord(
                **self._common(pod, bound), state="begun", reason="GpuMemoryShort",
                text=f"no GPU has {pod.memory} MiB free",
            )  # fmt: skip
            waited = draw.randrange(HOUR)
            bound += waited
            yield WaitingRecord(**self._common(pod, bound), state="over", seconds=waited / 1000)
        given = DevicePart(
            gpu=pod.gpu, mode=pod.mode, memory_mib=pod.memory, cores_percent=pod.cores,
            profile="1g.5gb" if pod.mode == "mig" else "", start=0 if pod.mode == "mig" else None,
        )  # fmt: skip
        containers = (GivenPart(name="main", devices=(given,)),)
        yield BindRecord(
            **self._common(pod, bound) | {"node": pod.node},
            caller=("path",), outcome=BindVerdict.PROMISED, review=self._uid(),
            user="system:kube-scheduler", groups=("system:authenticated",), mode=pod.mode,
            mode_source="best", containers=containers, ledger=str(draw.randrange(10**7)),
            snapshot=f"{pod.node}-boards", taken=((0, pod.memory, pod.cores, -1, -1),),
            settings="93af27c1d4e8b605", duration_seconds=round(draw.random() / 100, 6),
        )  # fmt: skip
        yield AllocatedRecord(
            **self._agent(pod, bound + 900), container="main", devices=(given,),
            waited_seconds=round(draw.random(), 3),
        )  # fmt: skip
        yield StartedRecord(**self._agent(pod, bound + 2000), container="main", restarts=0)
        if draw.random() < _VIOLATED:
            yield ViolationRecord(
                **self._agent(pod, bound + 9000), violation="memory", container="main",
                text=f"uses {pod.memory + 300} MiB of {pod.memory} MiB",
            )  # fmt: skip
        if draw.random() < _OVER:
            yield ReleasedRecord(
                **self._common(pod, bound + draw.randrange(60_000, 6 * HOUR)) | {"node": pod.node},
                why="over", since=rfc3339(bound),
            )  # fmt: skip

    def _refusals(self, at: int) -> Iterator[AnyRecord]:
        pod, draw = self._pod(), self._random
        reason = draw.choice(REASONS)
        text = f'container "main": asks for {pod.memory} MiB on one GPU; the largest has 1024'
        for again in range(draw.choice((1, 1, 2, 3, 6))):
            yield AdmissionRecord(
                **self._common(pod, at + again * 60_000, uid=False), caller=("path",),
                step="mutate", outcome=AdmissionVerdict.REFUSED, review=self._uid(),
                operation="CREATE", generate_name=pod.prefix, owners=(pod.owner,),
                user="system:serviceaccount:kube-system:job-controller", groups=_GROUPS,
                reason=reason, vocabulary="volcano",
                findings=(FindingPart(reason=reason, text=text, field="spec.containers[0]"),),
                asked=_request(pod), snapshot="b52a9f3c8d7e6f10", settings="93af27c1d4e8b605",
                duration_seconds=round(draw.random() / 1000, 6),
            )  # fmt: skip


def _sender(component: Component, node: str) -> str:
    return f"node {node}" if component is Component.AGENT else "service account vgpu-webhook"


def _changes(pod: _Pod) -> tuple[ChangePart, ...]:
    """Return what admission changes of a pod, as it does it."""
    notes, main = "/metadata/annotations/vgpu-admission.io~1", "/spec/containers/0"
    visible = {"fieldRef": {"fieldPath": "metadata.annotations['vgpu-admission.io/c0.visible']"}}
    memory, cores = f"{pod.memory}m", str(pod.cores)
    env: list[dict[str, Any]] = [
        {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": visible},
        {"name": "NVIDIA_MIG_CONFIG_DEVICES", "value": ""},
        {"name": "NVIDIA_MIG_MONITOR_DEVICES", "value": ""},
        {"name": "VGPU_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"},
        {"name": "CUDA_DEVICE_MEMORY_LIMIT", "value": memory},
        {"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "value": memory},
        {"name": "CUDA_DEVICE_SM_LIMIT", "value": cores},
        {"name": "CUDA_DEVICE_SM_LIMIT_0", "value": cores},
        {"name": "CUDA_DEVICE_MEMORY_SHARED_CACHE", "value": "/tmp/vgpu/vgpu.cache"},
        {"name": "CUDA_TASK_PRIORITY", "value": "1"},
        {"name": "GPU_CORE_UTILIZATION_POLICY", "value": "default"},
        {"name": "LIBCUDA_LOG_LEVEL", "value": "1"},
        {"name": "LD_PRELOAD", "value": ""},
    ]
    mounts = [
        {"name": "vgpu-library", "mountPath": "/usr/local/vgpu/libvgpu.so",
         "subPath": "libvgpu.so", "readOnly": True},
        {"name": "vgpu-regions", "mountPath": "/tmp/vgpu/vgpu.cache",
         "subPathExpr": "$(VGPU_POD_UID)_main/vgpu.cache"},
    ]  # fmt: skip
    volumes = [{"name": "vgpu-library", "hostPath": {"path": "/usr/local/vgpu", "type": ""}}]
    return (
        ChangePart(op="add", path=f"{notes}mode-source", value="best"),
        ChangePart(op="add", path=f"{notes}decision", value=pod.digest),
        ChangePart(op="add", path=f"{notes}asked"),
        ChangePart(op="add", path="/spec/volumes", value=volumes),
        ChangePart(op="add", path=f"{main}/env", value=env),
        ChangePart(op="add", path=f"{main}/volumeMounts", value=mounts),
    )


def _request(pod: _Pod) -> dict[str, Any]:
    return {
        "vocabulary": "volcano",
        "containers": [["main", 0, "app", 1, pod.memory, None, pod.cores]],
    }
