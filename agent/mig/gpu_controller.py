"""One GPU in MIG mode: brings its instances in line with the ledger.

Every look starts from what the driver lists, so that crashes, failures and changes by others are
all handled the same way.
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
    LOOKING,
    DriverCaller,
    GpuClient,
    JournalWriter,
    MigModeClient,
    MigOffError,
    UnfitGpuError,
)
from agent.mig.instance_state import GpuSituation, corrections, current_placement, place_of
from agent.mig.journal import PlacementKey
from agent.mig.open_files import FileHolder
from agent.mig.plan import (
    DestroyInstance,
    Reconfiguration,
    ReconfigurationPlan,
    placement_name,
    plan,
)
from agent.mig.progress import FailedReconfiguration, Outcome, Progress, recuts
from agent.share import DeviceNode, ReadyInstance
from allocator.catalog.boards import board_named
from allocator.model.board import Board, Placement
from kube.clock import Clock

FIRST_PAUSE: Final = 0.5  # seconds after a failure
LONGEST_PAUSE: Final = 30.0
EVERY: Final = 10.0  # seconds between looks while nothing is to be done
SOON: Final = 1.0  # seconds between looks while a promise waits for somebody else's process
_CUTS: Final = 64  # in a row without a pause: no board has as many places
log = structlog.get_logger(__name__)


def _nobody(*_: object) -> None:
    """Tell nobody."""


def _deny() -> bool:
    """Allow nothing."""
    return False


class Nodes(Protocol):
    """Who makes device files; see agent/mig/device_files.py."""

    def nodes(self, minor: int, instance: int, compute: int) -> tuple[DeviceNode, ...]:
        """Return the files of a compute instance, or raise CapabilityError."""

    def graphics(self, pci: str) -> tuple[DeviceNode, ...]:
        """Return the files by which a GPU draws, if it has any."""


class HolderFinder(Protocol):
    """Who finds out what keeps files open; see agent/mig/open_files.py."""

    def holders_of(self, paths: Collection[str]) -> tuple[FileHolder, ...]:
        """Return some of the processes that have one of *paths* open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigServices:
    """What the GPUs of one node share.

    ``counted`` is told how each attempt to cut one ended, ``told`` in a sentence what became of
    which GPU; neither may block. ``may_switch`` says whether the node's owner lets us switch MIG
    mode on where that takes no reset.
    """

    worker: DriverCaller
    journal: JournalWriter
    nodes: Nodes
    holding: HolderFinder
    clock: Clock
    counted: Callable[[Outcome], None] = _nobody
    told: Callable[[str, Outcome, str], None] = _nobody
    may_switch: Callable[[], bool] = _deny


@dataclass(frozen=True, slots=True)
class DesiredInstances:
    """What a GPU is to carry: places by the ledger, and those at which containers may run."""

    promised: frozenset[Placement] = frozenset()
    held: frozenset[Placement] = frozenset()


