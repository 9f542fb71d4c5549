"""Inspection: reads the regions of all containers and corrects changed limits in them."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final

from agent.driver.driver import Device, Process
from agent.monitor.measurement import RegionCount, container_of
from agent.monitor.violation import (
    LocalPod,
    LocatedProcess,
    Shares,
    Violation,
    ViolationKind,
    by_pod,
)
from agent.node.process_files import Processes, Resident
from agent.region.decode import Region, RegionSlot, Unreadable, totals
from agent.region.feedback import (
    BLOCKED,
    RELEASED,
    RegionFlags,
    SharingContainer,
    flags_by_container,
)
from agent.region.region_files import FILE, RegionFiles, RegionReading, limits_of
from agent.region.seed import (
    Limit,
    Write,
    fallback_writes,
    flag_writes,
    limit_corrections,
    node_pid_writes,
)
from agent.share import Share

# Pause after a walk of all processes, in lengths of the walk. Its length is processor time: on a
# busy node the walk itself waits, and a container's compute limit waits for the walk.
CENSUS_PAUSE_FACTOR: Final = 100.0
MOST_CLOCK_SKEW: Final = 60  # seconds that the time of a last kernel may lie ahead
REGION_MOUNT: Final = "/tmp/vgpu"  # the region directory as containers see it
_MIB: Final = 1024 * 1024
NodePids = Mapping[int, int]  # pids on the node by pids in the container, of one container
ContainerKey = tuple[str, str]  # a pod's uid and a container's name


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedNode:
    """What an inspection knows of the node."""

    devices: tuple[Device, ...]
    shares: tuple[Share, ...]  # what the ledger promises here
    pods: Mapping[str, LocalPod]  # by uid


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectionResult:
    """What an inspection found."""

    processes: tuple[LocatedProcess, ...]
    counts: tuple[RegionCount, ...]
    violations: tuple[Violation, ...]
    held_back: frozenset[ContainerKey]  # their launches wait for one of higher priority
    faults: int  # implausible values, and unreadable regions


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenRegion:
    """A region that was read."""

    key: str  # unique on this node
    container: ContainerKey
    share: Share
    limits: tuple[Limit, ...]  # as promised
    reading: RegionReading
    region: Region


@dataclass(frozen=True, slots=True, kw_only=True)
class _RegionFacts:
    """What was derived from a region; kept while the region and the basis are the same."""

    region: Region
    basis: tuple[tuple[Limit, ...], frozenset[int], tuple[Device, ...]]  # the other inputs
    corrections: tuple[Write, ...]  # of changed limits
    fallbacks: tuple[Write, ...]  # of the limits of devices that were not promised
    count: RegionCount


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
        self._ticks = ticks
        self._cpu_seconds = cpu_seconds
        self._lock = Lock()
        self._next_census_at = 0.0
        self._ended: frozenset[tuple[str, int, int]] = frozenset()
        self._facts: dict[str, _RegionFacts] = {}

    def inspect(self, processes: Sequence[Process], node: InspectedNode) -> InspectionResult:
        """Compare *processes* on GPUs with all regions, and correct the regions."""
        with self._lock:
            return self._inspect(processes, node)

    def _inspect(self, processes: Sequence[Process], node: InspectedNode) -> InspectionResult:
        located, node_pids = self._locate_processes(processes, node)
        open_regions, violations = self._open_regions(node)
        unreadable = len(violations)
        self._find_unknown_processes(open_regions, node, node_pids)
        live_slots = {
            opened.key: self._live_slots(opened, node_pids[opened.container])
            for opened in open_regions
        }
        self._facts = {
            opened.key: self._region_facts(opened, live_slots[opened.key], node.devices)
            for opened in open_regions
        }
        sharing = {
            opened.key: _sharing_container(opened, live=bool(live_slots[opened.key]))
            for opened in open_regions
        }
        flags = flags_by_container(sharing, now=self._now())
        for opened in open_regions:
            facts = self._facts[opened.key]
            corrections = facts.corrections
            pid_writes = node_pid_writes(opened.region, node_pids[opened.container])
            writes = (*corrections, *facts.fallbacks, *pid_writes)
            self._write(opened, writes, flags[opened.key])
            if corrections:
                text = "were changed and have been restored"
                violations.append(_violation(opened.share, node, text))
        counts = tuple(facts.count for facts in self._facts.values())
        corrupt = sum(total.corrupt for count in counts for total in count.totals.values())
        return InspectionResult(
            processes=located,
            counts=counts,
            violations=tuple(violations),
            held_back=frozenset(
                opened.container for opened in open_regions if flags[opened.key].recent == BLOCKED
            ),
            faults=unreadable + corrupt,
        )

    def release(self, node: InspectedNode) -> None:
        """Let all held-back containers launch kernels, because this agent is about to stop."""
        with self._lock:
            for opened in self._open_regions(node)[0]:
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

    def _open_regions(self, node: InspectedNode) -> tuple[list[_OpenRegion], list[Violation]]:
        """Read all regions; a region of the agent that is unreadable is a violation."""
        open_regions, violations = [], []
        for share in node.shares:
            limits = limits_of(share)
            if not limits:
                continue
            container = share.owner.uid, share.owner.container
            for reading in self._regions.read(*container):
                match reading.region:
                    case Region() as region:
                        opened = _OpenRegion(
                            key="/".join((*container, reading.name)),
                            container=container,
                            share=share,
                            limits=limits,
                            reading=reading,
                            region=region,
                        )
                        open_regions.append(opened)
                    case Unreadable(why=why, missing=missing):
                        if reading.name == FILE and not missing:
                            violations.append(_violation(share, node, f"cannot be read: {why}"))
        return open_regions, violations

    def _find_unknown_processes(
        self,
        open_regions: Sequence[_OpenRegion],
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
        if not unknown or self._ticks() < self._next_census_at:
            return
        began = self._cpu_seconds()
        shares = by_pod(node.shares)
        for resident in self._processes.pod_processes():
            _note_process(resident, node.pods, shares, node_pids=node_pids)
        self._ended = frozenset(
            key for key, container in unknown.items() if key[2] not in node_pids[container]
        )
        pause = CENSUS_PAUSE_FACTOR * (self._cpu_seconds() - began)
        self._next_census_at = self._ticks() + pause

    def _live_slots(self, opened: _OpenRegion, node_pids: NodePids) -> frozenset[int]:
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

    def _may_be_alive(self, opened: _OpenRegion, slot: RegionSlot) -> bool:
        return (opened.key, slot.index, slot.pid) not in self._ended

    def _write(
        self, opened: _OpenRegion, corrections: Sequence[Write], wanted_flags: RegionFlags
    ) -> None:
        flags = flag_writes(opened.region, switch=wanted_flags.switch, recent=wanted_flags.recent)
        if corrections or flags:
            uid, container = opened.container
            writes = (*corrections, *flags)
            self._regions.write(uid, container, reading=opened.reading, writes=writes)

    def _region_facts(
        self, opened: _OpenRegion, live: frozenset[int], devices: tuple[Device, ...]
    ) -> _RegionFacts:
        """Return the facts of a region, from the last inspection if nothing changed since."""
        known = self._facts.get(opened.key)
        basis = opened.limits, live, devices
        if known is not None and known.region is opened.region and known.basis == basis:
            return known
        return _RegionFacts(
            region=opened.region,
            basis=basis,
            corrections=limit_corrections(opened.region, opened.limits),
            fallbacks=fallback_writes(opened.region, opened.limits),
            count=self._region_count(opened, live, devices),
        )

    def _region_count(
        self, opened: _OpenRegion, live: Collection[int], devices: Sequence[Device]
    ) -> RegionCount:
        promised = {grant.gpu for grant in opened.share.grants}
        sizes = {d.uuid: d.memory * _MIB for d in devices if d.uuid in promised}
        uid, container = opened.container
        last_kernel = opened.region.last_kernel
        is_plausible = (
            live and last_kernel is not None and last_kernel <= self._now() + MOST_CLOCK_SKEW
        )
        return RegionCount(
            uid=uid,
            container=container,
            totals=totals(opened.region, sizes, lambda slot: slot.index in live),
            last_kernel=last_kernel if is_plausible else None,
        )


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


def _sharing_container(opened: _OpenRegion, *, live: bool) -> SharingContainer:
    gpus = frozenset(grant.gpu for grant in opened.share.grants)
    return SharingContainer(
        gpus=gpus, priority=opened.share.priority, region=opened.region, live=live
    )


def _violation(share: Share, node: InspectedNode, text: str) -> Violation:
    owner = share.owner
    ledger_pod = LocalPod(uid=owner.uid, namespace=owner.namespace, name=owner.pod)
    return Violation(
        kind=ViolationKind.LIMITS,
        pod=node.pods.get(owner.uid, ledger_pod),
        container=owner.container,
        gpu=share.grants[0].gpu,
        note=f"its limits in {REGION_MOUNT}/{FILE} {text}",
    )
