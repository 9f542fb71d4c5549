"""What ends in mode mps: daemons, servers, clients, the agent and its journal."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from agent.driver.driver import ComputeMode, Fault
from agent.mps.commands import quit_daemon
from agent.mps.gpu_controller import QUIT_SECONDS, REFUSAL_PAUSE
from agent.mps.mps_controller import LEAST_CLIENTS
from agent.mps.plan import FAULT_GRACE, FAULT_LIMIT, LINGER_LIMIT
from agent.mps.simulated import simulated_daemon
from agent.mps.simulated.simulated_files import SimulatedDaemons
from agent.mps.trouble import MpsTroubleKind
from agent.share import NotYetError
from tests.harness.mps_desk import GPU, OTHER, MpsDesk, grant


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[MpsDesk]:
    desk = MpsDesk(tmp_path)
    yield desk
    asyncio.run(desk.worker.close())


def test_the_compute_mode_is_put_back_when_the_daemon_is_dead(desk: MpsDesk) -> None:
    """A GPU must not stay in EXCLUSIVE_PROCESS because nobody answers a quit."""

    async def story() -> None:
        await desk.settle(grant())
        await desk.daemons.kill(GPU)
        await desk.settle(configured=())
        assert desk.compute() is ComputeMode.DEFAULT
        assert desk.mps.is_idle

    asyncio.run(story())


def test_an_agent_that_was_killed_leaves_the_mode_to_the_next(desk: MpsDesk) -> None:
    """What the journal names is put back, although nobody configures or promises it any more."""

    async def story() -> None:
        await desk.settle(grant())
        desk.restart()
        assert not desk.mps.is_idle  # before it has looked, too: nothing is uninstalled then
        await desk.settle(configured=())
        assert desk.compute() is ComputeMode.DEFAULT
        assert not await desk.daemons.is_alive(GPU)
        assert desk.mps.is_idle

    asyncio.run(story())


@pytest.mark.parametrize("crash_at", [1, 2, 3])
def test_a_crash_between_two_steps_is_repaired(desk: MpsDesk, crash_at: int) -> None:
    """Whatever call failed, the next look goes on, and leaving puts back what was there."""

    async def story() -> None:
        desk.faults.at = {
            ("set_compute_mode", 1): Fault.OTHER,
            ("compute_mode", crash_at): Fault.OTHER,
        }
        for _ in range(4):
            await desk.settle(grant())
            desk.restart()
            desk.clock.now += 100
        await desk.settle(grant())
        await desk.mps.ready_daemon(grant())
        desk.restart()
        await desk.settle(configured=())
        assert desk.compute() is ComputeMode.DEFAULT

    asyncio.run(story())


def test_the_end_of_a_daemon_is_told_and_repaired(desk: MpsDesk) -> None:
    """Whoever has an entry is told once; another daemon serves, after a pause."""

    async def story() -> None:
        await desk.settle(grant())
        desk.connect(18)
        await desk.settle(grant())
        await desk.daemons.kill(GPU)
        await desk.settle(grant())
        assert desk.kinds() == [MpsTroubleKind.DAEMON_ENDED]
        assert "1 connected process fails" in desk.told[0].note
        assert desk.mps.unready()
        desk.clock.now += 5
        await desk.settle(grant())
        await desk.mps.ready_daemon(grant())
        assert desk.kinds() == [MpsTroubleKind.DAEMON_ENDED]

    asyncio.run(story())


def test_a_client_too_many_says_how_many_the_driver_allows(desk: MpsDesk) -> None:
    """The number is that of those connected; it is told once in a while, not at each attempt."""

    async def story() -> None:
        await desk.settle(grant())
        desk.daemons.change(GPU, lambda daemon: replace(daemon, most_clients=20))
        for pid in range(20):
            assert desk.connect(100 + pid) == ""
        await desk.settle(grant())
        assert not desk.mps.client_limits()
        for _ in range(3):
            assert desk.connect(500) == simulated_daemon.NO_ROOM
            await desk.settle(grant())
        assert desk.mps.client_limits() == {GPU: 20}
        assert desk.kinds() == [MpsTroubleKind.NO_ROOM]
        assert "while 20 were connected" in desk.told[0].note
        await desk.mps.ready_daemon(grant())  # whoever has an entry may start
        desk.clock.now += REFUSAL_PAUSE
        assert desk.connect(500) == simulated_daemon.NO_ROOM
        await desk.settle(grant())
        assert desk.kinds() == [MpsTroubleKind.NO_ROOM] * 2

    asyncio.run(story())


def test_what_was_seen_is_allowed_and_few_clients_are_no_limit(desk: MpsDesk) -> None:
    """A program with many contexts closes the GPU for nobody else for good."""

    async def story() -> None:
        await desk.settle(grant())
        desk.daemons.change(GPU, lambda daemon: replace(daemon, most_clients=1))
        desk.connect(100)
        assert desk.connect(101) == simulated_daemon.NO_ROOM
        await desk.settle(grant())
        assert desk.mps.client_limits() == {GPU: LEAST_CLIENTS}
        desk.daemons.change(GPU, lambda daemon: replace(daemon, most_clients=60))
        for pid in range(30):
            desk.connect(200 + pid)
        await desk.settle(grant())
        assert desk.mps.client_limits() == {GPU: 31}

    asyncio.run(story())


def test_a_refusal_of_an_earlier_agent_is_no_news(desk: MpsDesk) -> None:
    """Its driver may be another one; the next client too many says it again."""

    async def story() -> None:
        await desk.settle(grant())
        desk.daemons.change(GPU, lambda daemon: replace(daemon, most_clients=0))
        desk.connect(100)
        desk.restart()
        await desk.settle(grant())
        assert not desk.mps.client_limits()
        assert not desk.told

    asyncio.run(story())


def test_the_end_of_a_server_is_told_and_repaired(desk: MpsDesk) -> None:
    """The daemon lives on, and gets another server with the same limits."""

    async def story() -> None:
        await desk.settle(grant())
        desk.connect(18)
        await desk.settle(grant())
        desk.daemons.change(GPU, lambda daemon: replace(daemon, server=None))
        await desk.settle(grant())
        desk.clock.now += 5
        await desk.settle(grant())
        assert desk.kinds() == [MpsTroubleKind.SERVER_ENDED]
        server = desk.daemon().server
        assert server is not None
        assert server.memory == 4096

    asyncio.run(story())


def test_a_fault_of_a_client_is_told_and_ends(desk: MpsDesk) -> None:
    """The clients that were hit are terminated after a while; then the server takes new ones."""

    async def story() -> None:
        await desk.settle(grant())
        desk.connect(18)
        desk.connect(19)
        desk.daemons.change(GPU, simulated_daemon.fault)
        await desk.settle(grant())
        assert desk.kinds() == [MpsTroubleKind.FAULT]
        assert "2 connected processes fail" in desk.told[0].note
        assert "fatal fault" in desk.mps.unready()[GPU]
        desk.clock.now += FAULT_GRACE
        await desk.settle(grant())
        for pid in (18, 19):
            desk.daemons.change(GPU, partial(simulated_daemon.disconnect, pid=pid))
        await desk.settle(grant())
        await desk.mps.ready_daemon(grant())
        assert desk.daemons.starts == 1
        assert desk.kinds() == [MpsTroubleKind.FAULT]

    asyncio.run(story())


def test_a_fault_that_does_not_end_costs_the_daemon(desk: MpsDesk) -> None:
    """A client that ignores its fault blocks the GPU for a minute, and no longer."""

    async def story() -> None:
        await desk.settle(grant())
        desk.connect(18)
        desk.daemons.change(GPU, simulated_daemon.fault)
        await desk.settle(grant())
        desk.clock.now += FAULT_LIMIT
        await desk.settle(grant())
        await desk.mps.ready_daemon(grant())
        assert desk.daemons.starts == 2

    asyncio.run(story())


def test_a_daemon_that_cannot_start_is_not_started_for_ever(desk: MpsDesk) -> None:
    """Pauses grow to a minute, and the same reason is told once."""

    async def story() -> None:
        desk.daemons.broken.add(GPU)
        for _ in range(600):
            await desk.settle(grant())
            desk.clock.now += 1
        assert desk.daemons.starts <= 20
        assert desk.kinds() == [MpsTroubleKind.NO_START]
        assert "ended at once" in desk.mps.unready()[GPU]
        with pytest.raises(NotYetError, match="ended at once"):
            await desk.mps.ready_daemon(grant())
        desk.daemons.broken.clear()
        desk.clock.now += 100
        await desk.settle(grant())
        await desk.mps.ready_daemon(grant())

    asyncio.run(story())


@pytest.mark.parametrize("ending", ["daemon", "server"])
def test_what_ends_again_and_again_is_started_more_and_more_seldom(
    desk: MpsDesk, ending: str
) -> None:
    """Each start works for a moment, so no start fails; the pauses grow all the same."""

    async def end() -> bool:
        if not await desk.daemons.is_alive(GPU) or desk.daemon().server is None:
            return False
        if ending == "daemon":
            await desk.daemons.kill(GPU)
        else:
            desk.daemons.change(GPU, lambda daemon: replace(daemon, server=None))
        return True

    async def story() -> None:
        ended = 0
        for _ in range(600):
            await desk.settle(grant())
            ended += await end()
            desk.clock.now += 1
        assert 3 <= ended <= 25
        desk.clock.now += 100
        await desk.settle(grant())
        await desk.mps.ready_daemon(grant())
        desk.clock.now += 600
        await desk.settle(grant())
        assert desk.mps.progress()[GPU].failures == 0
        assert await end()
        await desk.settle(grant())
        desk.clock.now += 5
        await desk.settle(grant())
        await desk.mps.ready_daemon(grant())

    asyncio.run(story())


def test_a_silent_daemon_is_told_and_killed_on_the_way_out(desk: MpsDesk) -> None:
    """A daemon that hangs does not keep its GPU."""

    async def story() -> None:
        await desk.settle(grant())
        desk.daemons.silent.add(GPU)
        await desk.settle(grant())
        assert desk.kinds() == [MpsTroubleKind.SILENT]
        await desk.settle(configured=())
        assert desk.compute() is ComputeMode.DEFAULT

    asyncio.run(story())


def test_a_damaged_journal_puts_back_the_default(desk: MpsDesk) -> None:
    """Where nobody knows what was there, the GPU becomes usable by everybody again."""

    async def story() -> None:
        await desk.settle(grant())
        (desk.folder / "mps.json").write_text("{")
        desk.restart()
        await desk.settle(configured=())
        assert desk.compute() is ComputeMode.DEFAULT

    asyncio.run(story())


def test_a_damaged_journal_is_not_idle_before_anything_was_looked_at(desk: MpsDesk) -> None:
    """An uninstall that comes before the GPUNode was read removes no trace of a mode of ours."""

    async def story() -> None:
        await desk.settle(grant())
        (desk.folder / "mps.json").write_text("{")
        desk.restart()
        assert not desk.mps.is_idle
        await desk.mps.settle()  # of nothing, as nobody said yet what is wanted
        assert not desk.mps.is_idle
        desk.mps.set_desired((), {})
        assert not desk.mps.is_idle
        await desk.mps.settle()
        assert desk.compute() is ComputeMode.DEFAULT
        assert desk.mps.is_idle

    asyncio.run(story())


def test_a_node_that_never_had_the_mode_is_idle(desk: MpsDesk) -> None:
    """Its uninstall waits for nothing, whether or not a GPUNode was read."""
    assert desk.mps.is_idle
    desk.mps.set_desired((), {})
    assert desk.mps.is_idle


def test_a_damaged_journal_changes_no_mode_that_somebody_else_has_set(desk: MpsDesk) -> None:
    """Only a GPU that we had in the mode is suspected of a mode of ours."""

    async def story() -> None:
        desk.driver.set_compute_mode(OTHER, ComputeMode.EXCLUSIVE_PROCESS)
        (desk.folder / "mps.json").write_text("{")
        desk.restart()
        await desk.settle(configured=(OTHER,))
        await desk.settle(configured=())
        assert desk.driver.compute_mode(OTHER) is ComputeMode.EXCLUSIVE_PROCESS

    asyncio.run(story())


def test_a_mode_that_is_not_on_disk_is_not_changed(desk: MpsDesk) -> None:
    """After a crash nobody could put it back."""

    def full(_: int) -> None:
        raise OSError("no space left")

    async def story() -> None:
        desk.restart(sync=full)
        await desk.settle(grant())
        assert desk.compute() is ComputeMode.DEFAULT
        assert not desk.journal.before
        assert "no space left" in desk.mps.unready()[GPU]

    asyncio.run(story())


def test_a_mode_is_put_back_where_the_folders_are_gone(desk: MpsDesk) -> None:
    """The journal alone is enough."""

    async def story() -> None:
        await desk.settle(grant())
        await desk.daemons.kill(GPU)
        await desk.daemons.remove(GPU)
        desk.restart()
        await desk.settle(configured=())
        assert desk.compute() is ComputeMode.DEFAULT
        assert desk.mps.is_idle

    asyncio.run(story())


class DeafDaemons(SimulatedDaemons):
    """Daemons that answer, and go on when they are told to end."""

    async def ask(self, gpu: str, command: str) -> str:
        if command == quit_daemon(QUIT_SECONDS):
            return ""
        return await super().ask(gpu, command)


def test_a_daemon_that_does_not_quit_is_killed(desk: MpsDesk) -> None:
    """It answers and goes on; the GPU leaves the mode all the same."""

    async def story() -> None:
        desk.daemons = DeafDaemons(desk.folder)
        desk.restart()
        await desk.settle(grant())
        await desk.settle(configured=())
        assert desk.compute() is ComputeMode.DEFAULT
        assert not await desk.daemons.is_alive(GPU)

    asyncio.run(story())


def test_a_second_fault_has_its_own_time(desk: MpsDesk) -> None:
    """Clients of one fault are not killed at once because there was another long ago."""

    async def story() -> None:
        await desk.settle(grant())
        for pid in (18, 19):
            desk.connect(pid)
            desk.daemons.change(GPU, simulated_daemon.fault)
            await desk.settle(grant())
            assert "recovers" in desk.mps.unready()[GPU]
            desk.daemons.change(GPU, partial(simulated_daemon.disconnect, pid=pid))
            await desk.settle(grant())
            desk.clock.now += FAULT_LIMIT
        assert desk.daemons.starts == 1

    asyncio.run(story())


def test_whoever_leaves_a_second_time_has_its_own_time(desk: MpsDesk) -> None:
    """Clients that outlive their entry for a moment are not ended because of an earlier leave."""

    async def story() -> None:
        for _ in range(2):
            await desk.settle(grant())
            desk.daemons.change(GPU, partial(simulated_daemon.connect, pid=18))
            desk.clock.now += LINGER_LIMIT
            await desk.settle(configured=())
            assert await desk.daemons.is_alive(GPU)
            desk.clock.now += LINGER_LIMIT - 1
            await desk.settle(grant())
            desk.daemons.change(GPU, partial(simulated_daemon.disconnect, pid=18))
        assert desk.daemons.starts == 1

    asyncio.run(story())
