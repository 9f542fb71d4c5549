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
from agent.region.seed import Limit, Write, limit_corrections, node_pid_writes
from agent.region.seed import flag_writes as ordered
from agent.share import Share

CENSUS_PAUSE_FACTOR: Final = (
    100.0  # a walk of all processes is followed by so many times its length without
)
MOST_CLOCK_SKEW: Final = 60  # seconds that a last kernel may lie ahead
REGION: Final = "/tmp/vgpu"  # where the container has it
_MIB: Final = 1024 * 1024
NodePids = Mapping[int, int]  # processes of one container: numbers on the node by their own
ContainerKey = tuple[str, str]  # a pod's uid and a container's name


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedNode:
    """What is known of the node: its GPUs, what was promised on them, and its pods by uid."""

    devices: tuple[Device, ...]
    shares: tuple[Share, ...]
    pods: Mapping[str, LocalPod]


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectionResult:
    """What an inspection found; ``faults`` counts implausible values.

    ``held_back`` are containers whose launches wait for one of higher priority.
    """

    processes: tuple[LocatedProcess, ...]
    counts: tuple[RegionCount, ...]
    violations: tuple[Violation, ...]
    held_back: frozenset[ContainerKey]
    faults: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenRegion:
    """A region that was read, whose it is, and what it should limit."""

    key: str  # what tells it from all others on this node
    container: ContainerKey
    share: Share
    limits: tuple[Limit, ...]
    reading: RegionReading
    region: Region


@dataclass(frozen=True, slots=True, kw_only=True)
class _RegionFacts:
    """What a region was found to say, and on what that rests beside it."""

    region: Region
    basis: tuple[tuple[Limit, ...], frozenset[int], tuple[Device, ...]]
    wrong: tuple[Write, ...]
    count: RegionCount


