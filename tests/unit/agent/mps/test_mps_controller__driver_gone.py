"""Uninstalling where the driver went before the agent: it ends, and gives up no GPU too early."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from agent.driver.driver import ComputeMode, Fault
from agent.mps.plan import GIVE_UP
from tests.harness.mps_desk import GPU, MpsDesk, grant

GIVEN_UP = "compute mode given up, not put back"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[MpsDesk]:
    desk = MpsDesk(tmp_path)
    yield desk
    asyncio.run(desk.worker.close())


def given_up(logs: object) -> int:
    return str(logs).count(GIVEN_UP)


@pytest.mark.parametrize(
    ("fault", "loaded"),
    [
        pytest.param(Fault.UNAVAILABLE, False, id="no-module-in-the-kernel"),
        pytest.param(Fault.LOST, False, id="lost-and-no-module"),
        pytest.param(Fault.ABSENT, True, id="this-gpu-is-not-there"),
    ],
)
@pytest.mark.parametrize("restarted", [True, False])
def test_what_is_gone_for_certain_is_given_up_at_once(
    desk: MpsDesk, fault: Fault, *, loaded: bool, restarted: bool
) -> None:
    """Its daemon ends, its folders and the journal go, and that is logged once."""

    async def story() -> None:
        await desk.settle(grant())
        desk.lose_driver(fault)
        desk.loaded = loaded
        if restarted:
            desk.restart()
        with capture_logs() as logs:
            assert await desk.uninstall()
            assert await desk.uninstall()
        assert given_up(logs) == 1
        assert not await desk.daemons.is_alive(GPU)
        assert not desk.daemons.known()
        desk.restart()
        assert not desk.journal.before

    asyncio.run(story())


def test_a_journal_that_was_removed_is_not_written_again(desk: MpsDesk) -> None:
    """The uninstall removes all files after that; another look must not bring one back."""

    async def story() -> None:
        await desk.settle(grant())
        desk.lose_driver(Fault.ABSENT)
        assert await desk.uninstall()
        (desk.folder / "mps.json").unlink()
        assert await desk.uninstall()
        assert not (desk.folder / "mps.json").exists()

    asyncio.run(story())


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.LOST])
def test_a_driver_that_does_not_answer_gets_some_time(desk: MpsDesk, fault: Fault) -> None:
    """It may only hang, and then the compute mode is put back all the same."""

    async def story() -> None:
        await desk.settle(grant())
        desk.lose_driver(fault)
        assert not await desk.uninstall()
        desk.clock.now += GIVE_UP - 1
        assert not await desk.uninstall()
        desk.faults.at = {}
        assert await desk.uninstall()
        assert desk.compute() is ComputeMode.DEFAULT

    asyncio.run(story())


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.LOST])
def test_the_uninstall_ends_where_the_driver_never_answers(desk: MpsDesk, fault: Fault) -> None:
    """Nobody could put the compute mode back; the log says so."""

    async def story() -> None:
        await desk.settle(grant())
        desk.lose_driver(fault)
        assert not await desk.uninstall()
        desk.clock.now += GIVE_UP
        with capture_logs() as logs:
            assert await desk.uninstall()
        assert given_up(logs) == 1

    asyncio.run(story())


def test_a_driver_that_answers_in_between_begins_anew(desk: MpsDesk) -> None:
    """Only refusals without an answer between them count."""

    async def story() -> None:
        desk.restart()
        await desk.settle()
        desk.lose_driver(Fault.UNAVAILABLE)
        await desk.settle()
        desk.clock.now += GIVE_UP
        desk.faults.at = {}
        await desk.settle()
        desk.lose_driver(Fault.UNAVAILABLE)
        assert not await desk.uninstall()
        assert desk.journal.before

    asyncio.run(story())


@pytest.mark.parametrize(
    "fault", [Fault.NO_PERMISSION, Fault.NOT_SUPPORTED, Fault.IN_USE, Fault.NO_ROOM, Fault.OTHER]
)
def test_a_gpu_that_is_there_is_not_given_up(desk: MpsDesk, fault: Fault) -> None:
    """It would stay in EXCLUSIVE_PROCESS, and nobody would know why."""

    async def story() -> None:
        await desk.settle(grant())
        desk.lose_driver(fault)
        assert not await desk.uninstall()
        desk.clock.now += 10 * GIVE_UP
        assert not await desk.uninstall()
        assert desk.journal.before

    asyncio.run(story())


@pytest.mark.parametrize("fault", [Fault.ABSENT, Fault.LOST, Fault.UNAVAILABLE])
def test_only_an_uninstall_gives_up(desk: MpsDesk, fault: Fault) -> None:
    """An agent that stays puts the mode back when the driver has been replaced."""

    async def story() -> None:
        await desk.settle(grant())
        desk.lose_driver(fault)
        desk.loaded = False
        for _ in range(3):
            await desk.settle(configured=())
            desk.clock.now += GIVE_UP
        assert desk.journal.before
        assert not desk.mps.is_idle

    asyncio.run(story())


def test_a_pod_with_an_entry_keeps_its_daemon(desk: MpsDesk) -> None:
    """Nobody who may still run is cut off, whatever the driver says."""

    async def story() -> None:
        await desk.settle(grant())
        desk.lose_driver(Fault.ABSENT)
        assert not await desk.uninstall(grant())
        assert await desk.daemons.is_alive(GPU)
        assert desk.journal.before

    asyncio.run(story())
