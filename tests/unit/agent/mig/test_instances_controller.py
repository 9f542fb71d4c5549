"""Instances: made when they are promised, told when they are there, and why when they are not."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import pytest

from agent.driver.driver import Driver, Fault, Instance
from agent.mig.gpu_client import DriverCaller
from agent.mig.journal import JournalAct, PlacementKey
from agent.mig.open_files import FileHolder
from agent.share import DeviceNode, ReadyInstance
from tests.builders.model import A100_40, PRO_6000, placed
from tests.fakes.driver import machine
from tests.harness.mig_agent import Desk
from tests.harness.simulated_boards import GPU

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

SMALL = placed("1g.5gb", 0)
LARGE = placed("2g.10gb", 0)


async def run_with_controller(desk: Desk, story: Coroutine[object, object, None]) -> None:
    """Let the agent run while something happens."""
    task = asyncio.create_task(desk.instances.run())
    try:
        await story
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_a_promise_becomes_an_instance_with_its_files(desk: Desk) -> None:
    """What is promised is created whole, and told with its memory and the files of its ids."""

    async def story() -> None:
        await desk.settle(SMALL)
        ready = await desk.instances.ensure(GPU, SMALL)
        (instance,) = desk.driver.instances(GPU)
        assert ready == ReadyInstance(
            uuid=str(instance.uuid),
            memory=SMALL.profile.memory,
            nodes=(DeviceNode("/dev/nvidia-caps/0.7.0", 234, 7),),
        )
        assert desk.told > 0

    asyncio.run(story())


def test_nothing_moves_before_it_is_known_what_is_promised(desk: Desk) -> None:
    """An agent that has not heard of the ledger yet looks, and neither creates nor destroys."""

    async def story() -> None:
        await desk.settle(SMALL)
        desk.driver.create_instance(GPU, SMALL.profile.id, 3)
        await desk.journal.write(
            JournalAct.PREPARE, PlacementKey(gpu=GPU, profile=SMALL.profile.id, start=3)
        )
        desk.restart()
        await desk.instances.settle()
        assert [live.instance.start for live in desk.instances.live_instances()] == [0, 3]
        assert "has not seen its entry yet" in await desk.why(SMALL)
        await desk.settle()
        assert desk.on() == [(19, 0, True)]

    asyncio.run(story())


def test_a_gpu_that_is_noticed_later_learns_what_is_wanted(desk: Desk) -> None:
    """Once it is known that nothing is promised there, what a crash left on it may go."""

    async def story() -> None:
        desk.driver.create_instance(GPU, SMALL.profile.id, 3)
        await desk.journal.write(
            JournalAct.PREPARE, PlacementKey(gpu=GPU, profile=SMALL.profile.id, start=3)
        )
        await desk.instances.set_desired({})
        assert desk.instances.live_instances() == ()
        await desk.instances.settle()
        assert desk.on() == []
        assert desk.journal.marks == {}

    asyncio.run(story())


def test_who_asks_early_waits_until_it_is_there(desk: Desk) -> None:
    """A container that starts before its promise is known gets its instance as soon as it is."""
    desk.restart(patience=60)

    async def story() -> None:
        asking = asyncio.create_task(desk.instances.ensure(GPU, SMALL))
        await asyncio.sleep(0)
        await desk.instances.set_desired({GPU: [SMALL]})
        assert (await asking).memory == SMALL.profile.memory

    asyncio.run(run_with_controller(desk, story()))


@dataclass
class HangingCaller:
    """A worker that does not come back from one GPU."""

    inner: DriverCaller
    driver: Driver = field(init=False)

    def __post_init__(self) -> None:
        self.driver = self.inner.driver

    async def call(self, function: Callable[[*Ts], T], *args: *Ts, within: float) -> T:
        if GPU in map(str, args):
            await asyncio.Event().wait()
        return await self.inner.call(function, *args, within=within)


def test_a_gpu_that_hangs_delays_no_other(tmp_path: Path) -> None:
    """While one GPU's driver call does not return, an instance on another becomes ready."""
    desk = Desk(tmp_path, machine(A100_40, A100_40))
    other = desk.driver.state().gpus[1].chip.uuid
    desk.restart(patience=60, worker=HangingCaller(desk.tools.worker))

    async def story() -> None:
        await desk.instances.set_desired({GPU: [SMALL], other: [LARGE]})
        assert (await desk.instances.ensure(other, LARGE)).memory == LARGE.profile.memory
        assert desk.on() == []

    asyncio.run(run_with_controller(desk, story()))


def test_an_idle_instance_stays_until_its_slots_are_needed(desk: Desk) -> None:
    """What a promise leaves behind is used again as it is, or makes way for another shape."""

    async def story() -> None:
        await desk.settle(SMALL)
        first = await desk.instances.ensure(GPU, SMALL)
        await desk.settle()
        assert desk.on() == [(19, 0, True)]
        await desk.settle(SMALL)
        assert await desk.instances.ensure(GPU, SMALL) == first
        await desk.settle(LARGE)
        assert desk.on() == [(14, 0, True)]

    asyncio.run(story())


@pytest.mark.parametrize("fault", [Fault.OTHER, Fault.NO_ROOM, Fault.UNAVAILABLE])
def test_a_failure_after_the_gpu_instance_is_rolled_back(desk: Desk, fault: Fault) -> None:
    """When compute cannot be created nothing is left, the user reads why, and it is tried again."""
    desk.faults.at["create_compute", 1] = fault

    async def story() -> None:
        await desk.settle(SMALL)
        assert desk.on() == []
        assert desk.journal.marks == {}
        assert "create_compute: call 1 fails, as the test says (tried once)" in await desk.why(
            SMALL
        )
        await desk.again()
        assert (await desk.instances.ensure(GPU, SMALL)).memory == SMALL.profile.memory
        assert desk.instances.failures() == {GPU: ()}

    asyncio.run(story())


