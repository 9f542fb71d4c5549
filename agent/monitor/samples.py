"""Samples: measured use and promised amounts, under the names that the agent exports.

An unknown value has no sample: a 0 would mean that it was measured.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from agent.driver.driver import Device, Instance, Usage
from agent.monitor.drift import REPORTED_KINDS, HardwareDrift
from agent.monitor.metric_names import (
    CONTAINER_CORES,
    CONTAINER_USED,
    CORES_PROMISED,
    CORES_USED,
    DRIFT,
    FAULTS,
    FOREIGN,
    HELD_BACK,
    HOST,
    INFO,
    INSTANCE,
    INSTANCES,
    LAST_KERNEL,
    LIMIT,
    MEMORY,
    MPS_CLIENTS,
    OLD_CORES,
    OLD_HOST_CORES,
    OLD_HOST_MEMORY,
    OLD_LAST_KERNEL,
    OLD_LIMIT,
    OLD_MEMORY,
    OLD_USED,
    PROMISED,
    STUCK,
    UNHEALTHY,
    USED,
    VIOLATION,
    MetricFamily,
)
from agent.monitor.violation import Violation
from agent.share import Share
from allocator.model.allocation import ContainerGrants, Grant
from allocator.model.request import Mode
from allocator.model.units import WHOLE_GPU, MiB
from allocator.model.usage import peak_grants

_MIB: Final = 1024 * 1024
_VOLCANO_ZONE: Final = "vGPU"  # a constant label of Volcano's plugin


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One value; its labels are in the order of the family's label names."""

    family: MetricFamily
    labels: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredUse:
    """What one container uses of one GPU; ``None`` means unknown."""

    memory: int | None = None  # bytes; the library's count, or the driver's if there is no library
    host: int | None = None  # bytes; always the driver's count
    cores: int | None = None  # percent of the GPU
    last_kernel: int | None = None  # Unix seconds


ShareKey = tuple[str, str, str]  # a pod's uid, a container's name, a GPU's uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSnapshot:
    """All that is known at one moment. Mappings are by GPU where nothing else is said."""

    node: str
    now: float  # Unix seconds
    devices: tuple[Device, ...]
    shares: tuple[Share, ...]
    instances: tuple[Instance, ...]
    usage: Mapping[str, Usage]
    foreign: Mapping[str, MiB] | None  # held by processes without an entry; None: unknown
    reached: Mapping[str, frozenset[str]]  # GPUs and instances that pods without share use, by uid
    unhealthy: Mapping[str, str]  # why the GPU accepts no new pods
    stuck: Mapping[str, int]  # MIG instances whose creation or removal keeps failing
    measured: Mapping[ShareKey, MeasuredUse]  # by share
    violations: tuple[Violation, ...]
    drifts: tuple[HardwareDrift, ...]
    held_back: frozenset[tuple[str, str]]  # pod uid and container; their kernels wait
    faults: int  # implausible values in regions, and unreadable regions
    # connected clients of each GPU in mode mps
    mps_clients: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


def samples(snapshot: MonitorSnapshot, *, old: bool) -> Iterator[MetricSample]:
    """Yield all samples, with *old* those under Volcano's names too; no labels occur twice."""
    names = _device_names(snapshot.devices)
    for device in snapshot.devices:
        yield from _device_samples(snapshot, device, name=names[device.uuid])
        if old:
            yield from _old_device_samples(snapshot, device)
    for gpu_share in _gpu_shares(snapshot.shares):
        yield from _container_samples(
            snapshot, gpu_share, device=names.get(gpu_share.gpu, gpu_share.gpu)
        )
        if old:
            yield from _old_container_samples(snapshot, gpu_share)
    yield from _node_samples(snapshot, names)


