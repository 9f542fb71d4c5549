"""Attribution: which process stands behind a slot of a region, and which GPU it really uses.

The library numbers GPUs by its own process's CUDA_VISIBLE_DEVICES, so it may count a process on
another GPU than it uses. The driver knows which one that is.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agent.driver.driver import Process
from agent.region.decode import MOST_SLOTS_READ, DeviceUse, Region, RegionReading, RegionSlot
from agent.region.seed import Limit
from agent.share import Share
from allocator.model.units import WHOLE_GPU

_MIB: Final = 1024 * 1024
_BELOW_ZERO: Final = 2**63  # from here on a counter is one that fell below zero
NodePids = Mapping[int, int]  # pids on the node by pids in the container, of one container
ContainerKey = tuple[str, str]  # a pod's uid and a container's name


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRegion:
    """A region that was read."""

    key: str  # unique on this node
    container: ContainerKey
    share: Share
    limits: tuple[Limit, ...]  # as promised
    reading: RegionReading
    region: Region

    @property
    def gpus(self) -> frozenset[str]:
        """Return the UUIDs of the GPUs that the container was promised."""
        return frozenset(grant.gpu for grant in self.share.grants)

    @property
    def cores(self) -> int | None:
        """Return the percent of compute that the container may use of all its GPUs together.

        ``None``: of one of them it has no limit.
        """
        cores = [grant.cores for grant in self.share.grants]
        return sum(cores) if cores and all(0 < each < WHOLE_GPU for each in cores) else None


@dataclass(frozen=True, slots=True)
class DriverUse:
    """What the driver sees of the processes of one container."""

    processes: tuple[Process, ...]
    answered: frozenset[str]  # the GPUs whose processes are known

    def utilization(self, gpus: Collection[str]) -> int | None:
        """Return the percent of compute used of *gpus*, ``None`` if the driver does not tell."""
        if not self.answered.issuperset(gpus):
            return None
        known = [p.utilization for p in self.processes if p.gpu in gpus]
        return None if None in known else sum(part for part in known if part is not None)

    def memory(self, pid: int) -> dict[str, int]:
        """Return the bytes that a process on the node holds, by GPU."""
        return {p.gpu: (p.memory or 0) * _MIB for p in self.processes if p.pid == pid}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionView:
    """A region at one look, and what is known of its processes."""

    opened: OpenRegion
    live: frozenset[int]  # slots whose processes live, or may
    node_pids: NodePids
    use: DriverUse

    @property
    def live_slots(self) -> tuple[RegionSlot, ...]:
        """Return the slots whose processes live, or may."""
        return tuple(slot for slot in self.opened.region.slots if slot.index in self.live)

    def node_pid(self, slot: RegionSlot) -> int:
        """Return a process's pid on the node, 0 if it is unknown."""
        return self.node_pids.get(slot.pid, slot.node_pid)

    @property
    def used(self) -> tuple[int, ...]:
        """Return by device the bytes that living processes use; see ``counted_bytes``."""
        slots, devices = self.live_slots, range(len(self.opened.region.uuids))
        return tuple(sum(counted_bytes(slot.uses[k]) for slot in slots) for k in devices)


def counted_bytes(use: DeviceUse) -> int:
    """Return the bytes that a process counts on one device, 0 for a counter below zero."""
    return use.total if use.total < _BELOW_ZERO else 0


def misnumbered_slots(view: RegionView) -> dict[int, str]:
    """Return the GPU of each living slot that the library counts on others only, by slot.

    A process is moved only to the one GPU that it uses by the driver, if that was promised: nobody
    knows which part of a sum would be whose.
    """
    opened, use = view.opened, view.use
    if len(opened.gpus) == 1 or not use.answered.issuperset(opened.gpus):
        return {}
    moved = {}
    for slot in view.live_slots:
        counted = _counted_gpus(opened.region, slot)
        real = tuple(use.memory(view.node_pid(slot)))
        if counted and len(real) == 1 and real[0] in opened.gpus - counted:
            moved[slot.index] = real[0]
    return moved


def _counted_gpus(region: Region, slot: RegionSlot) -> frozenset[str]:
    return frozenset(
        uuid
        for uuid, use in zip(region.uuids, slot.uses, strict=True)
        if uuid is not None and use.total
    )


def counted_memory(views: Iterable[RegionView]) -> dict[int, int]:
    """Return the bytes that regions count of each process, by its pid on the node.

    Processes of containers with a region that no region counts have 0.
    """
    counted: dict[int, int] = defaultdict(int)
    for view in views:
        for pid in view.node_pids.values():
            counted[pid] += 0
        for slot in view.live_slots:
            counted[view.node_pid(slot)] += sum(map(counted_bytes, slot.uses))
    return dict(counted)


def uncounted_processes(views: Sequence[RegionView]) -> tuple[Process, ...]:
    """Return the processes of a container that none of its regions, *views*, has a slot for.

    They hold memory of its GPUs without the library, or count in a region that nobody else sees.
    """
    use, gpus = views[0].use, views[0].opened.gpus
    if any(MOST_SLOTS_READ - 1 in view.live for view in views):
        return ()  # the others may be in slots that are not read
    slots = [(view, slot) for view in views for slot in view.live_slots]
    counted = {pid for view, slot in slots for pid in (slot.node_pid, view.node_pid(slot))}
    return tuple(p for p in use.processes if p.memory and p.gpu in gpus and p.pid not in counted)


def by_container(views: Iterable[RegionView]) -> dict[ContainerKey, list[RegionView]]:
    """Return *views* by the container whose regions they are."""
    views_by_container: dict[ContainerKey, list[RegionView]] = defaultdict(list)
    for view in views:
        views_by_container[view.opened.container].append(view)
    return dict(views_by_container)
