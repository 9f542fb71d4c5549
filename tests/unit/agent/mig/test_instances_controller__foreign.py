"""Strangers: instances, processes and modes that are not the agent's doing are left as they are."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agent.driver.driver import Fault, MigMode, Process
from allocator.model.units import MiB
from tests.builders.model import A100_40, placed
from tests.fakes.driver import T4, floor_swept, machine
from tests.harness.mig_agent import Desk
from tests.harness.simulated_boards import GPU

SMALL = placed("1g.5gb", 0)
LARGE = placed("2g.10gb", 0)


def test_an_instance_that_somebody_made_is_reserved(desk: Desk) -> None:
    """It is told as closing its slots, never destroyed, and a promise there says what is so."""

    async def story() -> None:
        stranger = desk.hand(SMALL)
        await desk.settle()
        (live,) = desk.instances.live_instances()
        assert (live.placed, live.ours, live.is_reserved) == (SMALL, False, True)
        for wanted in (LARGE, SMALL):
            await desk.settle(wanted)
            assert "was not created by this agent, which leaves it alone" in await desk.why(wanted)
        assert desk.driver.instances(GPU) == (stranger,)

    asyncio.run(story())


def test_an_instance_without_compute_that_somebody_made_is_reserved_too(desk: Desk) -> None:
    """Somebody in the middle of making an instance is not disturbed."""

    async def story() -> None:
        desk.driver.create_instance(GPU, SMALL.profile.id, SMALL.start)
        await desk.settle(LARGE)
        assert desk.on() == [(19, 0, False)]
        assert desk.instances.live_instances()[0].is_reserved

    asyncio.run(story())


def test_what_containers_hold_is_ours_whoever_made_it(tmp_path: Path) -> None:
    """After a lost journal, or another agent, a running container keeps its instance."""
    desk = Desk(tmp_path)

    async def story() -> None:
        tenant = desk.hand(SMALL)
        await desk.settle(SMALL, held=(SMALL,))
        assert (await desk.instances.ensure(GPU, SMALL)).uuid == tenant.uuid
        desk.restart()
        await desk.settle()
        assert desk.instances.live_instances()[0].idle

    asyncio.run(story())


def test_an_instance_that_was_replaced_by_hand_is_foreign(desk: Desk) -> None:
    """An instance of ours that somebody destroyed and made anew is not ours any more."""

    async def story() -> None:
        await desk.settle(SMALL)
        (ours,) = desk.driver.instances(GPU)
        desk.driver.destroy_compute(GPU, ours.id, 0)
        desk.driver.destroy_instance(GPU, ours.id)
        theirs = desk.hand(SMALL)
        assert theirs.id == ours.id
        await desk.settle(LARGE)
        assert desk.driver.instances(GPU) == (theirs,)
        assert desk.journal.marks == {}

    asyncio.run(story())


def test_one_that_was_destroyed_by_hand_is_made_again(desk: Desk) -> None:
    """A promise whose instance vanished gets another one."""

    async def story() -> None:
        await desk.settle(SMALL)
        before = await desk.instances.ensure(GPU, SMALL)
        desk.change(lambda gpu: replace(gpu, instances=()))
        await desk.again()
        after = await desk.instances.ensure(GPU, SMALL)
        assert before.uuid != after.uuid

    asyncio.run(story())


def test_an_instance_that_is_not_listed_once_stays_its_tenants(desk: Desk) -> None:
    """A driver that leaves a held instance out of one listing does not make it a stranger's."""

    async def story() -> None:
        await desk.settle(SMALL)
        before = await desk.instances.ensure(GPU, SMALL)
        listed = desk.driver.instances(GPU)
        desk.faults.at |= {("create_instance", 2): Fault.NO_ROOM}
        desk.after["instances"] = lambda _: ()
        await desk.settle(SMALL, held=(SMALL,))
        await desk.again()
        assert desk.driver.instances(GPU) == listed
        assert await desk.instances.ensure(GPU, SMALL) == before

    asyncio.run(story())


def test_a_process_in_the_way_is_waited_for(desk: Desk) -> None:
    """An instance with a process on it stays, is told with its pid, and goes when that ends."""

    async def story() -> None:
        await desk.settle(SMALL)
        (instance,) = desk.driver.instances(GPU)
        process = Process(pid=77, gpu=GPU, memory=MiB(1), instance=instance.uuid)
        desk.change(lambda gpu: replace(gpu, processes=(process,)))
        await desk.settle(LARGE)
        assert (await desk.why(LARGE)).endswith("is still in use by pid 77")
        assert desk.instances.live_instances()[0].is_reserved
        assert desk.faults.calls["destroy_compute"] == 0
        desk.change(lambda gpu: replace(gpu, processes=()))
        await desk.again()
        assert desk.on() == [(14, 0, True)]

    asyncio.run(story())


def test_mig_mode_is_not_switched(desk: Desk) -> None:
    """A GPU out of MIG mode is left so, the user reads what its owner does, and it is noticed."""

    async def story() -> None:
        desk.change(lambda gpu: replace(gpu, mig=MigMode(current=False, pending=False)))
        await desk.settle(SMALL)
        assert "drain the node and run nvidia-smi -i 0000:01:00.0 -mig 1" in await desk.why(SMALL)
        desk.change(lambda gpu: replace(gpu, mig=MigMode(current=False, pending=True)))
        await desk.again()
        assert "takes effect at the GPU's next reset" in await desk.why(SMALL)
        desk.change(lambda gpu: replace(gpu, mig=MigMode(current=True, pending=True)))
        await desk.again()
        assert desk.on() == [(19, 0, True)]

    asyncio.run(story())


