"""Which GPUs the next container of a pod gets, as MetaX's device plugin knows it.

Kubelet does not say for which pod it asks. The plugin serves the pod that holds the lock of the
node. It reads that pod's annotation, one list for each container of the spec, and gives out the
lists that are not empty in their order, which is kubelet's: init containers first.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from allocator.metax.pod_devices import allocated_uuids


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPod:
    """The pod that holds the lock of the node, as the API server has it now."""

    uid: str
    node: str  # empty until it is bound
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NextDevices:
    """The GPUs of one container, by UUID; ``is_last`` says that no further container has any."""

    uuids: tuple[str, ...]
    is_last: bool


class AllocationError(Exception):
    """The container gets nothing, and kubelet fails its pod."""


def next_devices(pod: LockedPod, *, node: str, served: int, count: int) -> NextDevices:
    """Return what *pod* gets next on *node*, *served* of its containers having got theirs.

    *count* is how many GPUs kubelet asks for. Raises AllocationError.
    """
    if pod.node != node:
        where = f"bound to {pod.node}" if pod.node else "not bound"
        raise AllocationError(f"the pod that holds the lock of the node is {where}")
    lists = [uuids for uuids in allocated_uuids(pod.annotations) if uuids]
    if served >= len(lists):
        raise AllocationError(f"the pod was given GPUs for {len(lists)} containers, not for more")
    uuids = lists[served]
    if len(uuids) != count:
        raise AllocationError(f"device number not matched: {count} asked for, {len(uuids)} given")
    return NextDevices(uuids=uuids, is_last=served + 1 == len(lists))
