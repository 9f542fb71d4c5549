"""An agent's part of mode mps, on a machine of simulated GPUs that outlives it."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agent.driver.driver import ComputeMode, Fault
from agent.driver.driver_thread import DriverThread
from agent.driver.simulated_files import SimulatedDriver
from agent.mps.gpu_controller import MpsServices
from agent.mps.journal_files import MpsJournal
from agent.mps.mps_controller import MpsController, grants_by_gpu
from agent.mps.partitions.book_files import PartitionBook
from agent.mps.simulated import simulated_daemon
from agent.mps.simulated.simulated_daemon import SimulatedDaemon
from agent.mps.simulated.simulated_files import SimulatedDaemons
from agent.mps.trouble import MpsTrouble, MpsTroubleKind
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
class MpsDesk:
    """An agent's part of mode mps, on a machine that outlives it."""

    folder: Path
    driver: SimulatedDriver = field(default_factory=lambda: SimulatedDriver(STATE))
    clock: FakeClock = field(default_factory=FakeClock)
    told: list[MpsTrouble] = field(default_factory=list)
    patience: float = 0.05  # seconds that a start waits
    loaded: bool = True  # the kernel has a driver

    def __post_init__(self) -> None:
        self.faults = Faults(self.driver, {})
        self.worker = DriverThread(RelayedDriver(self.faults))
        self.daemons = SimulatedDaemons(self.folder)
        self.restart()

    def restart(self, sync: Callable[[int], object] = os.fsync) -> None:
        """Start the agent anew: only disk, driver and daemons keep what they had."""
        self.journal = MpsJournal(self.folder / "mps.json", boot="boot-1", sync=sync)
        self.book = PartitionBook(self.folder / "mps-partitions.json", boot="boot-1", sync=sync)
        services = MpsServices(
            worker=self.worker,
            daemons=self.daemons,
            journal=self.journal,
            book=self.book,
            clock=self.clock.clock(),
            is_loaded=lambda: self.loaded,
            report=lambda _, trouble: self.told.append(trouble),
        )
        self.mps = MpsController(services, host_root=ROOT, patience=self.patience)

    async def settle(self, *grants: Grant, configured: tuple[str, ...] = (GPU,)) -> None:
        self.mps.set_desired(configured, grants_by_gpu(grants))
        await self.mps.settle()

    async def uninstall(self, *grants: Grant) -> bool:
        """Let the agent leave the node for good; say whether nothing is left of the mode."""
        self.mps.set_desired((), grants_by_gpu(grants), uninstalling=True)
        await self.mps.settle()
        return self.mps.is_idle

    def lose_driver(self, fault: Fault) -> None:
        """Let every call about a compute mode fail from now on."""
        self.faults.at = {("compute_mode", number): fault for number in range(1, 1000)}

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
