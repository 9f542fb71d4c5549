"""One GPU in MIG mode: brings its instances in line with the ledger.

Each round observes, plans, publishes and performs one reconfiguration. It starts from
what the driver lists, so that crashes, failures and changes by others are all handled the same way.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Protocol

import structlog

from agent.driver.driver import Device, DriverError, Fault, Instance
from agent.mig.device_files import CapabilityError
from agent.mig.gpu_client import (
    READ_TIMEOUT,
    DriverCaller,
    GpuClient,
    JournalWriter,
    MigModeClient,
    MigOffError,
    UnfitGpuError,
)
from agent.mig.instance_state import GpuSituation, current_placement, journal_corrections, place_of
from agent.mig.journal import PlacementKey
from agent.mig.open_files import FileHolder
from agent.mig.plan import (
    DestroyInstance,
    Reconfiguration,
    ReconfigurationPlan,
    placement_name,
    plan,
)
from agent.mig.progress import FailedReconfiguration, Outcome, Progress, reconfigurations
from agent.share import DeviceNode, ReadyInstance
from allocator.catalog.boards import board_named
from allocator.model.board import Board, Placement
from kube.clock import Clock

FIRST_PAUSE: Final = 0.5  # seconds after a failure
LONGEST_PAUSE: Final = 30.0
IDLE_INTERVAL: Final = 10.0  # seconds between rounds while nothing is to be done
BLOCKED_INTERVAL: Final = 1.0  # seconds between rounds while a promise waits for a process to end
_MOST_RECONFIGURATIONS: Final = 64  # in one call of settle: no board has as many placements
log = structlog.get_logger(__name__)


def _ignore(*_: object) -> None:
    """Do nothing."""


def _deny() -> bool:
    """Allow nothing."""
    return False


class DeviceFileMaker(Protocol):
    """Makes device files; see agent/mig/device_files.py."""

    def nodes(self, minor: int, instance: int, compute: int) -> tuple[DeviceNode, ...]:
        """Return the files of a compute instance, or raise CapabilityError."""

    def graphics(self, pci: str) -> tuple[DeviceNode, ...]:
        """Return the DRM files of a GPU, if it has any."""


class HolderFinder(Protocol):
    """Finds the processes that keep files open; see agent/mig/open_files.py."""

    def holders_of(self, paths: Collection[str]) -> tuple[FileHolder, ...]:
        """Return some of the processes that have one of *paths* open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigServices:
    """What the GPUs of one node share; the callbacks must not block."""

    worker: DriverCaller
    journal: JournalWriter
    device_files: DeviceFileMaker
    open_files: HolderFinder
    clock: Clock
    # how an attempt to reconfigure a GPU ended, for a metric
    count_outcome: Callable[[Outcome], None] = _ignore
    # GPU, outcome and a sentence, for an Event
    report: Callable[[str, Outcome, str], None] = _ignore
    # whether the node's owner lets us enable MIG mode where that takes no reset
    may_enable_mig: Callable[[], bool] = _deny


@dataclass(frozen=True, slots=True)
class DesiredInstances:
    """The placements that a GPU has to serve."""

    promised: frozenset[Placement] = frozenset()  # by entries of the ledger
    held: frozenset[Placement] = frozenset()  # where containers may run


