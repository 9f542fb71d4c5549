"""Inspection: reads the regions of all containers and corrects changed limits in them."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

from agent.driver.driver import Device, Process
from agent.monitor.attribution import (
    ContainerKey,
    DriverUse,
    NodePids,
    OpenRegion,
    RegionView,
    by_container,
    counted_memory,
    uncounted_processes,
)
from agent.monitor.measurement import RegionCount, container_of
from agent.monitor.region_facts import RegionFacts, region_facts
from agent.monitor.region_violations import (
    compute_violation,
    disk_violation,
    limits_note,
    numbering_violation,
    other_regions_note,
    region_violation,
    uncounted_violation,
)
from agent.monitor.repair_thread import RegionRepair, RegionRepairer, WalkBudget
from agent.monitor.violation import LocalPod, LocatedProcess, Shares, Violation, by_pod
from agent.node.process_files import Processes, Resident
from agent.region.decode import Region, RegionSlot, Unreadable
from agent.region.feedback import (
    BLOCKED,
    RELEASED,
    ComputeActivity,
    RegionFlags,
    SharingContainer,
    flags_by_container,
)
from agent.region.pacing import ComputeAccounts
from agent.region.region_files import FILE, RegionFiles, limits_of
from agent.region.repair import RepairKind
from agent.region.seed import Write, flag_writes, node_pid_writes
from agent.share import Share
from allocator.catalog.injection import REGION_PATH


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedNode:
    """What an inspection knows of the node."""

    devices: tuple[Device, ...]
    shares: tuple[Share, ...]  # what the ledger promises here
    pods: Mapping[str, LocalPod]  # by uid
    answered: frozenset[str] = frozenset()  # the GPUs whose processes are known


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectionResult:
    """What an inspection found."""

    processes: tuple[LocatedProcess, ...]
    counts: tuple[RegionCount, ...]
    violations: tuple[Violation, ...]
    # Their launches wait for one of higher priority, or because they computed too much.
    held_back: frozenset[ContainerKey]
    faults: int  # implausible values, and unreadable regions
    repairs: tuple[RegionRepair, ...]
    counted: Mapping[int, int]  # bytes that regions count of a process, by its pid on the node


@dataclass(frozen=True, slots=True)
class _FoundRegions:
    """The regions of all containers, and what was amiss with their files."""

    opened: list[OpenRegion] = field(default_factory=list)
    unreadable: list[Violation] = field(default_factory=list)
    # They were deleted or replaced, or had grown.
    altered: list[Violation] = field(default_factory=list)
    repairs: list[RegionRepair] = field(default_factory=list)


class Inspector:
    """Inspects regions; blocks, so call it from a thread. Calls run one after the other."""

    def __init__(
        self,
        regions: RegionFiles,
        processes: Processes,
        *,
        now: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        cpu_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        """Inspect nothing yet; *now* returns Unix seconds, *ticks* monotonic seconds.

        *cpu_seconds* returns the processor time of the calling thread.
        """
        self._regions = regions
        self._processes = processes
        self._now = now
        self._lock = Lock()
        self._budget = WalkBudget(ticks, cpu_seconds)
        self._repairer = RegionRepairer(regions, processes, ticks=ticks, cpu_seconds=cpu_seconds)
        self._activity = ComputeActivity()
        self._accounts = ComputeAccounts()
        self._ended: frozenset[tuple[str, int, int]] = frozenset()
        self._facts: dict[str, RegionFacts] = {}
        self._uncounted: frozenset[int] = frozenset()  # pids at the last look

    def inspect(self, processes: Sequence[Process], node: InspectedNode) -> InspectionResult:
        """Compare *processes* on GPUs with all regions, and correct the regions."""
        with self._lock:
            return self._inspect(processes, node)

    def _inspect(self, processes: Sequence[Process], node: InspectedNode) -> InspectionResult:
        located, node_pids = self._locate_processes(processes, node)
        found = self._open_regions(node)
        self._find_unknown_processes(found.opened, node, node_pids)
        uses = _driver_uses(located, node)
        views = {
            opened.key: RegionView(
                opened=opened,
                live=self._live_slots(opened, node_pids[opened.container]),
                node_pids=node_pids[opened.container],
                use=uses.get(opened.container, DriverUse((), node.answered)),
            )
            for opened in found.opened
        }
        repaired = self._repairer.repair(tuple(views.values()), node.devices)
        self._facts = region_facts(views, self._facts, devices=node.devices, now=self._now())
        held_back = self._write_regions(views)
        counts = tuple(facts.count for facts in self._facts.values())
        corrupt = sum(total.corrupt for count in counts for total in count.totals.values())
        return InspectionResult(
            processes=located,
            counts=counts,
            violations=(
                *found.unreadable,
                *found.altered,
                *self._region_violations(views, node.pods),
                *self._uncounted_violations(views, node.pods),
            ),
            held_back=held_back,
            faults=len(found.unreadable) + corrupt,
            repairs=(*found.repairs, *repaired),
            counted=counted_memory(views.values()),
        )

    def _write_regions(self, views: Mapping[str, RegionView]) -> frozenset[ContainerKey]:
        """Correct and steer all regions; return the containers whose launches wait now."""
        sharing = {key: _sharing_container(view) for key, view in views.items()}
        self._activity, active = self._activity.advance(sharing, self._now())
        self._accounts = self._accounts.advance(sharing, self._now())
        flags = flags_by_container(sharing, active, self._accounts.waiting)
        for key, view in views.items():
            corrections = self._facts[key].corrections
            pid_writes = node_pid_writes(view.opened.region, view.node_pids)
            self._write(view.opened, (*corrections, *pid_writes), flags[key])
        return frozenset(
            view.opened.container for key, view in views.items() if flags[key].recent == BLOCKED
        )

    def _region_violations(
        self, views: Mapping[str, RegionView], pods: Mapping[str, LocalPod]
    ) -> Iterator[Violation]:
        """Yield what is wrong in regions that can be read, the more telling later."""
        for key, view in views.items():
            facts = self._facts[key]
            if facts.tampered:
                note = limits_note("were changed and have been restored")
                yield region_violation(view.opened.share, pods, note)
            if facts.moved:
                gpus = frozenset(facts.moved.values())
                yield numbering_violation(view.opened, pods, gpus)
            if key in self._accounts.unheld:
                yield compute_violation(view.opened, pods)
        for of_container in by_container(views.values()).values():
            if any(view.live and view.opened.reading.name != FILE for view in of_container):
                opened = [view.opened for view in of_container]
                yield region_violation(opened[0].share, pods, other_regions_note(opened))

    def _uncounted_violations(
        self, views: Mapping[str, RegionView], pods: Mapping[str, LocalPod]
    ) -> list[Violation]:
        """Return the containers with processes that no region counts, at two looks in a row.

        The driver's picture is a little older than the regions, so a process that is about to begin
        or to end may be in one of the two only.
        """
        missing = {
            key: uncounted_processes(of_container)
            for key, of_container in by_container(views.values()).items()
        }
        before = self._uncounted
        self._uncounted = frozenset(p.pid for of_key in missing.values() for p in of_key)
        lasting = {
            key: tuple(p for p in of_key if p.pid in before) for key, of_key in missing.items()
        }
        return [
            uncounted_violation(view.opened, pods, lasting[view.opened.container])
            for view in views.values()
            if lasting[view.opened.container] and view.opened.reading.name == FILE
        ]

    def release(self, node: InspectedNode) -> None:
        """Let all held-back containers launch kernels, because this agent is about to stop."""
        with self._lock:
            for opened in self._open_regions(node).opened:
                region = opened.region
                if region.recent_kernel < RELEASED:
                    released = RegionFlags(switch=region.utilization_switch, recent=RELEASED)
                    self._write(opened, (), released)

    def _locate_processes(
        self, processes: Sequence[Process], node: InspectedNode
    ) -> tuple[tuple[LocatedProcess, ...], dict[ContainerKey, dict[int, int]]]:
        """Return living processes with their cgroups, and their pids by container."""
        residents = {pid: self._processes.resident(pid) for pid in {p.pid for p in processes}}
        node_pids: dict[ContainerKey, dict[int, int]] = defaultdict(dict)
        shares = by_pod(node.shares)
        for resident in residents.values():
            if resident is not None:
                _note_process(resident, node.pods, shares, node_pids=node_pids)
        located = ((process, residents[process.pid]) for process in processes)
        return tuple(LocatedProcess(p, r.cgroup) for p, r in located if r is not None), node_pids

    def _open_regions(self, node: InspectedNode) -> _FoundRegions:
        """Put back and read all regions; one of the agent that is unreadable is a violation."""
        found = _FoundRegions()
        for share in node.shares:
            limits = () if share.library_off else limits_of(share)
            if not limits:
                continue
            container = share.owner.uid, share.owner.container
            if what := self._regions.put_back(*container):
                note = f"region {REGION_PATH} {what}, and is in its place again"
                found.altered.append(region_violation(share, node.pods, note))
                found.repairs.append(RegionRepair(RepairKind.FILE, share.owner))
            for reading in self._regions.read(*container):
                if reading.excess:
                    found.altered.append(disk_violation(reading, share, node.pods))
                match reading.region:
                    case Region() as region:
                        opened = OpenRegion(
                            key="/".join((*container, reading.name)),
                            container=container,
                            share=share,
                            limits=limits,
                            reading=reading,
                            region=region,
                        )
                        found.opened.append(opened)
                    case Unreadable(why=why, missing=missing):
                        if reading.name == FILE and not missing:
                            note = limits_note(f"cannot be read: {why}")
                            found.unreadable.append(region_violation(share, node.pods, note))
        return found

    def _find_unknown_processes(
        self,
        open_regions: Sequence[OpenRegion],
        node: InspectedNode,
        node_pids: dict[ContainerKey, dict[int, int]],
    ) -> None:
        """Walk all processes if a region has an unknown one: it may be on no GPU yet."""
        unknown = {
            (opened.key, slot.index, slot.pid): opened.container
            for opened in open_regions
            for slot in opened.region.slots
            if not slot.node_pid and slot.pid not in node_pids[opened.container]
        }
        if not unknown or not self._budget.allows:
            return
        shares = by_pod(node.shares)
        with self._budget.walk():
            for resident in self._processes.pod_processes():
                _note_process(resident, node.pods, shares, node_pids=node_pids)
        self._ended = frozenset(
            key for key, container in unknown.items() if key[2] not in node_pids[container]
        )

    def _live_slots(self, opened: OpenRegion, node_pids: NodePids) -> frozenset[int]:
        """Return the indexes of the slots whose processes are alive, or may be."""
        return frozenset(
            slot.index
            for slot in opened.region.slots
            if slot.pid in node_pids
            or (
                self._is_alive(slot, opened.container[0])
                if slot.node_pid
                else self._may_be_alive(opened, slot)
            )
        )

    def _is_alive(self, slot: RegionSlot, uid: str) -> bool:
        resident = self._processes.resident(slot.node_pid)
        return resident is not None and resident.cgroup is not None and resident.cgroup.uid == uid

    def _may_be_alive(self, opened: OpenRegion, slot: RegionSlot) -> bool:
        return (opened.key, slot.index, slot.pid) not in self._ended

    def _write(
        self, opened: OpenRegion, corrections: Sequence[Write], wanted_flags: RegionFlags
    ) -> None:
        flags = flag_writes(opened.region, switch=wanted_flags.switch, recent=wanted_flags.recent)
        if corrections or flags:
            uid, container = opened.container
            writes = (*corrections, *flags)
            self._regions.write(uid, container, reading=opened.reading, writes=writes)


def _driver_uses(
    located: Sequence[LocatedProcess], node: InspectedNode
) -> dict[ContainerKey, DriverUse]:
    """Return what the driver sees, by container."""
    processes: dict[ContainerKey, list[Process]] = defaultdict(list)
    shares = by_pod(node.shares)
    for one in located:
        name = None if one.cgroup is None else container_of(one.cgroup, node.pods, shares)
        if one.cgroup is not None and name is not None:
            processes[one.cgroup.uid, name].append(one.process)
    return {key: DriverUse(tuple(of_key), node.answered) for key, of_key in processes.items()}


def _note_process(
    resident: Resident,
    pods: Mapping[str, LocalPod],
    shares: Mapping[str, Shares],
    *,
    node_pids: dict[ContainerKey, dict[int, int]],
) -> None:
    """Note a process under its pid in the container, unless that pid is noted already.

    Processes on a GPU are noted first, because the library means those.
    """
    cgroup = resident.cgroup
    container = None if cgroup is None else container_of(cgroup, pods, shares)
    if cgroup is not None and container is not None and resident.inner_pid is not None:
        node_pids[cgroup.uid, container].setdefault(resident.inner_pid, resident.pid)


def _sharing_container(view: RegionView) -> SharingContainer:
    opened = view.opened
    return SharingContainer(
        gpus=opened.gpus,
        priority=opened.share.priority,
        region=opened.region,
        live=bool(view.live),
        utilization=view.use.utilization(opened.gpus),
        cores=opened.cores,
    )