class GpuController:
    """Keeps the GPU called *uuid* as it is wanted; ``progress`` says how far it is."""

    def __init__(self, uuid: str, tools: MigServices, *, changed: Callable[[], None]) -> None:
        """Look at nothing yet, and change nothing until it is known what is promised.

        *changed* is called whenever ``progress`` has.
        """
        self.uuid = uuid
        self.progress = Progress()
        self._tools = tools
        self._changed = changed
        self._cutter = GpuClient(uuid, tools.worker, tools.journal)
        self._modes = MigModeClient(uuid, tools.worker, tools.may_switch)
        self._wants: DesiredInstances | None = None
        self._cramped: frozenset[PlacementKey] = frozenset()
        self._alone = asyncio.Lock()

    def set_desired(self, wants: DesiredInstances) -> bool:
        """Set what it is to carry, and say whether that is news."""
        if wants == self._wants:
            return False
        self._wants = wants
        self._cramped &= frozenset(map(self.place, wants.promised))
        return True

    def place(self, placed: Placement) -> PlacementKey:
        """Return the key of *placed* here: its profile's name and memory may change, not its id."""
        return PlacementKey(gpu=self.uuid, profile=placed.profile.id, start=placed.start)

    def promises(self, place: PlacementKey) -> bool:
        """Say whether something is promised at *place*."""
        return self._wants is not None and place in map(self.place, self._wants.promised)

    @property
    def pause(self) -> float:
        """Return the seconds after which to look again, if nothing happens before."""
        if self.progress.problem:
            return EVERY
        now = self._tools.clock.monotonic()
        dues = [max(trouble.due - now, 0.0) for trouble in self.progress.troubles.values()]
        waiting = any(not blocked.is_lasting for blocked in self.progress.blocked.values())
        return min([EVERY, *dues, *([SOON] if waiting else [])])

    async def settle(self) -> None:
        """Look, and make the cuts that can be made now; what fails is tried again later."""
        async with self._alone:
            cut = await self._next()
            began, before = self._tools.clock.monotonic(), self.progress
            for _ in range(_CUTS):
                if cut is None:
                    break
                await self._attempt(cut)
                cut = await self._next()
            seconds = self._tools.clock.monotonic() - began
            for outcome, sentence in recuts(before, self.progress, seconds=seconds):
                self._tools.told(self.uuid, outcome, sentence)

    async def _next(self) -> Reconfiguration | None:
        """Observe the GPU, publish its progress, and return the first cut that is due."""
        wants = self._wants
        try:
            device = await self._modes.device(promised=bool(wants and wants.promised))
            situation = await self._look(device, wants or DesiredInstances())
        except (DriverError, UnfitGpuError) as error:
            self._modes.forget()
            known = Progress() if isinstance(error, MigOffError) else self.progress
            self._say(replace(known, problem=str(error)))
            return None
        situation = await self._correct_journal(situation)
        planned = ReconfigurationPlan() if wants is None else plan(situation)
        self._say(self._progress(device, situation, planned))
        now = self._tools.clock.monotonic()
        waiting = {place for place, t in self.progress.troubles.items() if t.due > now}
        return next((cut for cut in planned.cuts if self._aim(cut) not in waiting), None)

    def _say(self, progress: Progress) -> None:
        if progress != self.progress:
            self.progress = progress
            self._changed()

    async def _look(self, device: Device, wants: DesiredInstances) -> GpuSituation:
        board = device.board or board_named(device.model)
        if board is None:
            raise UnfitGpuError(f"the MIG profiles of {device.model} are unknown")
        present = await self._cutter.look()
        driver = self._tools.worker.driver
        used: dict[str, tuple[int, ...]] = {}
        for one in await self._tools.worker.call(driver.processes, self.uuid, within=LOOKING):
            if one.instance is not None:
                used[one.instance] = (*used.get(one.instance, ()), one.pid)
        promised = _current_placements(board, wants.promised)
        return GpuSituation(
            board=board,
            present=present,
            marks=self._tools.journal.marks,
            used=MappingProxyType(used),
            promised=promised,
            held=_current_placements(board, wants.held),
            cramped=frozenset(p for p in promised if self.place(p) in self._cramped),
        )

    async def _correct_journal(self, situation: GpuSituation) -> GpuSituation:
        """Bring the journal up to what was found; a disk that is full delays that."""
        try:
            for act, place, uuid in corrections(situation, self.uuid):
                log.info("journal corrected", act=act, place=place, uuid=uuid)
                await self._tools.journal.write(act, place, uuid)
        except OSError as error:
            log.warning("journal correction failed", gpu=self.uuid, error=str(error))
        return replace(situation, marks=self._tools.journal.marks)

    def _progress(
        self, device: Device, situation: GpuSituation, planned: ReconfigurationPlan
    ) -> Progress:
        ready: dict[PlacementKey, ReadyInstance] = {}
        unreachable: dict[PlacementKey, str] = {}
        for placed, instance in planned.ready.items():
            try:
                ready[self.place(placed)] = self._ready(device, placed, instance)
            except CapabilityError as error:
                unreachable[self.place(placed)] = str(error)
        aims = {self._aim(cut) for cut in planned.cuts}
        troubles = {k: t for k, t in self.progress.troubles.items() if k in aims}
        return Progress(
            present=situation.live_instances,
            ready=MappingProxyType(ready),
            blocked=MappingProxyType({self.place(b.placed): b for b in planned.blocked}),
            unreachable=MappingProxyType(unreachable),
            troubles=MappingProxyType(troubles),
        )

    def _ready(self, device: Device, placed: Placement, instance: Instance) -> ReadyInstance:
        """Return what is to be told of an instance that is whole; its files are in memory."""
        if instance.uuid is None or instance.compute is None:
            raise CapabilityError("it has no compute instance")
        files, profile = self._tools.nodes, placed.profile
        nodes = files.nodes(device.minor, instance.id, instance.compute)
        if profile.graphics:
            nodes += files.graphics(device.pci)
        return ReadyInstance(uuid=instance.uuid, memory=profile.memory, nodes=nodes)

    def _aim(self, cut: Reconfiguration) -> PlacementKey:
        """Return the place that *cut* is to fill, or to clear."""
        if cut.placed is not None:
            return self.place(cut.placed)
        return next(place_of(to_remove) for to_remove in _destroyed_instances(cut))

    async def _attempt(self, cut: Reconfiguration) -> None:
        aim = self._aim(cut)
        try:
            await self._cutter.make(cut, wanted=lambda: self._is_needed(cut))
        except DriverError as error:
            if error.fault is Fault.NO_ROOM:
                self._cramped |= {aim}
            self._fail(cut, await self._why(cut, error))
        except OSError as error:
            self._fail(cut, f"the journal cannot be written: {error}")
        else:
            self._tools.counted(Outcome.DONE)
            self._cramped -= {aim}
            rest = {k: t for k, t in self.progress.troubles.items() if k != aim}
            self._say(replace(self.progress, troubles=MappingProxyType(rest)))
        self._modes.forget()  # what took its instances may have been a reset, with a new minor

    def _is_needed(self, cut: Reconfiguration) -> bool:
        """Say whether *cut* is still for a promise, and nothing that it takes has become one."""
        wants = self._wants or DesiredInstances()
        kept = set(map(self.place, wants.promised | wants.held))
        aimed = cut.placed is None or self.promises(self.place(cut.placed))
        return aimed and kept.isdisjoint(map(place_of, _destroyed_instances(cut)))

    async def _why(self, cut: Reconfiguration, error: DriverError) -> str:
        """Return the driver's words, and for what is in use the processes that hold it."""
        device = self._modes.known
        if error.fault is not Fault.IN_USE or device is None:
            return str(error)
        paths: set[str] = set()
        for instance in _destroyed_instances(cut):
            with_files = instance.compute or 0
            try:
                nodes = self._tools.nodes.nodes(device.minor, instance.id, with_files)
            except CapabilityError:
                continue
            paths |= {node.path for node in nodes if "nvidia-caps" in node.path}
        file_holders = await asyncio.to_thread(
            self._tools.holding.holders_of, paths or {_file(device)}
        )
        return f"{error}; held open by {', '.join(map(str, file_holders)) or 'no visible process'}"

    def _fail(self, cut: Reconfiguration, why: str) -> None:
        self._tools.counted(Outcome.FAILED)
        clock, aim = self._tools.clock, self._aim(cut)
        before = self.progress.troubles.get(aim)
        failures = 1 if before is None else before.failures + 1
        pause = clock.backoff(failures, first=FIRST_PAUSE, most=LONGEST_PAUSE)
        what = (
            "leftover of an interrupted change"
            if cut.placed is None
            else placement_name(cut.placed)
        )
        trouble = FailedReconfiguration(
            what=what, failures=failures, why=why, due=clock.monotonic() + pause
        )
        rest = {**self.progress.troubles, aim: trouble}
        self._say(replace(self.progress, troubles=MappingProxyType(rest)))
        log.warning(
            "MIG reconfiguration failed",
            gpu=self.uuid,
            why=why,
            failures=failures,
            again_in=pause,
        )


def _current_placements(board: Board, wanted: Collection[Placement]) -> frozenset[Placement]:
    return frozenset(current_placement(board, placed) or placed for placed in wanted)


def _destroyed_instances(cut: Reconfiguration) -> tuple[Instance, ...]:
    return tuple(s.instance for s in cut.steps if isinstance(s, DestroyInstance))


def _file(device: Device) -> str:
    return f"/dev/nvidia{device.minor}"
