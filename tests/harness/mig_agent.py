"""The MIG side of one node's agent for tests: simulated boards, and the faults a test injects."""

import errno
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from agent.driver import simulated_machine
from agent.driver.driver import Instance
from agent.driver.simulated_files import SimulatedDriver
from agent.driver.simulated_machine import SimulatedGpu, State
from agent.mig.device_files import CapabilityError
from agent.mig.gpu_client import DriverCaller
from agent.mig.gpu_controller import MigServices
from agent.mig.instances_controller import InstancesController
from agent.mig.journal_files import Journal
from agent.mig.open_files import FileHolder
from agent.share import DeviceNode, NotYetError
from allocator.model.board import Placement
from tests.builders.model import A100_40
from tests.fakes.driver import Faults, RelayedDriver, machine
from tests.fakes.kube_clock import FakeClock
from tests.harness.crashing_agent import Direct, Fuse
from tests.harness.simulated_boards import GPU


@dataclass
class Files:
    """Device files: ``missing`` says why they cannot be had."""

    missing: str = ""

    def nodes(self, minor: int, instance: int, compute: int) -> tuple[DeviceNode, ...]:
        if self.missing:
            raise CapabilityError(self.missing)
        return (DeviceNode(f"/dev/nvidia-caps/{minor}.{instance}.{compute}", 234, instance),)

    def graphics(self, pci: str) -> tuple[DeviceNode, ...]:
        return (DeviceNode(f"/dev/dri/of-{pci}", 226, 128),)


@dataclass
class Open:
    """Who has which files open."""

    holders: tuple[FileHolder, ...] = ()
    asked: list[Collection[str]] = field(default_factory=list)

    def holders_of(self, paths: Collection[str]) -> tuple[FileHolder, ...]:
        self.asked.append(paths)
        return self.holders


class Desk:
    """An agent on simulated boards, with faults that a test chooses."""

    def __init__(self, folder: Path, state: State | None = None, boot: str = "boot-1") -> None:
        self.driver = SimulatedDriver(state or machine(A100_40))
        self.faults = Faults(self.driver, {})
        self.clock = FakeClock()
        self.files = Files()
        self.open = Open()
        self.after: dict[str, Callable[[object], object]] = {}
        self.told = 0
        self.full = False
        self.journal = Journal(folder / "mig.journal", boot=boot, sync=self._sync)
        self.tools = MigServices(
            worker=Direct(RelayedDriver(self._relay), Fuse(), lambda _: False),
            journal=self.journal,
            device_files=self.files,
            open_files=self.open,
            clock=self.clock.clock(),
        )
        self.restart()

    def restart(self, *, patience: float = 0, worker: DriverCaller | None = None) -> None:
        """Start an agent that knows what the journal knows, perhaps with another worker."""
        tools = replace(self.tools, worker=worker or self.tools.worker)
        self.instances = InstancesController(tools, changed=self._tell, patience=patience)

    def _relay(self, call: str, arguments: tuple[object, ...]) -> object:
        """Answer as the driver does, once as ``after`` makes of it."""
        answer = self.faults(call, arguments)
        change = self.after.pop(call, None)
        return answer if change is None else change(answer)

    def _tell(self) -> None:
        self.told += 1

    def _sync(self, _: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def settle(self, *promised: Placement, held: tuple[Placement, ...] = ()) -> None:
        """Promise these on the first GPU, and let the agent work."""
        await self.instances.set_desired({GPU: promised}, held={GPU: held})
        await self.instances.settle()

    async def again(self) -> None:
        """Let the agent work once what failed is due again."""
        self.clock.now += 60
        await self.instances.settle()

    async def why(self, place: Placement, gpu: str = GPU) -> str:
        """Return the message for a user who waits for *place*."""
        with pytest.raises(NotYetError) as raised:
            await self.instances.ensure(gpu, place)
        return str(raised.value)

    def on(self) -> list[tuple[int, int, bool]]:
        """Return what is on the first GPU: profile, start, and whether it is whole."""
        return [(i.profile, i.start, i.uuid is not None) for i in self.driver.instances(GPU)]

    def hand(self, place: Placement) -> Instance:
        """Create an instance outside the agent."""
        bare = self.driver.create_instance(GPU, place.profile.id, place.start)
        return self.driver.create_compute(GPU, bare.id)

    def change(self, change: Callable[[SimulatedGpu], SimulatedGpu]) -> None:
        """Change the first GPU from outside the agent."""
        self.driver.change(lambda state: simulated_machine.change_gpu(state, GPU, change))
