"""Assignments in the annotations of pods, for people who may not read the ledgers."""

from collections.abc import Iterator, Mapping

import msgspec

from allocator.catalog.keys import ASSIGNMENT_KEY, SERVED_BY_KEY
from allocator.config.settings import NodeAgent
from allocator.ledger.schema import ContainerWire
from allocator.model.allocation import ContainerGrants, Grant
from allocator.model.request import Mode
from console.cluster.pod import PodView


class DeviceRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One grant of a container."""

    container: str
    gpu: str
    index: int | None  # of the GPU on its node; None where it is not known
    mode: Mode
    memory_mib: int = msgspec.field(name="memoryMiB")
    cores_percent: int
    profile: str | None
    start: int | None

    def __str__(self) -> str:
        if self.profile is not None:
            what = f"{self.profile} at slot {self.start} ({self.memory_mib} MiB)"
        else:
            cores = f" and {self.cores_percent} % of its compute" if self.cores_percent else ""
            what = f"{self.memory_mib} MiB{cores}"
        return f"{self.container}: {self.mode}, {what} on {self.gpu}"


def device_row(
    container_grants: ContainerGrants, grant: Grant, indexes: Mapping[str, int]
) -> DeviceRow:
    """Return one grant of a ledger; *indexes* are those of its node's GPUs by UUID."""
    return DeviceRow(
        container=container_grants.name,
        gpu=grant.gpu,
        index=indexes.get(grant.gpu),
        mode=grant.mode,
        memory_mib=grant.memory,
        cores_percent=grant.cores,
        profile=None if grant.placed is None else grant.placed.profile.name,
        start=None if grant.placed is None else grant.placed.start,
    )


def assigned_devices(pod: PodView) -> tuple[DeviceRow, ...]:
    """Return the grants in the annotation of *pod*; none where it cannot be read."""
    text = pod.annotations.get(ASSIGNMENT_KEY, "")
    try:
        containers = msgspec.json.decode(text or "[]", type=tuple[ContainerWire, ...])
    except (msgspec.MsgspecError, RecursionError):
        return ()
    return tuple(_rows(containers))


def is_accounted_elsewhere(pod: PodView, *, blind: bool) -> bool:
    """Say whether *pod* has its GPUs without an entry that we can see.

    Volcano's device plugin keeps its own account. Where ledgers may not be read (*blind*), the
    annotation of the pod counts.
    """
    upstream = pod.annotations.get(SERVED_BY_KEY) == NodeAgent.UPSTREAM
    return upstream or (blind and bool(assigned_devices(pod)))


def _rows(containers: tuple[ContainerWire, ...]) -> Iterator[DeviceRow]:
    for container in containers:
        for device in container.devices:
            yield DeviceRow(
                container=container.name,
                gpu=device.gpu,
                index=None,
                mode=device.mode,
                memory_mib=device.memory_mib,
                cores_percent=device.cores,
                profile=device.profile,
                start=device.start,
            )
