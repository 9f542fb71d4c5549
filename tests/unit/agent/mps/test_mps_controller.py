"""Mode mps on a node of simulated GPUs: entering, serving and leaving."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.driver.driver import ComputeMode, Process
from agent.driver.simulated_machine import State, change_gpu
from agent.mps.daemon import DaemonError
from agent.mps.mps_controller import grants_by_gpu
from agent.mps.plan import Waiting
from agent.share import NotYetError
from allocator.model.request import Mode
from allocator.model.units import MiB
from tests.harness.mps_desk import GPU, OTHER, ROOT, MpsDesk, grant


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[MpsDesk]:
    desk = MpsDesk(tmp_path)
    yield desk
    asyncio.run(desk.worker.close())


def test_a_grant_gets_a_daemon_with_its_limits(desk: MpsDesk) -> None:
    """A client that asks for more than was promised gets what was promised."""

    async def story() -> None:
        await desk.settle(grant(4096, 30), grant(1024, 50))
        folders = await desk.mps.ready_daemon(grant(4096, 30))
        assert folders.pipe == f"{ROOT}/mps/{GPU}/pipe"
        assert desk.compute() is ComputeMode.EXCLUSIVE_PROCESS
        assert desk.connect(18, memory=1 << 30) == ""
        server = desk.daemon().server
        assert server is not None
        assert (server.clients[18].memory, server.clients[18].threads) == (4096, 50)
        assert not desk.mps.unready()

    asyncio.run(story())


def test_a_larger_promise_waits_until_the_server_knows_it(desk: MpsDesk) -> None:
    """A start before that would give the client less than its share."""

    async def story() -> None:
        await desk.settle(grant(1024))
        with pytest.raises(NotYetError, match="yet to be told"):
            await desk.mps.ready_daemon(grant(4096))
        await desk.settle(grant(1024), grant(4096))
        await desk.mps.ready_daemon(grant(4096))
        server = desk.daemon().server
        assert server is not None
        assert server.memory == 4096

    asyncio.run(story())


def test_a_gpu_with_processes_or_other_entries_does_not_enter(desk: MpsDesk) -> None:
    """Nobody is cut off by a change of the configuration."""

    async def story() -> None:
        await desk.settle(grant(mode=Mode.HAMI_CORE))
        assert desk.compute() is ComputeMode.DEFAULT
        await desk.settle(grant(), grant(mode=Mode.HAMI_CORE))
        assert "another mode" in desk.mps.unready()[GPU]
        desk.driver.change(
            lambda state: with_process(state, Process(pid=7, gpu=GPU, memory=MiB(100)))
        )
        await desk.settle()
        assert "pid 7" in desk.mps.unready()[GPU]
        assert desk.compute() is ComputeMode.DEFAULT
        assert not desk.journal.before

    asyncio.run(story())


@pytest.mark.parametrize("mode", [Mode.HAMI_CORE, Mode.MEMORY_ONLY, Mode.MIG])
def test_a_gpu_that_entered_too_early_leaves_for_a_pod_of_another_mode(
    desk: MpsDesk, mode: Mode
) -> None:
    """A bind may meet the change of the configuration; its pod could never use the GPU then."""

    async def story() -> None:
        await desk.settle()
        assert desk.compute() is ComputeMode.EXCLUSIVE_PROCESS
        await desk.settle(grant(mode=mode))
        assert desk.compute() is ComputeMode.DEFAULT
        assert not await desk.daemons.is_alive(GPU)
        with pytest.raises(NotYetError, match="not in mode mps"):
            await desk.mps.ready_daemon(grant())
        await desk.settle(grant())
        await desk.mps.ready_daemon(grant())

    asyncio.run(story())


def test_a_pod_of_another_mode_ends_no_pod_of_this_one(desk: MpsDesk) -> None:
    """Whoever was promised the daemon keeps it, and the GPU takes nobody new."""

    async def story() -> None:
        await desk.settle(grant())
        desk.connect(18)
        await desk.settle(grant(), grant(mode=Mode.HAMI_CORE))
        assert desk.compute() is ComputeMode.EXCLUSIVE_PROCESS
        assert set(desk.daemon().server.clients) == {18}  # type: ignore[union-attr]
        assert "another mode" in desk.mps.unready()[GPU]

    asyncio.run(story())


def with_process(state: State, process: Process) -> State:
    return change_gpu(state, GPU, lambda gpu: replace(gpu, processes=(process,)))


def test_the_other_gpus_of_the_node_are_left_alone(desk: MpsDesk) -> None:
    """The mode is one of a GPU, not of a node."""

    async def story() -> None:
        await desk.settle(grant())
        assert desk.driver.compute_mode(OTHER) is ComputeMode.DEFAULT
        with pytest.raises(NotYetError, match="not seen its entry"):
            await desk.mps.ready_daemon(grant(gpu=OTHER))

    asyncio.run(story())


def test_a_restart_of_the_agent_keeps_the_daemon(desk: MpsDesk) -> None:
    """Running clients are not hit, and the limits are told again."""

    async def story() -> None:
        await desk.settle(grant())
        desk.connect(18)
        desk.restart()
        await desk.settle(grant())
        await desk.mps.ready_daemon(grant())
        assert desk.daemons.starts == 1
        server = desk.daemon().server
        assert server is not None
        assert set(server.clients) == {18}
        assert not desk.told

    asyncio.run(story())


def test_an_entry_keeps_the_gpu_in_the_mode(desk: MpsDesk) -> None:
    """A GPU changes its mode only when it is empty."""

    async def story() -> None:
        await desk.settle(grant())
        await desk.settle(grant(), configured=())
        await desk.mps.ready_daemon(grant())
        await desk.settle(configured=())
        with pytest.raises(NotYetError, match="not in mode mps"):
            await desk.mps.ready_daemon(grant())

    asyncio.run(story())


def test_a_node_that_cannot_serve_the_mode_starts_nobody(desk: MpsDesk) -> None:
    """The reason is told, though the daemon itself would answer."""

    async def story() -> None:
        await desk.settle(grant())
        desk.mps.refusal = "no CDI"
        assert "no CDI" in desk.mps.unready()[GPU]
        with pytest.raises(NotYetError, match="no CDI"):
            await desk.mps.ready_daemon(grant())

    asyncio.run(story())


def test_a_gpu_without_uuid_of_a_gpu_gets_no_folder(desk: MpsDesk) -> None:
    """A name from the ledger never becomes a path of its own choice."""

    async def story() -> None:
        hostile = grant(gpu="GPU-../../etc")
        desk.mps.set_desired((), grants_by_gpu([hostile]))
        await desk.mps.settle()
        rest = desk.mps.progress()[hostile.gpu].rest
        assert isinstance(rest, Waiting)
        with pytest.raises(DaemonError):
            await desk.daemons.prepare(hostile.gpu)

    asyncio.run(story())
