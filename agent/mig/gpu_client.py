"""One GPU at the driver: GpuClient performs journalled steps, MigModeClient enables MIG mode.

Every change is written to the journal before the driver call.
"""

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
from agent.mig.progress import mig_off_reason
from allocator.model.board import Placement

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
READ_TIMEOUT: Final = 15.0  # seconds for the driver to list instances or processes
CHANGE_TIMEOUT: Final = 60.0  # seconds for one change; 10 s have been seen
_PREPARED: Final = Mark(pending=True)  # of a place where an instance is about to be created
log = structlog.get_logger(__name__)


class DriverCaller(Protocol):
    """Makes one driver call at a time; see agent/driver/driver_thread.py."""

    driver: Driver

    async def call(self, function: Callable[[*Ts], T], *args: *Ts, within: float) -> T:
        """Return what a method of the driver answers, or raise DriverError."""


class JournalWriter(Protocol):
    """Records which places are ours; see agent/mig/journal_files.py."""

    marks: Marks

    async def write(self, act: JournalAct, place: PlacementKey, uuid: str | None = None) -> None:
        """Put a record on disk, or raise OSError."""


class GpuClient:
    """Reconfigures one GPU, called *gpu*; callers make one change at a time."""

    def __init__(self, gpu: str, worker: DriverCaller, journal: JournalWriter) -> None:
        """Touch nothing yet."""
        self._gpu = gpu
        self._worker = worker
        self._journal = journal

    async def perform(
        self, reconfiguration: Reconfiguration, *, is_needed: Callable[[], bool]
    ) -> None:
        """Perform the steps; stop between two of them once *is_needed* returns false.

        Raises DriverError where the driver refuses, OSError where the journal cannot be written.
        An incomplete instance is removed again, as far as the driver allows.
        """
        without_compute: Instance | None = None
        for step in reconfiguration.steps:
            if not is_needed():
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
                    without_compute = await self._create(placed)
                case CreateCompute(placed, instance):
                    await self._create_compute(placed, instance or without_compute)
                case _:
                    assert_never(step)

    async def instances(self) -> tuple[Instance, ...]:
        """Return the instances that the driver lists."""
        return await self._worker.call(self._driver.instances, self._gpu, within=READ_TIMEOUT)

    @property
    def _driver(self) -> Driver:
        return self._worker.driver

    async def _destroy_compute(self, instance: Instance) -> None:
        await self._journal.write(JournalAct.DOOM, place_of(instance), instance.uuid)
        await self._call_destroy_compute(instance)

    async def _call_destroy_compute(self, instance: Instance) -> None:
        if instance.compute is not None:
            call = self._driver.destroy_compute
            await self._worker.call(
                call, self._gpu, instance.id, instance.compute, within=CHANGE_TIMEOUT
            )

    async def _destroy_instance(self, instance: Instance) -> None:
        place = place_of(instance)
        mark = self._journal.marks.get(place)
        if mark is None or not mark.pending:
            await self._journal.write(JournalAct.DOOM, place, None if mark is None else mark.uuid)
        await self._call_destroy_instance(instance)

    async def _call_destroy_instance(self, instance: Instance) -> None:
        call = self._driver.destroy_instance
        await self._worker.call(call, self._gpu, instance.id, within=CHANGE_TIMEOUT)
        await self._journal.write(JournalAct.GONE, place_of(instance))

    async def _create(self, placed: Placement) -> Instance:
        """Create an instance without compute; one that the driver put elsewhere is removed."""
        await self._journal.write(JournalAct.PREPARE, self._key(placed))
        profile = placed.profile.id
        call = self._driver.create_instance
        created = await self._worker.call(
            call, self._gpu, profile, placed.start, within=CHANGE_TIMEOUT
        )
        if place_of(created) != self._key(placed):
            await self._undo(created)
            raise _wrong_instance_error("create_instance", placed, created)
        return created

    async def _create_compute(self, placed: Placement, without_compute: Instance | None) -> None:
        """Create compute and read the instance back; if that fails, remove the instance."""
        if without_compute is None:
            raise DriverError(
                Fault.ABSENT, "create_compute", f"no instance {placement_name(placed)}"
            )
        if self._journal.marks.get(self._key(placed)) != _PREPARED:
            await self._journal.write(JournalAct.PREPARE, self._key(placed))
        try:
            call = self._driver.create_compute
            created = await self._worker.call(
                call, self._gpu, without_compute.id, within=CHANGE_TIMEOUT
            )
            if created.uuid is None or created not in await self.instances():
                raise _wrong_instance_error("create_compute", placed, created)
        except DriverError:
            await self._undo(without_compute)
            raise
        await self._journal.write(JournalAct.COMMIT, self._key(placed), created.uuid)

    async def _undo(self, created: Instance) -> None:
        """Remove what was just created; what the driver refuses is left to the next round."""
        with suppress(DriverError):
            for instance in await self.instances():
                if instance.id == created.id:
                    await self._call_destroy_compute(instance)
                    await self._call_destroy_instance(instance)

    def _key(self, placed: Placement) -> PlacementKey:
        return PlacementKey(gpu=self._gpu, profile=placed.profile.id, start=placed.start)


