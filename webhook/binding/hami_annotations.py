"""What a bound pod says to HAMi's device plugin, and to HAMi's scheduler of what it holds."""

from collections.abc import Mapping, Sequence
from datetime import datetime

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
from allocator.hami.device_list import encode_hami_list
from allocator.model.allocation import Assignment
from allocator.model.request import Mode
from allocator.volcano.device_list import ListedDevice
from webhook.review.pod_schema import Pod


def hami_annotations(
    pod: Pod, assignment: Assignment, now: datetime, *, served: bool
) -> Mapping[str, str]:
    """Return HAMi's keys for *pod* with *assignment*, as its scheduler writes them.

    *served* says that our agent serves the pod: nobody waits for HAMi's plugin, so all is written
    as that leaves it, and HAMi's scheduler counts what the pod holds.
    """
    containers = _listed(pod, assignment)
    seconds = str(int(now.timestamp()))
    return {
        NODE_KEY: assignment.node,
        TIME_KEY: seconds,
        ALLOCATED_KEY: encode_hami_list(containers),
        TO_ALLOCATE_KEY: encode_hami_list([() for _ in containers] if served else containers),
        BIND_TIME_KEY: seconds,
        PHASE_KEY: SUCCESS if served else ALLOCATING,
    }


def _listed(pod: Pod, assignment: Assignment) -> Sequence[Sequence[ListedDevice]]:
    """Return the devices of each container of the spec, init containers first.

    MIG instances are left out. Their GPUs are not registered with HAMi, which would close a GPU
    for everybody if a pod named an instance without a reservation.
    """
    grants = {held.name: held.grants for held in assignment.containers}
    containers = (*(pod.spec.init_containers or ()), *pod.spec.containers)
    return [
        [
            ListedDevice(grant.gpu, int(grant.memory), int(grant.cores))
            for grant in grants.get(container.name, ())
            if grant.mode is not Mode.MIG
        ]
        for container in containers
    ]