class GpuController:
    """Creates the desired instances of the GPU called *uuid*; ``progress`` says how far it is."""

    def __init__(self, uuid: str, services: MigServices, *, changed: Callable[[], None]) -> None:
        """Touch nothing yet, and change nothing before the first ``set_desired``.

        *changed* is called whenever ``progress`` has changed.
        """
        self.uuid = uuid
        self.progress = Progress()
        self._services = services
        self._changed = changed
        self._client = GpuClient(uuid, services.worker, services.journal)
        self._mode_client = MigModeClient(uuid, services.worker, services.may_enable_mig)
        self._desired: DesiredInstances | None = None
        self._engines_exhausted: frozenset[PlacementKey] = frozenset()
        self._lock = asyncio.Lock()

    def set_desired(self, desired: DesiredInstances) -> bool:
        """Set what it has to serve; say whether that changed."""
        if desired == self._desired:
            return False
        self._desired = desired
        self._engines_exhausted &= frozenset(map(self.key_of, desired.promised))
        return True

    def key_of(self, placed: Placement) -> PlacementKey:
        """Return the key of *placed* on this GPU.

        A driver update may change the name and the memory of a profile, not its id.
        """
        return PlacementKey(gpu=self.uuid, profile=placed.profile.id, start=placed.start)

    def is_promised(self, place: PlacementKey) -> bool:
        """Say whether something is promised at *place*."""
        return self._desired is not None and place in map(self.key_of, self._desired.promised)

    @property
    def pause(self) -> float:
        """Return the seconds until the next round is due, if nothing happens before."""
        if self.progress.problem:
            return IDLE_INTERVAL
        now = self._services.clock.monotonic()
        retry_delays = [max(failure.due - now, 0.0) for failure in self.progress.failures.values()]
        waiting = any(not blocked.is_lasting for blocked in self.progress.blocked.values())
        return min([IDLE_INTERVAL, *retry_delays, *([BLOCKED_INTERVAL] if waiting else [])])

    async def settle(self) -> None:
        """Observe, plan and publish; perform what is due, until nothing is.

        A later call tries again what failed, once its back-off is over.
        """
        clock = self._services.clock
        async with self._lock:
            planned = await self._replan()
            began, before = clock.monotonic(), self.progress
            for _ in range(_MOST_RECONFIGURATIONS):
                reconfiguration = self._due(planned, clock.monotonic())
                if reconfiguration is None:
                    break
                await self._attempt(reconfiguration)
                planned = await self._replan()
            seconds = clock.monotonic() - began
            for outcome, sentence in reconfigurations(before, self.progress, seconds=seconds):
                self._services.report(self.uuid, outcome, sentence)

    async def _replan(self) -> ReconfigurationPlan:
        """Observe the GPU, publish its progress, and return what to change.

        The plan is empty where the GPU cannot be observed, or before it is known what is promised.
        """
        desired = self._desired
        try:
            device = await self._mode_client.device(promised=bool(desired and desired.promised))
            situation = await self._observe(device, desired or DesiredInstances())
        except (DriverError, UnfitGpuError) as error:
            self._mode_client.forget()
            progress = Progress() if isinstance(error, MigOffError) else self.progress
            self._publish(replace(progress, problem=str(error)))
            return ReconfigurationPlan()
        situation = await self._correct_journal(situation)
        planned = ReconfigurationPlan() if desired is None else plan(situation)
        self._publish(self._progress(device, situation, planned))
        return planned

    def _due(self, planned: ReconfigurationPlan, now: float) -> Reconfiguration | None:
        """Return the first reconfiguration that no back-off delays at *now*."""
        waiting = {key for key, failure in self.progress.failures.items() if failure.due > now}
        due = (each for each in planned.reconfigurations if self._target(each) not in waiting)
        return next(due, None)

    def _publish(self, progress: Progress) -> None:
        if progress != self.progress:
            self.progress = progress
            self._changed()

    async def _observe(self, device: Device, desired: DesiredInstances) -> GpuSituation:
        board = device.board or board_named(device.model)
        if board is None:
            raise UnfitGpuError(f"the MIG profiles of {device.model} are unknown")
        present = await self._client.instances()
        driver = self._services.worker.driver
        pids_by_instance: dict[str, tuple[int, ...]] = {}
        for process in await self._services.worker.call(
            driver.processes, self.uuid, within=READ_TIMEOUT
        ):
            if process.instance is not None:
                pids_by_instance[process.instance] = (
                    *pids_by_instance.get(process.instance, ()),
                    process.pid,
                )
        promised = _current_placements(board, desired.promised)
        return GpuSituation(
            board=board,
            present=present,
            marks=self._services.journal.marks,
            pids_by_instance=MappingProxyType(pids_by_instance),
            promised=promised,
            held=_current_placements(board, desired.held),
            engines_exhausted=frozenset(
                p for p in promised if self.key_of(p) in self._engines_exhausted
            ),
        )

    async def _correct_journal(self, situation: GpuSituation) -> GpuSituation:
        """Bring the journal in line with the driver; a disk error delays that."""
        try:
            for act, place, uuid in journal_corrections(situation, self.uuid):
                log.info("journal corrected", act=act, place=place, uuid=uuid)
                await self._services.journal.write(act, place, uuid)
        except OSError as error:
            log.warning("journal correction failed", gpu=self.uuid, error=str(error))
        return replace(situation, marks=self._services.journal.marks)

    def _progress(
        self, device: Device, situation: GpuSituation, planned: ReconfigurationPlan
    ) -> Progress:
        ready: dict[PlacementKey, ReadyInstance] = {}
        unreachable: dict[PlacementKey, str] = {}
        for placed, instance in planned.ready.items():
            try:
                ready[self.key_of(placed)] = self._ready_instance(device, placed, instance)
            except CapabilityError as error:
                unreachable[self.key_of(placed)] = str(error)
        targets = set(map(self._target, planned.reconfigurations))
        failures = {key: f for key, f in self.progress.failures.items() if key in targets}
        return Progress(
            instances=situation.live_instances,
            ready=MappingProxyType(ready),
            blocked=MappingProxyType({self.key_of(b.placed): b for b in planned.blocked}),
            unreachable=MappingProxyType(unreachable),
            failures=MappingProxyType(failures),
        )

    def _ready_instance(
        self, device: Device, placed: Placement, instance: Instance
    ) -> ReadyInstance:
        """Return a complete *instance* with its device files; raises CapabilityError."""
        if instance.uuid is None or instance.compute is None:
            raise CapabilityError("it has no compute instance")
        files, profile = self._services.device_files, placed.profile
        nodes = files.nodes(device.minor, instance.id, instance.compute)
        if profile.graphics:
            nodes += files.graphics(device.pci)
        return ReadyInstance(uuid=instance.uuid, memory=profile.memory, nodes=nodes)

    def _target(self, reconfiguration: Reconfiguration) -> PlacementKey:
        """Return the placement that a reconfiguration is to fill, or to clear."""
        if reconfiguration.placed is not None:
            return self.key_of(reconfiguration.placed)
        return next(place_of(to_remove) for to_remove in _destroyed_instances(reconfiguration))

    async def _attempt(self, reconfiguration: Reconfiguration) -> None:
        target = self._target(reconfiguration)
        try:
            await self._client.perform(
                reconfiguration, is_needed=lambda: self._is_still_needed(reconfiguration)
            )
        except DriverError as error:
            if error.fault is Fault.NO_ROOM:
                self._engines_exhausted |= {target}
            self._fail(reconfiguration, await self._failure_text(reconfiguration, error))
        except OSError as error:
            self._fail(reconfiguration, f"the journal cannot be written: {error}")
        else:
            self._services.count_outcome(Outcome.DONE)
            self._engines_exhausted -= {target}
            other_failures = {key: f for key, f in self.progress.failures.items() if key != target}
            self._publish(replace(self.progress, failures=MappingProxyType(other_failures)))
        self._mode_client.forget()  # a reset may have given the GPU another minor

    def _is_still_needed(self, reconfiguration: Reconfiguration) -> bool:
        """Say whether its placement is still promised, and none that it destroys is."""
        desired = self._desired or DesiredInstances()
        needed = set(map(self.key_of, desired.promised | desired.held))
        has_purpose = reconfiguration.placed is None or self.is_promised(
            self.key_of(reconfiguration.placed)
        )
        return has_purpose and needed.isdisjoint(
            map(place_of, _destroyed_instances(reconfiguration))
        )

    async def _failure_text(self, reconfiguration: Reconfiguration, error: DriverError) -> str:
        """Return the driver's text and, where an instance is in use, the processes that hold it."""
        device = self._mode_client.known
        if error.fault is not Fault.IN_USE or device is None:
            return str(error)
        paths: set[str] = set()
        for instance in _destroyed_instances(reconfiguration):
            compute = instance.compute or 0
            try:
                nodes = self._services.device_files.nodes(device.minor, instance.id, compute)
            except CapabilityError:
                continue
            paths |= {node.path for node in nodes if "nvidia-caps" in node.path}
        file_holders = await asyncio.to_thread(
            self._services.open_files.holders_of, paths or {_device_path(device)}
        )
        return f"{error}; held open by {', '.join(map(str, file_holders)) or 'no visible process'}"

    def _fail(self, reconfiguration: Reconfiguration, why: str) -> None:
        self._services.count_outcome(Outcome.FAILED)
        clock, target = self._services.clock, self._target(reconfiguration)
        before = self.progress.failures.get(target)
        failures = 1 if before is None else before.failures + 1
        pause = clock.backoff(failures, first=FIRST_PAUSE, most=LONGEST_PAUSE)
        what = (
            "leftover of an interrupted change"
            if reconfiguration.placed is None
            else placement_name(reconfiguration.placed)
        )
        failure = FailedReconfiguration(
            what=what, failures=failures, why=why, due=clock.monotonic() + pause
        )
        all_failures = {**self.progress.failures, target: failure}
        self._publish(replace(self.progress, failures=MappingProxyType(all_failures)))
        log.warning(
            "MIG reconfiguration failed",
            gpu=self.uuid,
            why=why,
            failures=failures,
            again_in=pause,
        )


def _current_placements(board: Board, placements: Collection[Placement]) -> frozenset[Placement]:
    return frozenset(current_placement(board, placed) or placed for placed in placements)


def _destroyed_instances(reconfiguration: Reconfiguration) -> tuple[Instance, ...]:
    return tuple(
        step.instance for step in reconfiguration.steps if isinstance(step, DestroyInstance)
    )


def _device_path(device: Device) -> str:
    return f"/dev/nvidia{device.minor}"
