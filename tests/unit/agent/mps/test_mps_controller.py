"""Mode mps on a node of simulated GPUs: entering, serving, trouble and leaving."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from agent.driver.driver import ComputeMode, Fault, Process
from agent.driver.driver_thread import DriverThread
from agent.driver.simulated_files import SimulatedDriver
from agent.driver.simulated_machine import State, change_gpu
from agent.mps import simulated_daemon
from agent.mps.daemon import DaemonError
from agent.mps.gpu_controller import MpsServices
from agent.mps.journal_files import MpsJournal
from agent.mps.mps_controller import MpsController, grants_by_gpu
from agent.mps.plan import FAULT_GRACE, FAULT_LIMIT, Waiting
from agent.mps.simulated_daemon import SimulatedDaemon
from agent.mps.simulated_files import SimulatedDaemons
from agent.mps.trouble import MpsTrouble, MpsTroubleKind
from agent.share import NotYetError
from allocator.model.allocation import Grant
from allocator.model.request import Mode
from allocator.model.units import CorePercent, MiB
from tests.fakes.driver import T4, Faults, RelayedDriver, machine
from tests.fakes.kube_clock import FakeClock

STATE = machine(T4, T4)
GPU, OTHER = (gpu.chip.uuid for gpu in STATE.gpus)
ROOT = "/usr/local/vgpu"


def grant(memory: int = 4096, cores: int = 0, *, gpu: str = GPU, mode: Mode = Mode.MPS) -> Grant:
    return Grant(gpu=gpu, mode=mode, memory=MiB(memory), cores=CorePercent(cores))


@dataclass
class Desk:
    """An agent's part of mode mps, on a machine that outlives it."""

    folder: Path
    driver: SimulatedDriver = field(default_factory=lambda: SimulatedDriver(STATE))
    clock: FakeClock = field(default_factory=FakeClock)
    told: list[MpsTrouble] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.faults = Faults(self.driver, {})
        self.worker = DriverThread(RelayedDriver(self.faults))
        self.daemons = SimulatedDaemons(self.folder)
        self.restart()

    def restart(self, boot: str = "boot-1") -> None:
        """Start the agent anew: only disk, driver and daemons keep what they had."""
        self.journal = MpsJournal(self.folder / "mps.json", boot=boot)
        services = MpsServices(
            worker=self.worker,
            daemons=self.daemons,
            journal=self.journal,
            clock=self.clock.clock(),
            report=lambda _, trouble: self.told.append(trouble),
        )
        self.mps = MpsController(services, host_root=ROOT, patience=0.05)

    async def settle(self, *grants: Grant, configured: tuple[str, ...] = (GPU,)) -> None:
        self.mps.set_desired(configured, grants_by_gpu(grants))
        await self.mps.settle()

    def connect(self, pid: int, memory: int | None = None) -> str:
        return self.daemons.change(
            GPU, lambda daemon: simulated_daemon.connect(daemon, pid, memory=memory)
        )

    def kinds(self) -> list[MpsTroubleKind]:
        return [trouble.kind for trouble in self.told]

    def daemon(self) -> SimulatedDaemon:
        return self.daemons.daemon(GPU)

    def compute(self) -> ComputeMode:
        return self.driver.compute_mode(GPU)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    asyncio.run(desk.worker.close())


def test_a_grant_gets_a_daemon_with_its_limits(desk: Desk) -> None:
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


def test_a_larger_promise_waits_until_the_server_knows_it(desk: Desk) -> None:
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


def test_a_gpu_with_processes_or_other_entries_does_not_enter(desk: Desk) -> None:
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
    desk: Desk, mode: Mode
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


def test_a_pod_of_another_mode_ends_no_pod_of_this_one(desk: Desk) -> None:
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


def test_the_other_gpus_of_the_node_are_left_alone(desk: Desk) -> None:
    """The mode is one of a GPU, not of a node."""

    async def story() -> None:
        await desk.settle(grant())
        assert desk.driver.compute_mode(OTHER) is ComputeMode.DEFAULT
        with pytest.raises(NotYetError, match="not seen its entry"):
            await desk.mps.ready_daemon(grant(gpu=OTHER))

    asyncio.run(story())


def test_the_compute_mode_is_put_back_when_the_daemon_is_dead(desk: Desk) -> None:
    """A GPU must not stay in EXCLUSIVE_PROCESS because nobody answers a quit."""

    async def story() -> None:
        await desk.settle(grant())
        await desk.daemons.kill(GPU)
        await desk.settle(configured=())
        assert desk.compute() is ComputeMode.DEFAULT
        assert desk.mps.is_idle

    asyncio.run(story())


def test_an_agent_that_was_killed_leaves_the_mode_to_the_next(desk: Desk) -> None:
    """What the journal names is put back, although nobody configures or promises it any more."""

    async def story() -> None:
        await desk.settle(grant())
        desk.restart()
        await desk.settle(configured=())
        assert desk.compute() is ComputeMode.DEFAULT
        assert not await desk.daemons.is_alive(GPU)
        assert desk.mps.is_idle

    asyncio.run(story())


def test_a_restart_of_the_agent_keeps_the_daemon(desk: Desk) -> None:
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


def test_an_entry_keeps_the_gpu_in_the_mode(desk: Desk) -> None:
    """A GPU changes its mode only when it is empty."""

    async def story() -> None:
        await desk.settle(grant())
        await desk.settle(grant(), configured=())
        await desk.mps.ready_daemon(grant())
        await desk.settle(configured=())
        with pytest.raises(NotYetError, match="not in mode mps"):
            await desk.mps.ready_daemon(grant())

    asyncio.run(story())


@pytest.mark.parametrize("crash_at", [1, 2, 3])
def test_a_crash_between_two_steps_is_repaired(desk: Desk, crash_at: int) -> None:
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


def test_the_end_of_a_daemon_is_told_and_repaired(desk: Desk) -> None:
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


def test_the_end_of_a_server_is_told_and_repaired(desk: Desk) -> None:
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


def test_a_fault_of_a_client_is_told_and_ends(desk: Desk) -> None:
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


def test_a_fault_that_does_not_end_costs_the_daemon(desk: Desk) -> None:
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


def test_a_daemon_that_cannot_start_is_not_started_for_ever(desk: Desk) -> None:
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


def test_a_silent_daemon_is_told_and_killed_on_the_way_out(desk: Desk) -> None:
    """A daemon that hangs does not keep its GPU."""

    async def story() -> None:
        await desk.settle(grant())
        desk.daemons.silent.add(GPU)
        await desk.settle(grant())
        assert desk.kinds() == [MpsTroubleKind.SILENT]
        await desk.settle(configured=())
        assert desk.compute() is ComputeMode.DEFAULT

    asyncio.run(story())


def test_a_damaged_journal_puts_back_the_default(desk: Desk) -> None:
    """Where nobody knows what was there, the GPU becomes usable by everybody again."""

    async def story() -> None:
        await desk.settle(grant())
        (desk.folder / "mps.json").write_text("{")
        desk.restart()
        await desk.settle(configured=())
        assert desk.compute() is ComputeMode.DEFAULT

    asyncio.run(story())


def test_a_gpu_without_uuid_of_a_gpu_gets_no_folder(desk: Desk) -> None:
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
