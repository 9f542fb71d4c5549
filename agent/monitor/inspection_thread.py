"""Inspection: reads the regions of all containers and corrects changed limits in them."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final

from agent.driver.driver import Device, Process
from agent.monitor.measurement import Count, container_of
from agent.monitor.violation import (
    LocalPod,
    LocatedProcess,
    Shares,
    Violation,
    ViolationKind,
    by_pod,
)
from agent.node.process_files import Processes, Resident
from agent.region.decode import Region, Slot, Unreadable, totals
from agent.region.feedback import BLOCKED, RELEASED, RegionFlags, Task, orders
from agent.region.region_files import FILE, RegionFiles, RegionReading, limits_of
from agent.region.seed import Limit, Write, corrections, introductions
from agent.region.seed import orders as ordered
from agent.share import Share

SPARING: Final = 100.0  # a walk of all processes is followed by so many times its length without
SKEW: Final = 60  # seconds that a last kernel may lie ahead
REGION: Final = "/tmp/vgpu"  # where the container has it
_MIB: Final = 1024 * 1024
Inner = Mapping[int, int]  # processes of one container: numbers on the node by their own
Place = tuple[str, str]  # a pod's uid and a container's name


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

    seen: tuple[LocatedProcess, ...]
    counts: tuple[Count, ...]
    violations: tuple[Violation, ...]
    held_back: frozenset[Place]
    faults: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenRegion:
    """A region that was read, whose it is, and what it should limit."""

    key: str  # what tells it from all others on this node
    place: Place
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
    count: Count


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
        self._turn = Lock()
        self._rest = 0.0
        self._dead: frozenset[tuple[str, int, int]] = frozenset()
        self._known: dict[str, _RegionFacts] = {}

    def inspect(self, processes: Sequence[Process], site: InspectedNode) -> InspectionResult:
        """Look at what *processes* on GPUs and all regions say, and put the regions right."""
        with self._turn:
            return self._inspect(processes, site)

    def _inspect(self, processes: Sequence[Process], site: InspectedNode) -> InspectionResult:
        seen, inner = self._locate_processes(processes, site)
        opened, violations = self._open_regions(site)
        faults = len(violations)
        self._census(opened, site, inner)
        live = {one.key: self._live(one, inner[one.place]) for one in opened}
        known = {one.key: self._judge(one, live[one.key], site.devices) for one in opened}
        self._known = known
        wanted = orders(
            {one.key: _task(one, live=bool(live[one.key])) for one in opened},
            now=self._now(),
        )
        for one in opened:
            wrong = known[one.key].wrong
            self._write(
                one, [*wrong, *introductions(one.region, inner[one.place])], wanted[one.key]
            )
            if wrong:
                violations.append(
                    _violation(one.share, site, "were changed and have been restored")
                )
        counts = tuple(judged.count for judged in known.values())
        return InspectionResult(
            seen=seen,
            counts=counts,
            violations=tuple(violations),
            held_back=frozenset(one.place for one in opened if wanted[one.key].recent == BLOCKED),
            faults=faults + sum(t.corrupt for count in counts for t in count.totals.values()),
        )

    def release(self, site: InspectedNode) -> None:
        """Let all held-back containers launch kernels, because this agent is about to stop."""
        with self._turn:
            for one in self._open_regions(site)[0]:
                if one.region.recent < RELEASED:
                    self._write(one, (), RegionFlags(switch=one.region.switch, recent=RELEASED))

    def _locate_processes(
        self, processes: Sequence[Process], site: InspectedNode
    ) -> tuple[tuple[LocatedProcess, ...], dict[Place, dict[int, int]]]:
        """Return processes with where they run, and their numbers; who has ended is left out."""
        found = {pid: self._processes.resident(pid) for pid in {p.pid for p in processes}}
        inner: dict[Place, dict[int, int]] = defaultdict(dict)
        shares = by_pod(site.shares)
        for resident in found.values():
            if resident is not None:
                _introduce(resident, site.pods, shares, inner=inner)
        residents = ((process, found[process.pid]) for process in processes)
        return tuple(LocatedProcess(p, r.cell) for p, r in residents if r is not None), inner

    def _open_regions(self, site: InspectedNode) -> tuple[list[_OpenRegion], list[Violation]]:
        """Read all regions; one of ours that cannot be read was tampered with."""
        opened, violations = [], []
        for share in site.shares:
            limits = limits_of(share)
            if not limits:
                continue
            place = share.owner.uid, share.owner.container
            for reading in self._regions.read(*place):
                match reading.region:
                    case Region() as region:
                        one = _OpenRegion(
                            key="/".join((*place, reading.name)),
                            place=place,
                            share=share,
                            limits=limits,
                            reading=reading,
                            region=region,
                        )
                        opened.append(one)
                    case Unreadable(why=why, missing=missing):
                        if reading.name == FILE and not missing:
                            violations.append(_violation(share, site, f"cannot be read: {why}"))
        return opened, violations

    def _census(
        self, opened: Sequence[_OpenRegion], site: InspectedNode, inner: dict[Place, dict[int, int]]
    ) -> None:
        """Learn of processes that are on no GPU yet, where a region has one that nobody knows."""
        unknown = {
            (one.key, slot.index, slot.pid): one.place
            for one in opened
            for slot in one.region.slots
            if not slot.node_pid and slot.pid not in inner[one.place]
        }
        began = self._ticks()
        if not unknown or began < self._rest:
            return
        shares = by_pod(site.shares)
        for resident in self._processes.everyone():
            _introduce(resident, site.pods, shares, inner=inner)
        self._dead = frozenset(key for key, place in unknown.items() if key[2] not in inner[place])
        ended = self._ticks()
        self._rest = ended + SPARING * (ended - began)

    def _live(self, one: _OpenRegion, inner: Inner) -> frozenset[int]:
        """Return the numbers of slots whose processes live, or may."""
        return frozenset(
            slot.index
            for slot in one.region.slots
            if slot.pid in inner
            or (self._lives(slot, one.place[0]) if slot.node_pid else self._may_live(one, slot))
        )

    def _lives(self, slot: Slot, uid: str) -> bool:
        resident = self._processes.resident(slot.node_pid)
        return resident is not None and resident.cell is not None and resident.cell.uid == uid

    def _may_live(self, one: _OpenRegion, slot: Slot) -> bool:
        return (one.key, slot.index, slot.pid) not in self._dead

    def _write(self, one: _OpenRegion, corrected: Sequence[Write], wanted: RegionFlags) -> None:
        ordering = ordered(one.region, switch=wanted.switch, recent=wanted.recent)
        if corrected or ordering:
            uid, container = one.place
            writes = (*corrected, *ordering)
            self._regions.write(uid, container, reading=one.reading, writes=writes)

    def _judge(
        self, one: _OpenRegion, live: frozenset[int], devices: tuple[Device, ...]
    ) -> _RegionFacts:
        """Judge a region, or return what was found of the very same one at the last look."""
        known = self._known.get(one.key)
        basis = one.limits, live, devices
        if known is not None and known.region is one.region and known.basis == basis:
            return known
        return _RegionFacts(
            region=one.region,
            basis=basis,
            wrong=corrections(one.region, one.limits),
            count=self._count(one, live, devices),
        )

    def _count(self, one: _OpenRegion, live: Collection[int], devices: Sequence[Device]) -> Count:
        promised = {grant.gpu for grant in one.share.grants}
        sizes = {d.uuid: d.memory * _MIB for d in devices if d.uuid in promised}
        uid, container = one.place
        last = one.region.last_kernel
        known = live and last is not None and last <= self._now() + SKEW
        return Count(
            uid=uid,
            container=container,
            totals=totals(one.region, sizes, lambda slot: slot.index in live),
            last_kernel=last if known else None,
        )


def _introduce(
    resident: Resident,
    pods: Mapping[str, LocalPod],
    shares: Mapping[str, Shares],
    *,
    inner: dict[Place, dict[int, int]],
) -> None:
    """Note a process under its own number, unless another of its container bears that too.

    A process on a GPU is noted first, and is the one that the library means.
    """
    cell = resident.cell
    container = None if cell is None else container_of(cell, pods, shares)
    if cell is not None and container is not None and resident.inner is not None:
        inner[cell.uid, container].setdefault(resident.inner, resident.pid)


def _task(one: _OpenRegion, *, live: bool) -> Task:
    gpus = frozenset(grant.gpu for grant in one.share.grants)
    return Task(gpus=gpus, priority=one.share.priority, region=one.region, live=live)


def _violation(share: Share, site: InspectedNode, what: str) -> Violation:
    owner = share.owner
    known = LocalPod(uid=owner.uid, namespace=owner.namespace, name=owner.pod)
    return Violation(
        kind=ViolationKind.LIMITS,
        pod=site.pods.get(owner.uid, known),
        container=owner.container,
        gpu=share.grants[0].gpu,
        note=f"its limits in {REGION}/{FILE} {what}",
    )
