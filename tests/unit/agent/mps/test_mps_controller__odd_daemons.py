"""A GPU in mode mps whose daemon, disk or driver does not do what it is told."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.driver.driver import ComputeMode, Fault
from agent.mps.commands import (
    quit_daemon,
    server_memory,
    server_threads,
    start_server,
    terminate_client,
)
from agent.mps.daemon import DaemonError
from agent.mps.gpu_controller import (
    LONGEST_PAUSE,
    LOOK_INTERVAL,
    QUIT_SECONDS,
    WAIT_INTERVAL,
    MpsGpuController,
    MpsServices,
)
from agent.mps.plan import FAULT_GRACE, MpsDesired, Waiting
from agent.mps.simulated import simulated_daemon
from agent.mps.simulated.simulated_files import SimulatedDaemons
from agent.mps.trouble import MpsTroubleKind
from allocator.model.units import CorePercent, MiB
from tests.harness.mps_desk import GPU, OTHER, MpsDesk, grant
from tests.unit.agent.mps.test_mps_controller__static import A, settle, start


class OddDaemons(SimulatedDaemons):
    """Daemons that answer some commands in a way of their own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.answers: dict[str, str | Exception] = {}  # by the first word of a command
        self.asked: list[str] = []
        self.stuck = 0  # how often its folders cannot be removed

    async def remove(self, gpu: str) -> None:
        if self.stuck:
            self.stuck -= 1
            raise DaemonError("the folders of its MPS daemon stay")
        await super().remove(gpu)

    async def ask(self, gpu: str, command: str) -> str:
        self.asked.append(command)
        odd = self.answers.get(command.split(maxsplit=1)[0])
        if isinstance(odd, Exception):
            raise odd
        return await super().ask(gpu, command) if odd is None else odd


