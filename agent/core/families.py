"""Families: the names under which the agent exports what it measures; public API.

Those of Volcano's plugin keep its spelling, labels and units, so that dashboards go on working,
but for one that had figures for labels.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Family:
    """One metric, a gauge: what it says, and its label names."""

    name: str
    about: str
    labels: tuple[str, ...]


_DEVICE: Final = ("node", "device")
_CONTAINER: Final = ("namespace", "pod", "container", "device")
INFO: Final = Family("vgpu_device_info", "A GPU.", (*_DEVICE, "model", "mode", "uuid"))
MEMORY: Final = Family("vgpu_device_memory_bytes", "Memory of a GPU.", _DEVICE)
PROMISED: Final = Family(
    "vgpu_device_memory_promised_bytes", "Memory of a GPU that the ledger has promised.", _DEVICE
)
USED: Final = Family(
    "vgpu_device_memory_used_bytes", "Memory of a GPU in use, as the driver says.", _DEVICE
)
FOREIGN: Final = Family(
    "vgpu_device_foreign_memory_bytes", "Memory that processes without a promise hold.", _DEVICE
)
CORES_PROMISED: Final = Family(
    "vgpu_device_cores_promised_ratio", "Share of a GPU's compute that was promised.", _DEVICE
)
CORES_USED: Final = Family(
    "vgpu_device_cores_used_ratio", "Share of time in which a GPU computed.", _DEVICE
)
UNHEALTHY: Final = Family(
    "vgpu_device_unhealthy", "1 while a GPU takes no new work.", (*_DEVICE, "reason")
)
INSTANCES: Final = Family(
    "vgpu_mig_instances", "MIG instances that exist.", (*_DEVICE, "profile", "state")
)
INSTANCE: Final = Family(
    "vgpu_mig_instance_info",
    "A MIG instance and whom it was promised.",
    (*_DEVICE, "uuid", "profile", "start", "namespace", "pod", "container"),
)
LIMIT: Final = Family(
    "vgpu_container_memory_limit_bytes", "GPU memory that a container was promised.", _CONTAINER
)
CONTAINER_USED: Final = Family(
    "vgpu_container_memory_used_bytes", "GPU memory that a container counts as used.", _CONTAINER
)
HOST: Final = Family(
    "vgpu_container_host_memory_bytes",
    "GPU memory that a container uses as the driver sees it, contexts and code included.",
    _CONTAINER,
)
CONTAINER_CORES: Final = Family(
    "vgpu_container_cores_used_ratio", "Share of a GPU's compute that a container uses.", _CONTAINER
)
LAST_KERNEL: Final = Family(
    "vgpu_container_last_kernel_timestamp_seconds",
    "When a container last launched a kernel.",
    _CONTAINER,
)
HELD_BACK: Final = Family(
    "vgpu_container_held_back",
    "1 while kernels of a container wait for those of a higher priority.",
    _CONTAINER,
)
VIOLATION: Final = Family(
    "vgpu_container_violation",
    "1 while a container uses what it was not promised.",
    (*_CONTAINER, "kind"),
)
DRIFT: Final = Family(
    "vgpu_allocation_drift",
    "Differences between what was promised and what the node holds.",
    ("node", "kind"),
)
FAULTS: Final = Family(
    "vgpu_region_faults", "Figures of shared regions that cannot be believed.", ("node",)
)
STUCK: Final = Family(
    "vgpu_mig_stuck", "MIG instances that repeatedly could not be created or destroyed.", _DEVICE
)
OURS: Final = (
    *(INFO, MEMORY, PROMISED, USED, FOREIGN, CORES_PROMISED, CORES_USED, UNHEALTHY, INSTANCES),
    *(INSTANCE, STUCK, LIMIT, CONTAINER_USED, HOST, CONTAINER_CORES, LAST_KERNEL, HELD_BACK),
    *(VIOLATION, DRIFT, FAULTS),
)

_OLD_DEVICE: Final = ("zone", "deviceidx", "deviceuuid")
_OLD_CONTAINER: Final = ("zone", "podnamespace", "podname", "ctrname", "vdeviceid", "deviceuuid")
OLD_HOST_MEMORY: Final = Family("HostGPUMemoryUsage", "GPU device memory usage", _OLD_DEVICE)
OLD_HOST_CORES: Final = Family("HostCoreUtilization", "GPU core utilization", _OLD_DEVICE)
OLD_USED: Final = Family("vGPU_device_memory_usage_in_bytes", "vGPU device usage", _OLD_CONTAINER)
OLD_LIMIT: Final = Family("vGPU_device_memory_limit_in_bytes", "vGPU device limit", _OLD_CONTAINER)
OLD_MEMORY: Final = Family(
    "Device_memory_desc_of_container", "Container device memory description", _OLD_CONTAINER
)
OLD_CORES: Final = Family(
    "Device_utilization_desc_of_container",
    "Container device utilization description",
    _OLD_CONTAINER,
)
OLD_LAST_KERNEL: Final = Family(
    "Device_last_kernel_of_container", "Container device last kernel description", _OLD_CONTAINER
)
OLD: Final = (
    *(OLD_HOST_MEMORY, OLD_HOST_CORES, OLD_USED, OLD_LIMIT, OLD_MEMORY, OLD_CORES),
    OLD_LAST_KERNEL,
)
