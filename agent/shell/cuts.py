"""Cuts: performs MIG changes step by step, each recorded in the journal before and after.

A process may die between any two lines. The next look finds a place that the journal marks, with
nothing, a part, or the whole of an instance there, and can continue from that.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, TypeVar, TypeVarTuple, assert_never

import structlog

from agent.core.cutting import (
    Create,
    CreateCompute,
    DestroyCompute,
    DestroyInstance,
    Reconfiguration,
    placement_name,
)
from agent.core.driver import Driver, DriverError, Fault, Instance
from agent.core.journalrecord import JournalAct, Mark, Marks, PlacementKey
from agent.core.standing import place_of
from allocator.model.board import Placement

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LOOKING: Final = 15.0  # seconds that the driver has to list instances or processes
CUTTING: Final = 60.0  # seconds that it has for one change: 10 s have been seen
_BEGUN: Final = Mark(half=True)  # of a place at which any UUID is the one that was waited for

log = structlog.get_logger(__name__)


class DriverCaller(Protocol):
    """Who asks the driver, one call at a time; see agent/shell/worker.py."""

    driver: Driver

    async def call(self, function: Callable[[*Ts], T], *args: *Ts, within: float) -> T:
        """Return what a method of the driver answers, or raise DriverError."""


class JournalWriter(Protocol):
    """What says which places are ours; see agent/shell/journal.py."""

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