class Desk(MpsDesk):
    """A machine of odd daemons."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.daemons: OddDaemons = OddDaemons(self.folder)
        self.restart()

    def services(self) -> MpsServices:
        return MpsServices(
            worker=self.worker,
            daemons=self.daemons,
            journal=self.journal,
            book=self.book,
            clock=self.clock.clock(),
        )

    def server(self) -> int:
        server = self.daemon().server
        assert server is not None
        return server.pid


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path, patience=1)
    yield desk
    asyncio.run(desk.worker.close())


def test_a_daemon_that_does_not_quit_is_killed(desk: Desk) -> None:
    """It had its time; the GPU must not stay in EXCLUSIVE_PROCESS because of it."""

    async def story() -> None:
        await desk.settle(grant())
        desk.daemons.answers["quit"] = DaemonError("no answer within 5 s")
        await desk.settle(configured=())
        assert desk.daemons.asked.count(quit_daemon(QUIT_SECONDS)) == 1
        assert sum(desk.clock.slept) == pytest.approx(QUIT_SECONDS)
        assert desk.compute() is ComputeMode.DEFAULT
        assert desk.mps.is_idle

    asyncio.run(story())


def test_the_next_daemon_is_asked_to_quit_too(desk: Desk) -> None:
    """That the daemon before it did not quit is not held against it."""

    async def story() -> None:
        await desk.settle(grant())
        desk.daemons.answers["quit"] = DaemonError("no answer within 5 s")
        await desk.settle(configured=())
        desk.daemons.answers.clear()
        await desk.settle(grant())
        await desk.settle(configured=())
        assert desk.daemons.asked.count(quit_daemon(QUIT_SECONDS)) == 2
        assert desk.mps.is_idle

    asyncio.run(story())


def test_folders_that_stay_are_removed_later(desk: Desk) -> None:
    """Until then the GPU is not idle, and no uninstall is over."""

    async def story() -> None:
        await desk.settle(grant())
        desk.daemons.stuck = 1
        await desk.settle(configured=())
        assert not desk.mps.is_idle
        assert desk.daemons.known() == {GPU}
        desk.clock.now += LONGEST_PAUSE
        await desk.settle(configured=())
        assert desk.mps.is_idle
        assert not desk.daemons.known()
        assert not desk.journal.before

    asyncio.run(story())


def test_a_daemon_is_asked_to_quit_before_it_is_killed(desk: Desk) -> None:
    """It ends its servers in order."""

    async def story() -> None:
        await desk.settle(grant())
        await desk.settle(configured=())
        assert quit_daemon(QUIT_SECONDS) in desk.daemons.asked
        assert desk.mps.is_idle

    asyncio.run(story())


def test_an_answer_that_is_no_answer_is_waited_out(desk: Desk) -> None:
    """Whatever command it follows; the other GPUs go on."""

    class Muddled(OddDaemons):
        async def ask(self, gpu: str, command: str) -> str:
            answer = await super().ask(gpu, command)
            if command == start_server():
                self.answers["get_server_list"] = "none"
            return answer

    async def story() -> None:
        desk.daemons = Muddled(desk.folder)
        desk.restart()
        await desk.settle(grant())
        assert '"none" in a list of processes' in desk.mps.unready()[GPU]
        desk.daemons.answers.clear()
        desk.clock.now += LONGEST_PAUSE
        await desk.settle(grant())
        assert not desk.mps.unready()

    asyncio.run(story())


def test_a_server_that_does_not_start_is_waited_for(desk: Desk) -> None:
    """Until there is one, any process may take the GPU for itself."""

    async def story() -> None:
        desk.daemons.answers["start_server"] = ""
        await desk.settle(grant())
        assert "its MPS server does not start" in desk.mps.unready()[GPU]
        assert desk.kinds() == [MpsTroubleKind.NO_START]
        assert desk.daemons.asked.count(start_server()) == 1

    asyncio.run(story())


def test_a_server_that_runs_is_told_both_limits(desk: Desk) -> None:
    """What is told the daemon only counts for the next server."""

    async def story() -> None:
        await desk.settle(grant(1000, 10))
        await desk.settle(grant(2000, 20))
        server = desk.server()
        assert server_memory(server, MiB(2000)) in desk.daemons.asked
        assert server_threads(server, CorePercent(20)) in desk.daemons.asked

    asyncio.run(story())


def test_clients_are_terminated_once_a_look(desk: Desk) -> None:
    """They take a moment to end, and the agent is not to hurry the daemon meanwhile."""

    async def story() -> None:
        await settle(desk, static=False)
        desk.connect(18)
        desk.daemons.answers["terminate_client"] = ""
        server = desk.server()
        desk.daemons.change(GPU, simulated_daemon.fault)
        await settle(desk, static=False)
        desk.clock.now += FAULT_GRACE
        await settle(desk, static=False)
        assert desk.daemons.asked.count(terminate_client(server, 18)) == 1
        await settle(desk, static=False)
        assert desk.daemons.asked.count(terminate_client(server, 18)) == 2

    asyncio.run(story())


def test_the_same_trouble_is_told_again_after_it_was_over(desk: Desk) -> None:
    """It hurts whoever has an entry now; while it lasts, it is told once."""

    async def story() -> None:
        for _ in range(2):
            await settle(desk, A, unable="its driver is too old")
            await settle(desk, A, unable="its driver is too old")
            assert desk.mps.unready()
            await settle(desk, A)
            assert not desk.mps.unready()
        assert desk.kinds() == [MpsTroubleKind.NO_START] * 2

    asyncio.run(story())


def test_a_driver_that_refuses_a_call_is_told(desk: Desk) -> None:
    """Starts wait, and say why."""

    async def story() -> None:
        await desk.settle(grant())
        desk.lose_driver(Fault.OTHER)
        await desk.settle(grant())
        assert "fails, as the test says" in desk.mps.unready()[GPU]
        assert desk.kinds() == [MpsTroubleKind.NO_START]

    asyncio.run(story())


def test_a_mode_that_somebody_else_set_is_put_back_beside_a_damaged_journal(desk: Desk) -> None:
    """What is recorded after the damage counts."""

    async def story() -> None:
        desk.driver.set_compute_mode(OTHER, ComputeMode.EXCLUSIVE_PROCESS)
        (desk.folder / "mps.json").write_text("{")
        desk.restart()
        await desk.settle(configured=(OTHER,))
        assert OTHER in desk.daemons.known()
        desk.clock.now += LONGEST_PAUSE
        await desk.settle(configured=(OTHER,))
        await desk.settle(configured=())
        assert desk.driver.compute_mode(OTHER) is ComputeMode.EXCLUSIVE_PROCESS

    asyncio.run(story())


def test_partitions_are_remembered_while_the_daemon_is_silent(desk: Desk) -> None:
    """Its clients run on in them."""

    async def story() -> None:
        await settle(desk, A)
        name = await start(desk, A)
        desk.daemons.silent.add(GPU)
        await settle(desk, A)
        assert desk.mps.unready()
        assert [f"{GPU}/{held.name}" for held in desk.book.book[GPU].values()] == [name]

    asyncio.run(story())


def test_a_gpu_is_not_given_up_where_the_disk_does_not_take_it(desk: Desk) -> None:
    """The uninstall goes on once it does."""

    def full(_: int) -> None:
        raise OSError("no space left")

    async def story() -> None:
        await desk.settle(grant())
        desk.restart(sync=full)
        desk.lose_driver(Fault.ABSENT)
        assert not await desk.uninstall()
        assert "no space left" in desk.told[-1].note
        desk.restart()
        assert await desk.uninstall()

    asyncio.run(story())


def test_a_gpu_tells_only_what_changed(desk: Desk) -> None:
    """To whoever waits for it; and touches nothing before it is known what it is to be."""
    told: list[float] = []

    async def story() -> None:
        gpu = MpsGpuController(GPU, desk.services(), changed=lambda: told.append(desk.clock.now))
        await gpu.settle()
        assert isinstance(gpu.progress.rest, Waiting)
        assert (told, desk.faults.calls.total()) == ([], 0)
        wanted = MpsDesired(mps=True)
        assert gpu.set_desired(wanted)
        assert not gpu.set_desired(wanted)
        await gpu.settle()
        changes = len(told)
        await gpu.settle()
        assert changes == len(told) > 0
        assert gpu.pause == LOOK_INTERVAL

    asyncio.run(story())


def test_a_gpu_that_fails_is_looked_at_when_it_is_due(desk: Desk) -> None:
    """Not before a second is over, and not after a minute."""

    async def story() -> None:
        gpu = MpsGpuController(GPU, desk.services(), changed=lambda: None)
        assert gpu.pause == WAIT_INTERVAL
        gpu.set_desired(MpsDesired(mps=True))
        desk.lose_driver(Fault.OTHER)
        pauses = []
        for _ in range(12):
            await gpu.settle()
            pauses.append(gpu.pause)
        assert pauses == sorted(pauses)
        assert pauses[0] < LOOK_INTERVAL < pauses[-1] <= LONGEST_PAUSE
        desk.clock.now += LONGEST_PAUSE
        assert gpu.pause == WAIT_INTERVAL

    asyncio.run(story())