def test_a_gpu_without_mig_says_so(tmp_path: Path) -> None:
    """A promise on a GPU that cannot be cut is answered, not retried in silence."""
    desk = Desk(tmp_path, machine(T4))

    async def story() -> None:
        await desk.settle(SMALL)
        assert "Tesla T4 does not support MIG" in await desk.why(SMALL)

    asyncio.run(story())


@pytest.mark.parametrize("call", ["devices", "instances", "processes"])
def test_a_driver_that_does_not_answer_is_asked_again(desk: Desk, call: str) -> None:
    """While the driver fails nothing is changed, and afterwards all goes on."""
    desk.faults.at |= {(call, n): Fault.UNAVAILABLE for n in range(1, 4)}

    async def story() -> None:
        await desk.settle(SMALL)
        assert "fails, as the test says" in await desk.why(SMALL)
        assert desk.on() == []
        for _ in range(3):
            await desk.again()
        assert desk.on() == [(19, 0, True)]

    asyncio.run(story())


def test_a_gpu_that_was_reset_is_reached_by_its_new_minor(desk: Desk) -> None:
    """A reset takes the instances and may number the GPU anew: its files are looked up again."""

    async def story() -> None:
        await desk.settle(SMALL)
        desk.change(lambda gpu: replace(gpu, instances=(), chip=replace(gpu.chip, minor=5)))
        await desk.again()
        assert [node.path for node in (await desk.instances.ensure(GPU, SMALL)).nodes] == [
            "/dev/nvidia-caps/5.7.0"
        ]

    asyncio.run(story())


def test_a_mode_that_is_switched_off_later_is_noticed(desk: Desk) -> None:
    """A GPU that its owner takes out of MIG mode says so to who waits for it."""

    async def story() -> None:
        await desk.settle()
        desk.change(lambda gpu: replace(gpu, mig=MigMode(current=False, pending=False)))
        await desk.settle(SMALL)
        await desk.again()
        assert "MIG mode is off: drain the node" in await desk.why(SMALL)

    asyncio.run(story())


def test_instances_go_with_the_mode(desk: Desk) -> None:
    """None is told or handed out that a GPU cannot have any more."""

    async def story() -> None:
        await desk.settle(SMALL)
        off = MigMode(current=False, pending=False)
        desk.change(lambda gpu: replace(gpu, mig=off, instances=()))
        desk.faults.at["instances", desk.faults.calls["instances"] + 1] = Fault.UNAVAILABLE
        await desk.again()
        assert len(desk.instances.live_instances()) == 1, "a driver that does not answer"
        await desk.again()
        assert desk.instances.live_instances() == ()
        assert "MIG mode is off: drain the node" in await desk.why(SMALL)

    asyncio.run(story())


def test_a_gpu_that_is_cut_by_others_while_the_agent_runs_is_noticed(tmp_path: Path) -> None:
    """Its instances close their slots before anything is promised beside them."""
    desk = Desk(tmp_path, machine(A100_40, mig=False))

    async def story() -> None:
        await desk.instances.settle()
        desk.change(lambda gpu: replace(gpu, mig=MigMode(current=True, pending=True)))
        stranger = desk.hand(SMALL)
        task = asyncio.create_task(desk.instances.run())
        desk.instances.watch_mig_gpus(desk.driver.devices())
        async with asyncio.timeout(5):
            while not desk.instances.live_instances():  # noqa: ASYNC110 -- of another task
                await asyncio.sleep(0)
        task.cancel()
        assert [live.instance for live in desk.instances.live_instances()] == [stranger]

    asyncio.run(story())


def test_a_lost_gpu_keeps_what_was_known(desk: Desk) -> None:
    """A GPU that fell off the bus is told as it was: its tenants' promises are not forgotten."""

    async def story() -> None:
        await desk.settle(SMALL)
        ready = await desk.instances.ensure(GPU, SMALL)
        desk.change(lambda gpu: replace(gpu, lost=True))
        await desk.again()
        assert [live.instance.uuid for live in desk.instances.live_instances()] == [ready.uuid]
        assert "GPU" in await desk.why(LARGE)

    asyncio.run(story())


def test_places_are_those_of_this_very_gpu(tmp_path: Path) -> None:
    """A promise at a place that this GPU lacks, though its siblings have it, is not attempted."""
    desk = Desk(tmp_path, floor_swept())

    async def story() -> None:
        lacking = placed("1g.5gb", 2)
        await desk.settle(lacking, placed("1g.5gb", 4))
        assert f"the board {A100_40} has no such placement" in await desk.why(lacking)
        assert desk.on() == [(19, 4, True)]

    asyncio.run(story())


def test_a_rebooted_node_is_cut_as_promised(tmp_path: Path) -> None:
    """What the journal says of the last boot is void; what is promised is made again."""
    desk = Desk(tmp_path)

    async def before() -> None:
        await desk.settle(SMALL)

    async def after() -> None:
        await again.settle(placed("2g.10gb", 2))
        assert (await again.instances.ensure(GPU, placed("2g.10gb", 2))).uuid
        assert again.on() == [(14, 2, True)]

    asyncio.run(before())
    desk.journal.close()
    again = Desk(tmp_path, machine(A100_40, boot="boot-2"), boot="boot-2")
    assert again.journal.marks == {}
    asyncio.run(after())