@pytest.mark.parametrize(
    ("call", "lie"),
    [
        pytest.param("create_instance", {"start": 3}, id="elsewhere"),
        pytest.param("create_compute", {"uuid": "MIG-other"}, id="another-uuid"),
        pytest.param("create_compute", {"uuid": None}, id="no-uuid"),
    ],
)
def test_what_the_driver_made_is_read_back(
    desk: Desk, call: str, lie: dict[str, int | str | None]
) -> None:
    """An instance that is not what was asked for, or what is listed, does not stay."""

    def lied(made: object) -> object:
        assert isinstance(made, Instance)
        return replace(made, **lie)  # type: ignore[arg-type]  # of whatever type the field is

    desk.after[call] = lied

    async def story() -> None:
        await desk.settle(SMALL)
        assert desk.on() == []
        assert "asked for 1g.5gb at slot 0, the driver created profile 19" in await desk.why(SMALL)
        await desk.again()
        assert desk.on() == [(19, 0, True)]

    asyncio.run(story())


def test_a_promise_that_is_withdrawn_meanwhile_is_not_cut_for(desk: Desk) -> None:
    """Between two steps it is asked again whether they are still for something."""

    def withdraw(answer: object) -> object:
        withdrawn.append(asyncio.create_task(desk.instances.set_desired({GPU: []})))
        return answer

    withdrawn: list[asyncio.Task[None]] = []

    async def story() -> None:
        await desk.settle(SMALL)
        desk.after["destroy_compute"] = withdraw
        await desk.settle(LARGE)
        assert withdrawn
        assert desk.on() == []
        assert desk.faults.calls["create_instance"] == 1

    asyncio.run(story())


def test_a_place_that_is_held_meanwhile_is_not_destroyed(desk: Desk) -> None:
    """A container started at a place that was idle when the cut was planned: it keeps it."""

    def hold(answer: object) -> object:
        held.append(
            asyncio.create_task(desk.instances.set_desired({GPU: [LARGE]}, held={GPU: [SMALL]}))
        )
        return answer

    held: list[asyncio.Task[None]] = []

    async def story() -> None:
        await desk.settle(SMALL)
        before = desk.driver.instances(GPU)
        desk.after["instances"] = hold
        await desk.settle(LARGE)
        assert held
        assert desk.driver.instances(GPU) == before
        assert "is held by a container that may still be running" in await desk.why(LARGE)

    asyncio.run(story())


def test_what_cannot_be_rolled_back_is_finished_later(desk: Desk) -> None:
    """A GPU instance that stays without compute is completed, since it is where it is promised."""
    desk.faults.at |= {("create_compute", 1): Fault.OTHER, ("destroy_instance", 1): Fault.IN_USE}

    async def story() -> None:
        await desk.settle(SMALL)
        assert desk.on() == [(19, 0, False)]
        await desk.again()
        assert desk.on() == [(19, 0, True)]
        assert desk.faults.calls["create_instance"] == 1

    asyncio.run(story())


def test_a_stuck_instance_is_reported_with_the_processes_that_hold_it(desk: Desk) -> None:
    """Compute gone and the instance held: that is said, counted, tried again, and passes."""
    desk.open.holders = (FileHolder(31, "dcgm"),)

    async def story() -> None:
        await desk.settle(SMALL)
        desk.change(lambda gpu: replace(gpu, leaks=frozenset({7})))
        await desk.settle(LARGE)
        assert desk.on() == [(19, 0, False)]
        assert desk.open.asked[-1] == {"/dev/nvidia-caps/0.7.0"}
        assert "held open by pid 31 (dcgm) (tried once)" in await desk.why(LARGE)
        await desk.instances.settle()
        assert desk.faults.calls["destroy_instance"] == 1, "before it is due"
        await desk.again()
        await desk.again()
        (trouble,) = desk.instances.failures()[GPU]
        assert (trouble.is_stuck, trouble.failures) == (True, 3)
        desk.change(lambda gpu: replace(gpu, leaks=frozenset()))
        await desk.again()
        assert desk.on() == [(14, 0, True)]
        assert desk.instances.failures() == {GPU: ()}

    asyncio.run(story())


def test_engines_that_idle_instances_have_are_taken_back(tmp_path: Path) -> None:
    """Where slots are free and the driver still finds no room, what is idle goes."""
    desk = Desk(tmp_path, machine(PRO_6000))
    all_media = placed("1g.24gb+me.all", 6, PRO_6000)

    async def story() -> None:
        await desk.settle(placed("1g.24gb", 0, PRO_6000))
        await desk.settle(all_media)
        assert "no free engines" in await desk.why(all_media)
        await desk.again()
        assert desk.on() == [(65, 6, True)]

    asyncio.run(story())


def test_nothing_is_done_that_the_journal_cannot_hold(desk: Desk) -> None:
    """On a full disk no instance is created, and the user reads why."""

    async def story() -> None:
        desk.full = True
        await desk.settle(SMALL)
        assert desk.on() == []
        assert "the journal cannot be written: [Errno 28] No space left" in await desk.why(SMALL)
        desk.full = False
        await desk.again()
        assert desk.on() == [(19, 0, True)]

    asyncio.run(story())
