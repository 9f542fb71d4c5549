"""Repairing regions whose processes were killed at a bad moment, look by look."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from agent.driver.driver import Device
from agent.monitor.attribution import RegionView
from agent.node.process_files import Processes
from agent.region.decode import Region
from agent.region.region_files import RegionFiles
from agent.region.repair import (
    RegionCase,
    RegionProcesses,
    RepairKind,
    Symptoms,
    WrongCounter,
    pids_in_doubt,
    repairs,
    symptoms_of,
)
from agent.share import Owner

# Seconds after its first look at a process that it may be in its start: the library itself waits
# this long for another process before it asks again.
START_SECONDS: Final = 30.0
# Pause after a walk of all processes, in lengths of the walk. Its length is processor time: on a
# busy node the walk itself waits, and a container's compute limit waits for the walk.
WALK_PAUSE_FACTOR: Final = 100.0
_MIB: Final = 1024 * 1024


class WalkBudget:
    """Limits walks of all processes to a hundredth of the time, whatever tenants write."""

    def __init__(self, ticks: Callable[[], float], cpu_seconds: Callable[[], float]) -> None:
        """Allow a walk at once; *cpu_seconds* is the processor time of the calling thread."""
        self._ticks = ticks
        self._cpu_seconds = cpu_seconds
        self._next_at = 0.0

    @property
    def allows(self) -> bool:
        """Say whether a walk may begin now."""
        return self._ticks() >= self._next_at

    @contextmanager
    def walk(self) -> Iterator[None]:
        """Measure a walk, and allow the next one after a pause."""
        began = self._cpu_seconds()
        yield
        pause = WALK_PAUSE_FACTOR * (self._cpu_seconds() - began)
        self._next_at = self._ticks() + pause


@dataclass(frozen=True, slots=True)
class RegionRepair:
    """A region was repaired."""

    kind: RepairKind
    owner: Owner


class RegionRepairer:
    """Remembers what each region looked like, and repairs what two looks in a row found."""

    def __init__(
        self,
        regions: RegionFiles,
        processes: Processes,
        *,
        ticks: Callable[[], float],
        cpu_seconds: Callable[[], float],
    ) -> None:
        """Know no region yet; *ticks* returns monotonic seconds.

        *cpu_seconds* returns the processor time of the calling thread.
        """
        self._regions = regions
        self._processes = processes
        self._ticks = ticks
        self._symptoms: dict[str, Symptoms] = {}
        self._first_seen: dict[tuple[str, int], float] = {}  # by region and pid in the container
        self._budget = WalkBudget(ticks, cpu_seconds)

    def repair(
        self, views: Sequence[RegionView], devices: Sequence[Device]
    ) -> tuple[RegionRepair, ...]:
        """Repair the regions of one look; return what was done."""
        sizes = {device.uuid: device.memory * _MIB for device in devices}
        self._note_processes(views)
        symptoms = {view.opened.key: _symptoms(view.opened.region, sizes) for view in views}
        living = self._living_pids(views, symptoms)
        done: list[RegionRepair] = []
        for view in views:
            now, before = symptoms[view.opened.key], self._symptoms.get(view.opened.key)
            if before is not None and Symptoms() not in {before, now}:
                done += self._repair_region(view, before, now, living=living)
        self._symptoms = symptoms
        return tuple(done)

    def _repair_region(
        self,
        view: RegionView,
        before: Symptoms,
        now: Symptoms,
        *,
        living: Mapping[str, frozenset[int]],
    ) -> Iterator[RegionRepair]:
        opened = view.opened
        case = RegionCase(
            region=opened.region,
            before=before,
            now=now,
            processes=self._processes_of(view, living),
        )
        if found := repairs(case):
            uid, container = opened.container
            written = self._regions.repair(uid, container, reading=opened.reading, repairs=found)
            for kind in dict.fromkeys(repair.kind for repair in written if repair.final):
                yield RegionRepair(kind, opened.share.owner)

    def _note_processes(self, views: Sequence[RegionView]) -> None:
        now = self._ticks()
        self._first_seen = {
            key: self._first_seen.get(key, now)
            for view in views
            for slot in view.opened.region.slots
            for key in [(view.opened.key, slot.pid)]
        }

    def _living_pids(
        self, views: Sequence[RegionView], symptoms: Mapping[str, Symptoms]
    ) -> Mapping[str, frozenset[int]]:
        """Return the pids in any container by pod; nothing if nobody needs to know, or too soon.

        All of a pod's count for each of its containers, because it may not be known yet which
        container a process belongs to.
        """
        in_doubt = any(
            pids_in_doubt(self._symptoms.get(key, Symptoms()), now) for key, now in symptoms.items()
        )
        if not in_doubt or not self._budget.allows:
            return {}
        pids: dict[str, set[int]] = {view.opened.container[0]: set() for view in views}
        with self._budget.walk():
            for resident in self._processes.pod_processes():
                if resident.cgroup is not None and resident.cgroup.uid in pids:
                    inner = resident.inner_pid
                    pids[resident.cgroup.uid].add(resident.pid if inner is None else inner)
        return {uid: frozenset(of_pod) for uid, of_pod in pids.items()}

    def _processes_of(
        self, view: RegionView, living: Mapping[str, frozenset[int]]
    ) -> RegionProcesses:
        opened, now = view.opened, self._ticks()
        # A pod of which no process is found may be one whose control groups are not understood.
        of_pod = living.get(opened.container[0], frozenset())

        def is_dead(pid: int) -> bool:
            return bool(of_pod) and pid not in of_pod

        def held(counter: WrongCounter) -> int | None:
            gpu = opened.region.uuids[counter.device]
            if gpu is None or gpu not in view.use.answered:
                return None
            slots = (slot for slot in opened.region.slots if slot.index == counter.index)
            return sum(view.use.memory(view.node_pid(slot)).get(gpu, 0) for slot in slots)

        starting = sum(
            slot.index in view.live and now - self._first_seen[opened.key, slot.pid] < START_SECONDS
            for slot in opened.region.slots
        )
        return RegionProcesses(starting=starting, is_dead=is_dead, held=held)


def _symptoms(region: Region, sizes: Mapping[str, int]) -> Symptoms:
    return symptoms_of(region, tuple(sizes.get(uuid or "") for uuid in region.uuids))
