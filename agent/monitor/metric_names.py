"""Metric families: the names under which the agent exports what it measures; public API.

Families of Volcano's plugin keep its spelling, labels and units, so that dashboards go on working.
One of them is left out, because its labels held changing figures.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric, a gauge."""

    name: str
    about: str  # its help text
    labels: tuple[str, ...]  # names


_DEVICE: Final = ("node", "device")
_CONTAINER: Final = ("namespace", "pod", "container", "device")
INFO: Final = MetricFamily(
    "vgpu_device_info",
    "Model, mode and UUID of a GPU; always 1.",
    (*_DEVICE, "model", "mode", "uuid"),
)
MEMORY: Final = MetricFamily("vgpu_device_memory_bytes", "Total memory of a GPU.", _DEVICE)
PROMISED: Final = MetricFamily(
    "vgpu_device_memory_promised_bytes", "GPU memory promised to pods in the ledger.", _DEVICE
)
USED: Final = MetricFamily(
    "vgpu_device_memory_used_bytes", "GPU memory in use, as the driver reports it.", _DEVICE
)
FOREIGN: Final = MetricFamily(
    "vgpu_device_foreign_memory_bytes",
    "GPU memory held by processes without an entry in the ledger.",
    _DEVICE,
)
CORES_PROMISED: Final = MetricFamily(
    "vgpu_device_cores_promised_ratio",
    "Fraction of a GPU's compute promised to pods in the ledger.",
    _DEVICE,
)
CORES_USED: Final = MetricFamily(
    "vgpu_device_cores_used_ratio", "Fraction of time the GPU was busy, 0 to 1.", _DEVICE
)
UNHEALTHY: Final = MetricFamily(
    "vgpu_device_unhealthy", "1 while a GPU accepts no new pods.", (*_DEVICE, "reason")
)
INSTANCES: Final = MetricFamily(
    "vgpu_mig_instances", "MIG instances on a GPU.", (*_DEVICE, "profile", "state")
)
INSTANCE: Final = MetricFamily(
    "vgpu_mig_instance_info",
    "A MIG instance and the container it is promised to; always 1.",
    (*_DEVICE, "uuid", "profile", "start", "namespace", "pod", "container"),
)
LIMIT: Final = MetricFamily(
    "vgpu_container_memory_limit_bytes", "GPU memory limit of a container.", _CONTAINER
)
CONTAINER_USED: Final = MetricFamily(
    "vgpu_container_memory_used_bytes",
    "GPU memory of a container that counts against its limit.",
    _CONTAINER,
)
HOST: Final = MetricFamily(
    "vgpu_container_host_memory_bytes",
    "GPU memory of a container as the driver reports it, with contexts and code.",
    _CONTAINER,
)
CONTAINER_CORES: Final = MetricFamily(
    "vgpu_container_cores_used_ratio",
    "Fraction of a GPU's compute that a container uses.",
    _CONTAINER,
)
LAST_KERNEL: Final = MetricFamily(
    "vgpu_container_last_kernel_timestamp_seconds",
    "Unix time of the last kernel launch of a container.",
    _CONTAINER,
)
HELD_BACK: Final = MetricFamily(
    "vgpu_container_held_back",
    "1 while kernel launches of a container wait: for a higher priority, or beyond its promise.",
    _CONTAINER,
)
VIOLATION: Final = MetricFamily(
    "vgpu_container_violation",
    "1 while a container violates its limits.",
    (*_CONTAINER, "kind"),
)
DRIFT: Final = MetricFamily(
    "vgpu_allocation_drift",
    "Differences between the ledger and what the node holds.",
    ("node", "kind"),
)
FAULTS: Final = MetricFamily(
    "vgpu_region_faults", "Implausible values found in shared regions.", ("node",)
)
STUCK: Final = MetricFamily(
    "vgpu_mig_stuck", "MIG instances whose creation or removal keeps failing.", _DEVICE
)
MPS_CLIENTS: Final = MetricFamily(
    "vgpu_mps_clients", "Processes connected to the MPS daemon of a GPU.", _DEVICE
)
OURS: Final = (
    *(INFO, MEMORY, PROMISED, USED, FOREIGN, CORES_PROMISED, CORES_USED, UNHEALTHY, INSTANCES),
    *(INSTANCE, STUCK, LIMIT, CONTAINER_USED, HOST, CONTAINER_CORES, LAST_KERNEL, HELD_BACK),
    *(VIOLATION, DRIFT, FAULTS, MPS_CLIENTS),
)
_OLD_DEVICE: Final = ("zone", "deviceidx", "deviceuuid")
_OLD_CONTAINER: Final = ("zone", "podnamespace", "podname", "ctrname", "vdeviceid", "deviceuuid")
OLD_HOST_MEMORY: Final = MetricFamily("HostGPUMemoryUsage", "GPU device memory usage", _OLD_DEVICE)
OLD_HOST_CORES: Final = MetricFamily("HostCoreUtilization", "GPU core utilization", _OLD_DEVICE)
OLD_USED: Final = MetricFamily(
    "vGPU_device_memory_usage_in_bytes", "vGPU device usage", _OLD_CONTAINER
)
OLD_LIMIT: Final = MetricFamily(
    "vGPU_device_memory_limit_in_bytes", "vGPU device limit", _OLD_CONTAINER
)
OLD_MEMORY: Final = MetricFamily(
    "Device_memory_desc_of_container", "Container device memory description", _OLD_CONTAINER
)
OLD_CORES: Final = MetricFamily(
    "Device_utilization_desc_of_container",
    "Container device utilization description",
    _OLD_CONTAINER,
)
OLD_LAST_KERNEL: Final = MetricFamily(
    "Device_last_kernel_of_container", "Container device last kernel description", _OLD_CONTAINER
)
OLD: Final = (
    *(OLD_HOST_MEMORY, OLD_HOST_CORES, OLD_USED, OLD_LIMIT, OLD_MEMORY, OLD_CORES),
    OLD_LAST_KERNEL,
)