class Inspector:
    """Inspects; blocks, so it is called from a thread. Of several calls one waits for the other."""

    def __init__(
        self,
        regions: RegionFiles,
        processes: Processes,
        *,
        now: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look at nothing yet; *now* gives Unix seconds, *ticks* seconds that only grow."""
        self._regions = regions
        self._processes = processes
        self._now = now
        self._ticks = ticks
        self._lock = Lock()
        self._census_due = 0.0
        self._ended: frozenset[tuple[str, int, int]] = frozenset()
        self._facts: dict[str, _RegionFacts] = {}

    def inspect(self, processes: Sequence[Process], node: InspectedNode) -> InspectionResult:
        """Look at what *processes* on GPUs and all regions say, and put the regions right."""
        with self._lock:
            return self._inspect(processes, node)

    def _inspect(self, processes: Sequence[Process], node: InspectedNode) -> InspectionResult:
        seen, inner = self._locate_processes(processes, node)
        opened, violations = self._open_regions(node)
        faults = len(violations)
        self._find_unknown_processes(opened, node, inner)
        live = {one.key: self._live(one, inner[one.container]) for one in opened}
        known = {one.key: self._judge(one, live[one.key], node.devices) for one in opened}
        self._facts = known
        wanted = flags_by_container(
            {one.key: _sharing_container(one, live=bool(live[one.key])) for one in opened},
            now=self._now(),
        )
        for one in opened:
            wrong = known[one.key].wrong
            self._write(
                one, [*wrong, *node_pid_writes(one.region, inner[one.container])], wanted[one.key]
            )
            if wrong:
                violations.append(
                    _violation(one.share, node, "were changed and have been restored")
                )
        counts = tuple(judged.count for judged in known.values())
        return InspectionResult(
            processes=seen,
            counts=counts,
            violations=tuple(violations),
            held_back=frozenset(
                one.container for one in opened if wanted[one.key].recent == BLOCKED
            ),
            faults=faults + sum(t.corrupt for count in counts for t in count.totals.values()),
        )

    def release(self, node: InspectedNode) -> None:
        """Let all held-back containers launch kernels, because this agent is about to stop."""
        with self._lock:
            for one in self._open_regions(node)[0]:
                if one.region.recent_kernel < RELEASED:
                    self._write(
                        one, (), RegionFlags(switch=one.region.utilization_switch, recent=RELEASED)
                    )

    def _locate_processes(
        self, processes: Sequence[Process], node: InspectedNode
    ) -> tuple[tuple[LocatedProcess, ...], dict[ContainerKey, dict[int, int]]]:
        """Return processes with where they run, and their numbers; who has ended is left out."""
        residents = {pid: self._processes.resident(pid) for pid in {p.pid for p in processes}}
        inner: dict[ContainerKey, dict[int, int]] = defaultdict(dict)
        shares = by_pod(node.shares)
        for resident in residents.values():
            if resident is not None:
                _note_process(resident, node.pods, shares, inner=inner)
        located = ((process, residents[process.pid]) for process in processes)
        return tuple(LocatedProcess(p, r.cgroup) for p, r in located if r is not None), inner

    def _open_regions(self, node: InspectedNode) -> tuple[list[_OpenRegion], list[Violation]]:
        """Read all regions; one of ours that cannot be read was tampered with."""
        opened, violations = [], []
        for share in node.shares:
            limits = limits_of(share)
            if not limits:
                continue
            place = share.owner.uid, share.owner.container
            for reading in self._regions.read(*place):
                match reading.region:
                    case Region() as region:
                        one = _OpenRegion(
                            key="/".join((*place, reading.name)),
                            container=place,
                            share=share,
                            limits=limits,
                            reading=reading,
                            region=region,
                        )
                        opened.append(one)
                    case Unreadable(why=why, missing=missing):
                        if reading.name == FILE and not missing:
                            violations.append(_violation(share, node, f"cannot be read: {why}"))
        return opened, violations

    def _find_unknown_processes(
        self,
        opened: Sequence[_OpenRegion],
        node: InspectedNode,
        inner: dict[ContainerKey, dict[int, int]],
    ) -> None:
        """Learn of processes that are on no GPU yet, where a region has one that nobody knows."""
        unknown = {
            (one.key, slot.index, slot.pid): one.container
            for one in opened
            for slot in one.region.slots
            if not slot.node_pid and slot.pid not in inner[one.container]
        }
        began = self._ticks()
        if not unknown or began < self._census_due:
            return
        shares = by_pod(node.shares)
        for resident in self._processes.pod_processes():
            _note_process(resident, node.pods, shares, inner=inner)
        self._ended = frozenset(key for key, place in unknown.items() if key[2] not in inner[place])
        ended = self._ticks()
        self._census_due = ended + CENSUS_PAUSE_FACTOR * (ended - began)

    def _live(self, one: _OpenRegion, inner: NodePids) -> frozenset[int]:
        """Return the numbers of slots whose processes live, or may."""
        return frozenset(
            slot.index
            for slot in one.region.slots
            if slot.pid in inner
            or (self._lives(slot, one.container[0]) if slot.node_pid else self._may_live(one, slot))
        )

    def _lives(self, slot: RegionSlot, uid: str) -> bool:
        resident = self._processes.resident(slot.node_pid)
        return resident is not None and resident.cgroup is not None and resident.cgroup.uid == uid

    def _may_live(self, one: _OpenRegion, slot: RegionSlot) -> bool:
        return (one.key, slot.index, slot.pid) not in self._ended

    def _write(self, one: _OpenRegion, corrections: Sequence[Write], wanted: RegionFlags) -> None:
        flags = ordered(one.region, switch=wanted.switch, recent=wanted.recent)
        if corrections or flags:
            uid, container = one.container
            writes = (*corrections, *flags)
            self._regions.write(uid, container, reading=one.reading, writes=writes)

    def _judge(
        self, one: _OpenRegion, live: frozenset[int], devices: tuple[Device, ...]
    ) -> _RegionFacts:
        """Judge a region, or return what was found of the very same one at the last look."""
        known = self._facts.get(one.key)
        basis = one.limits, live, devices
        if known is not None and known.region is one.region and known.basis == basis:
            return known
        return _RegionFacts(
            region=one.region,
            basis=basis,
            wrong=limit_corrections(one.region, one.limits),
            count=self._count(one, live, devices),
        )

    def _count(
        self, one: _OpenRegion, live: Collection[int], devices: Sequence[Device]
    ) -> RegionCount:
        promised = {grant.gpu for grant in one.share.grants}
        sizes = {d.uuid: d.memory * _MIB for d in devices if d.uuid in promised}
        uid, container = one.container
        last = one.region.last_kernel
        known = live and last is not None and last <= self._now() + MOST_CLOCK_SKEW
        return RegionCount(
            uid=uid,
            container=container,
            totals=totals(one.region, sizes, lambda slot: slot.index in live),
            last_kernel=last if known else None,
        )


def _note_process(
    resident: Resident,
    pods: Mapping[str, LocalPod],
    shares: Mapping[str, Shares],
    *,
    inner: dict[ContainerKey, dict[int, int]],
) -> None:
    """Note a process under its own number, unless another of its container bears that too.

    A process on a GPU is noted first, and is the one that the library means.
    """
    cgroup = resident.cgroup
    container = None if cgroup is None else container_of(cgroup, pods, shares)
    if cgroup is not None and container is not None and resident.inner_pid is not None:
        inner[cgroup.uid, container].setdefault(resident.inner_pid, resident.pid)


def _sharing_container(one: _OpenRegion, *, live: bool) -> SharingContainer:
    gpus = frozenset(grant.gpu for grant in one.share.grants)
    return SharingContainer(gpus=gpus, priority=one.share.priority, region=one.region, live=live)


def _violation(share: Share, node: InspectedNode, what: str) -> Violation:
    owner = share.owner
    known = LocalPod(uid=owner.uid, namespace=owner.namespace, name=owner.pod)
    return Violation(
        kind=ViolationKind.LIMITS,
        pod=node.pods.get(owner.uid, known),
        container=owner.container,
        gpu=share.grants[0].gpu,
        note=f"its limits in {REGION}/{FILE} {what}",
    )