def _device_names(devices: Iterable[Device]) -> dict[str, str]:
    """Return the name of each GPU: its index, or its UUID if another GPU has that index.

    The driver renumbers when a GPU is lost, while the agent still reports the lost one.
    """
    names: dict[str, str] = {}
    for device in devices:
        index = str(device.index)
        names[device.uuid] = device.uuid if index in names.values() else index
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class _GpuShare:
    """What one container was promised of one GPU."""

    share: Share
    position: int  # of the GPU among those that the container sees
    gpu: str
    memory: int  # bytes

    @property
    def container_labels(self) -> tuple[str, str, str]:
        """Return namespace, pod and container."""
        owner = self.share.owner
        return owner.namespace, owner.pod, owner.container

    @property
    def key(self) -> ShareKey:
        """Return the key of its measured use."""
        return self.share.owner.uid, self.share.owner.container, self.gpu


def _gpu_shares(shares: Iterable[Share]) -> Iterator[_GpuShare]:
    """Yield each container's GPUs; of pods with the same name only the newest counts.

    Its predecessor of the same name may still be terminating.
    """
    latest = {(s.owner.namespace, s.owner.pod, s.owner.container): s for s in shares}
    for share in latest.values():
        memory: dict[str, int] = {}
        for grant in share.grants:
            memory[grant.gpu] = memory.get(grant.gpu, 0) + grant.memory * _MIB
        for position, (gpu, amount) in enumerate(memory.items()):
            yield _GpuShare(share=share, position=position, gpu=gpu, memory=amount)


def _held_grants(shares: Iterable[Share], gpu: str) -> list[Grant]:
    """Return what pods hold of a GPU at their peak, as the ledger counts it."""
    pods: dict[str, list[ContainerGrants]] = {}
    for share in shares:
        grants = tuple(grant for grant in share.grants if grant.gpu == gpu)
        container_grants = ContainerGrants(
            name=share.owner.container, grants=grants, stage=share.stage
        )
        pods.setdefault(share.owner.uid, []).append(container_grants)
    return [grant for containers in pods.values() for grant in peak_grants(containers)]


def _device_samples(
    snapshot: MonitorSnapshot, device: Device, *, name: str
) -> Iterator[MetricSample]:
    gpu_labels = snapshot.node, name
    in_mig = device.mig is not None and device.mig.current
    in_mps = device.uuid in snapshot.mps_clients
    mode = Mode.MIG if in_mig else Mode.MPS if in_mps else Mode.HAMI_CORE
    promised = _held_grants(snapshot.shares, device.uuid)
    yield MetricSample(INFO, (*gpu_labels, device.model, mode, device.uuid), 1)
    yield MetricSample(MEMORY, gpu_labels, device.memory * _MIB)
    yield MetricSample(PROMISED, gpu_labels, sum(grant.memory for grant in promised) * _MIB)
    yield MetricSample(
        CORES_PROMISED, gpu_labels, sum(grant.cores for grant in promised) / WHOLE_GPU
    )
    usage = snapshot.usage.get(device.uuid)
    if usage is not None:
        yield MetricSample(USED, gpu_labels, usage.memory * _MIB)
        if usage.utilization is not None:
            yield MetricSample(CORES_USED, gpu_labels, usage.utilization / 100)
    if snapshot.foreign is not None and device.uuid in snapshot.foreign:
        yield MetricSample(FOREIGN, gpu_labels, snapshot.foreign[device.uuid] * _MIB)
    if device.uuid in snapshot.unhealthy:
        # Text after a colon may hold changing numbers, and each would begin a series.
        reason = snapshot.unhealthy[device.uuid].partition(":")[0]
        yield MetricSample(UNHEALTHY, (*gpu_labels, reason), 1)
    if in_mps:
        yield MetricSample(MPS_CLIENTS, gpu_labels, snapshot.mps_clients[device.uuid])
    if in_mig:
        yield MetricSample(STUCK, gpu_labels, snapshot.stuck.get(device.uuid, 0))
        yield from _instance_samples(snapshot, device, gpu_labels=gpu_labels)