def _wrong_instance_error(call: str, placed: Placement, created: Instance) -> DriverError:
    description = f"profile {created.profile} at slot {created.start}, {created.uuid or 'no UUID'}"
    return DriverError(
        Fault.OTHER, call, f"asked for {placement_name(placed)}, the driver created {description}"
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
    """The GPU is not in MIG mode, so it has no instances."""


class MigModeClient:
    """Finds the GPU called *gpu* and enables its MIG mode; ``known`` is the device it found."""

    def __init__(self, gpu: str, worker: DriverCaller, may_enable_mig: Callable[[], bool]) -> None:
        """Touch nothing yet; *may_enable_mig* says whether the node's owner allows it."""
        self._gpu = gpu
        self._worker = worker
        self._may_enable_mig = may_enable_mig
        self.known: Device | None = None

    async def device(self, *, promised: bool) -> Device:
        """Return the GPU in MIG mode; enable that first where it is allowed and needs no reset.

        Where instances are *promised*, the GPU was in MIG mode when they were, and nothing else is
        promised on it. From Hopper on, a reboot ends the mode and enabling it needs no reset. Older
        GPUs need a reset, which the agent never makes.

        Raises MigOffError with what the node's owner should do, UnfitGpuError for a GPU that is not
        listed, or DriverError.
        """
        if self.known is None or not _in_mig_mode(self.known):
            self.known = await self._device()
            ours = promised and self._may_enable_mig() and not self.known.ampere_or_older
            if ours and self.known.mig is not None and not _in_mig_mode(self.known):
                self.known = await self._enable_mig(self.known)
        if not _in_mig_mode(self.known):
            raise MigOffError(mig_off_reason(self.known))
        return self.known

    def forget(self) -> None:
        """Drop the known device, so that the next call asks the driver again."""
        self.known = None

    async def _device(self) -> Device:
        driver = self._worker.driver
        for device in await self._worker.call(driver.devices, within=READ_TIMEOUT):
            if device.uuid == self._gpu:
                return device
        raise UnfitGpuError("the driver does not list this GPU")

    async def _enable_mig(self, device: Device) -> Device:
        driver = self._worker.driver
        clients = await self._worker.call(driver.processes, self._gpu, within=READ_TIMEOUT)
        if clients:
            return device
        log.warning("enabling MIG mode", gpu=self._gpu, model=device.model)
        mode = await self._worker.call(driver.enable_mig, self._gpu, within=CHANGE_TIMEOUT)
        return replace(device, mig=mode)


def _in_mig_mode(device: Device) -> bool:
    return device.mig is not None and device.mig.current
