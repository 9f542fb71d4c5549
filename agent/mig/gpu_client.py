"""Performs steps on one GPU, journalled; enables MIG mode."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol, TypeVar, TypeVarTuple, assert_never

import structlog

from agent.driver.driver import Device, Driver, DriverError, Fault, Instance
from agent.mig.instance_state import place_of
from agent.mig.journal import JournalAct, Mark, Marks, PlacementKey
from agent.mig.plan import (
    Create,
    CreateCompute,
    DestroyCompute,
    DestroyInstance,
    Reconfiguration,
    placement_name,
)
from agent.mig.progress import mode_off
from allocator.model.board import Placement

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
LOOKING: Final = 15.0  # seconds that the driver has to list instances or processes
CUTTING: Final = 60.0  # seconds that it has for one change: 10 s have been seen
_BEGUN: Final = Mark(half=True)  # of a place at which any UUID is the one that was waited for
log = structlog.get_logger(__name__)


class DriverCaller(Protocol):
    """Who asks the driver, one call at a time; see agent/driver/driver_thread.py."""

    driver: Driver

    async def call(self, function: Callable[[*Ts], T], *args: *Ts, within: float) -> T:
        """Return what a method of the driver answers, or raise DriverError."""


class JournalWriter(Protocol):
    """What says which places are ours; see agent/mig/journal_files.py."""

    marks: Marks

    async def write(self, act: JournalAct, place: PlacementKey, uuid: str | None = None) -> None:
        """Put a record on disk, or raise OSError."""


class GpuClient:
    """Cuts one GPU, called *gpu*; never two cuts at once."""

    def __init__(self, gpu: str, worker: DriverCaller, journal: JournalWriter) -> None:
        """Touch nothing yet."""
        self._gpu = gpu
        self._worker = worker
        self._journal = journal

    async def make(self, cut: Reconfiguration, *, wanted: Callable[[], bool]) -> None:
        """Perform the steps of *cut*; stop between two of them once it is not *wanted* any more.

        Raises DriverError where the driver refuses, OSError where the journal cannot be written.
        What was created until then is removed again, as far as the driver lets us.
        """
        bare: Instance | None = None
        for step in cut.steps:
            if not wanted():
                break
            log.info(
                "MIG reconfiguration step",
                gpu=self._gpu,
                step=type(step).__name__,
                **_step_fields(step),
            )
            match step:
                case DestroyCompute(instance):
                    await self._destroy_compute(instance)
                case DestroyInstance(instance):
                    await self._destroy_instance(instance)
                case Create(placed):
                    bare = await self._create(placed)
                case CreateCompute(placed, instance):
                    await self._complete(placed, instance or bare)
                case _:
                    assert_never(step)

    async def look(self) -> tuple[Instance, ...]:
        """Return the instances that the driver lists."""
        return await self._worker.call(self._driver.instances, self._gpu, within=LOOKING)

    @property
    def _driver(self) -> Driver:
        return self._worker.driver

    async def _destroy_compute(self, instance: Instance) -> None:
        await self._journal.write(JournalAct.DOOM, place_of(instance), instance.uuid)
        await self._take_compute(instance)

    async def _take_compute(self, instance: Instance) -> None:
        if instance.compute is not None:
            call = self._driver.destroy_compute
            await self._worker.call(call, self._gpu, instance.id, instance.compute, within=CUTTING)

    async def _destroy_instance(self, instance: Instance) -> None:
        place = place_of(instance)
        mark = self._journal.marks.get(place)
        if mark is None or not mark.half:
            await self._journal.write(JournalAct.DOOM, place, None if mark is None else mark.uuid)
        await self._take_instance(instance)

    async def _take_instance(self, instance: Instance) -> None:
        call = self._driver.destroy_instance
        await self._worker.call(call, self._gpu, instance.id, within=CUTTING)
        await self._journal.write(JournalAct.GONE, place_of(instance))

    async def _create(self, placed: Placement) -> Instance:
        """Create without compute; one that the driver put elsewhere does not stay."""
        await self._journal.write(JournalAct.PREPARE, self._place(placed))
        profile = placed.profile.id
        call = self._driver.create_instance
        made = await self._worker.call(call, self._gpu, profile, placed.start, within=CUTTING)
        if place_of(made) != self._place(placed):
            await self._undo(made)
            raise _wrong_instance_error("create_instance", placed, made)
        return made

    async def _complete(self, placed: Placement, bare: Instance | None) -> None:
        """Create compute and read the whole back; all of it goes if that fails."""
        if bare is None:
            raise DriverError(
                Fault.ABSENT, "create_compute", f"no instance {placement_name(placed)}"
            )
        if self._journal.marks.get(self._place(placed)) != _BEGUN:
            await self._journal.write(JournalAct.PREPARE, self._place(placed))
        try:
            call = self._driver.create_compute
            made = await self._worker.call(call, self._gpu, bare.id, within=CUTTING)
            if made.uuid is None or made not in await self.look():
                raise _wrong_instance_error("create_compute", placed, made)
        except DriverError:
            await self._undo(bare)
            raise
        await self._journal.write(JournalAct.COMMIT, self._place(placed), made.uuid)

    async def _undo(self, made: Instance) -> None:
        """Remove what we have just created; what resists is left to the next look."""
        with suppress(DriverError):
            for instance in await self.look():
                if instance.id == made.id:
                    await self._take_compute(instance)
                    await self._take_instance(instance)

    def _place(self, placed: Placement) -> PlacementKey:
        return PlacementKey(gpu=self._gpu, profile=placed.profile.id, start=placed.start)


def _wrong_instance_error(call: str, placed: Placement, made: Instance) -> DriverError:
    found = f"profile {made.profile} at slot {made.start}, {made.uuid or 'no UUID'}"
    return DriverError(
        Fault.OTHER, call, f"asked for {placement_name(placed)}, the driver created {found}"
    )


def _step_fields(
    step: Create | CreateCompute | DestroyCompute | DestroyInstance,
) -> dict[str, object]:
    match step:
        case Create(placed) | CreateCompute(placed):
            return {"placed": placement_name(placed)}
        case DestroyCompute(instance) | DestroyInstance(instance):
            return {"instance": instance.uuid or instance.id, "start": instance.start}
        case _:
            assert_never(step)


class UnfitGpuError(Exception):
    """The GPU cannot carry instances as it is."""


class MigOffError(UnfitGpuError):
    """It is out of MIG mode, so that it has none any more."""


class MigModeClient:
    """Knows the GPU called *gpu* as a device, in ``known`` once it was found."""

    def __init__(self, gpu: str, worker: DriverCaller, may_switch: Callable[[], bool]) -> None:
        """Look at nothing yet; *may_switch* says whether the node's owner lets us."""
        self._gpu = gpu
        self._worker = worker
        self._may_switch = may_switch
        self.known: Device | None = None

    async def device(self, *, promised: bool) -> Device:
        """Return the GPU, in MIG mode; asked for again while it is not.

        Where instances are *promised* the GPU was in MIG mode when they were, and nothing else is
        promised on it. From Hopper on, a reboot ends the mode and enabling it needs no reset. Older
        GPUs need a reset, which the agent never makes.

        Raises UncutError with what the node's owner should do, UnfitError for a GPU that is not
        listed, or DriverError.
        """
        if self.known is None or not _cut(self.known):
            self.known = await self._device()
            ours = promised and self._may_switch() and not self.known.ampere_or_older
            if ours and self.known.mig is not None and not _cut(self.known):
                self.known = await self._enable_mig(self.known)
        if not _cut(self.known):
            raise MigOffError(mode_off(self.known))
        return self.known

    def forget(self) -> None:
        """Ask the driver again before the next look."""
        self.known = None

    async def _device(self) -> Device:
        driver = self._worker.driver
        for device in await self._worker.call(driver.devices, within=LOOKING):
            if device.uuid == self._gpu:
                return device
        raise UnfitGpuError("the driver does not list this GPU")

    async def _enable_mig(self, device: Device) -> Device:
        driver = self._worker.driver
        clients = await self._worker.call(driver.processes, self._gpu, within=LOOKING)
        if clients:
            return device
        log.warning("enabling MIG mode", gpu=self._gpu, model=device.model)
        mode = await self._worker.call(driver.enable_mig, self._gpu, within=CUTTING)
        return replace(device, mig=mode)


def _cut(device: Device) -> bool:
    return device.mig is not None and device.mig.current