def _instance_samples(
    snapshot: MonitorSnapshot, device: Device, *, gpu_labels: tuple[str, str]
) -> Iterator[MetricSample]:
    """Yield the MIG instances of a GPU; one without compute is unfinished."""
    names = {p.id: p.name for p in device.board.profiles} if device.board is not None else {}
    owners = {
        (grant.placed.profile.id, grant.placed.start): share.owner
        for share in snapshot.shares
        for grant in share.grants
        if grant.gpu == device.uuid and grant.placed is not None
    }
    counts: Counter[tuple[str, str]] = Counter()
    for instance in snapshot.instances:
        if instance.gpu == device.uuid:
            profile = names.get(instance.profile, str(instance.profile))
            owner = owners.get((instance.profile, instance.start))
            state = "unfinished" if instance.uuid is None else "busy" if owner else "idle"
            counts[profile, state] += 1
            if instance.uuid is not None:
                owner_labels = (
                    (owner.namespace, owner.pod, owner.container) if owner else ("", "", "")
                )
                instance_labels = instance.uuid, profile, str(instance.start)
                yield MetricSample(INSTANCE, (*gpu_labels, *instance_labels, *owner_labels), 1)
    for (profile, state), number in sorted(counts.items()):
        yield MetricSample(INSTANCES, (*gpu_labels, profile, state), number)


def _container_samples(
    snapshot: MonitorSnapshot, gpu_share: _GpuShare, *, device: str
) -> Iterator[MetricSample]:
    labels = (*gpu_share.container_labels, device)
    yield MetricSample(LIMIT, labels, gpu_share.memory)
    measured = snapshot.measured.get(gpu_share.key, MeasuredUse())
    if measured.memory is not None:
        yield MetricSample(CONTAINER_USED, labels, measured.memory)
    if measured.host is not None:
        yield MetricSample(HOST, labels, measured.host)
    if measured.cores is not None:
        yield MetricSample(CONTAINER_CORES, labels, measured.cores / 100)
    if measured.last_kernel is not None:
        yield MetricSample(LAST_KERNEL, labels, measured.last_kernel)
    if gpu_share.key[:2] in snapshot.held_back:
        yield MetricSample(HELD_BACK, labels, 1)


def _node_samples(snapshot: MonitorSnapshot, names: Mapping[str, str]) -> Iterator[MetricSample]:
    """Yield violations, drift and faults of this node; pods with the same name share samples."""
    violation_labels = {
        (v.pod.namespace, v.pod.name, v.container, names.get(v.gpu, v.gpu), v.kind)
        for v in snapshot.violations
    }
    for labels in sorted(violation_labels):
        yield MetricSample(VIOLATION, labels, 1)
    drifts = Counter(drift.kind for drift in snapshot.drifts)
    for kind in REPORTED_KINDS:
        yield MetricSample(DRIFT, (snapshot.node, kind), drifts[kind])
    yield MetricSample(FAULTS, (snapshot.node,), snapshot.faults)


def _old_device_samples(snapshot: MonitorSnapshot, device: Device) -> Iterator[MetricSample]:
    usage = snapshot.usage.get(device.uuid)
    labels = _VOLCANO_ZONE, str(device.index), device.uuid
    if usage is not None:
        yield MetricSample(OLD_HOST_MEMORY, labels, usage.memory * _MIB)
        if usage.utilization is not None:
            yield MetricSample(OLD_HOST_CORES, labels, usage.utilization)


def _old_container_samples(
    snapshot: MonitorSnapshot, gpu_share: _GpuShare
) -> Iterator[MetricSample]:
    labels = (_VOLCANO_ZONE, *gpu_share.container_labels, str(gpu_share.position), gpu_share.gpu)
    yield MetricSample(OLD_LIMIT, labels, gpu_share.memory)
    measured = snapshot.measured.get(gpu_share.key, MeasuredUse())
    if measured.memory is not None:
        yield MetricSample(OLD_USED, labels, measured.memory)
        yield MetricSample(OLD_MEMORY, labels, measured.memory)
    if measured.cores is not None:
        yield MetricSample(OLD_CORES, labels, measured.cores)
    if measured.last_kernel is not None:
        yield MetricSample(OLD_LAST_KERNEL, labels, max(0.0, snapshot.now - measured.last_kernel))
