"""What a bound pod says to HAMi's device plugin, and to HAMi's scheduler of what it holds."""

from collections.abc import Mapping, Sequence

from allocator.catalog.hami_keys import (
    ALLOCATED_KEY,
    ALLOCATING,
    BIND_TIME_KEY,
    NODE_KEY,
    PHASE_KEY,
    SUCCESS,
    TIME_KEY,
    TO_ALLOCATE_KEY,
)
from allocator.families.family import BoundPod
from allocator.hami.device_list import encode_hami_list
from allocator.model.request import Mode
from allocator.volcano.device_list import ListedDevice


def hami_annotations(bound: BoundPod) -> Mapping[str, str]:
    """Return HAMi's keys for a pod, as its scheduler writes them.

    Where our agent serves the pod, nobody waits for HAMi's plugin. All is written as that leaves
    it, and HAMi's scheduler counts what the pod holds.
    """
    containers = _device_lists(bound)
    seconds = str(int(bound.now.timestamp()))
    return {
        NODE_KEY: bound.assignment.node,
        TIME_KEY: seconds,
        ALLOCATED_KEY: encode_hami_list(containers),
        TO_ALLOCATE_KEY: encode_hami_list([() for _ in containers] if bound.ours else containers),
        BIND_TIME_KEY: seconds,
        PHASE_KEY: SUCCESS if bound.ours else ALLOCATING,
    }


def _device_lists(bound: BoundPod) -> Sequence[Sequence[ListedDevice]]:
    """Return the devices of each container of the spec, init containers first.

    MIG instances are left out. Their GPUs are not registered with HAMi, which would close a GPU
    for everybody if a pod named an instance without a reservation.
    """
    grants = {held.name: held.grants for held in bound.assignment.containers}
    return [
        [
            ListedDevice(grant.gpu, int(grant.memory), int(grant.cores))
            for grant in grants.get(name, ())
            if grant.mode is not Mode.MIG
        ]
        for name in (*bound.init_containers, *bound.containers)
    ]
