"""A node whose agent is killed at a chosen moment, over and over, while its hardware stays.

The moments are those around each change that the driver makes and each line that the journal
writes. A process that is killed does nothing more; the next one finds the boards and the file.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from agent.driver import simulated_machine
from agent.driver.driver import Driver, Instance, Process
from agent.driver.simulated_files import SimulatedDriver
from agent.driver.simulated_machine import SimulatedGpu, State
from agent.mig.device_files import NoFiles
from agent.mig.gpu_controller import MigServices
from agent.mig.instances_controller import InstancesController
from agent.mig.journal import Marks, parse_journal
from agent.mig.journal_files import Journal
from agent.mig.open_files import OpenFiles
from agent.share import ReadyInstance
from allocator.model.board import Placement
from allocator.model.units import MiB
from tests.fakes.kube_clock import FakeClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Tenancy = tuple[str, Placement]  # a GPU's UUID and a place on it


class KilledError(BaseException):
    """The process was killed; product code must not catch this."""


@dataclass
class Fuse:
    """Kills the process at its *left*-th moment; ``None`` never does. A ``torn`` line stays."""

    left: int | None = None
    torn: int = 0
    dead: bool = False

    def burn(self) -> None:
        if self.dead:
            raise KilledError
        if self.left is not None:
            self.dead = self.left == 0
            self.left -= 1
            if self.dead:
                raise KilledError

    def sync(self, file: int) -> None:
        """Stand in for fsync: a moment before a line is there for certain, and one after."""
        try:
            self.burn()
        except KilledError:
            size = os.fstat(file).st_size
            if self.torn and size > self.torn:
                os.ftruncate(file, size - self.torn)
            raise
        self.burn()


@dataclass
class Direct:
    """Calls the driver at once; the process may be killed before and after each hardware change.

    Fails if an instance of a container or of somebody else is destroyed.
    """

    driver: Driver
    fuse: Fuse
    untouchable: Callable[[Instance], bool]

    async def call(self, function: Callable[[*Ts], T], *args: *Ts, within: float) -> T:
        await asyncio.sleep(0)
        assert within > 0
        name = getattr(function, "__name__", "")
        if name.startswith("destroy"):
            gpu, number, *_ = map(str, args)
            target = next(i for i in self.driver.instances(gpu) if str(i.id) == number)
            assert not self.untouchable(target), f"{name} of {target}"
        if not name.startswith(("create", "destroy")):
            return function(*args)
        self.fuse.burn()
        answer = function(*args)
        self.fuse.burn()
        return answer


@dataclass
class Node:
    """One node: its hardware, the agent's journal, the ledger's promises and running containers."""

    folder: Path
    machine: State
    clock: FakeClock = field(default_factory=FakeClock)
    promised: set[Tenancy] = field(default_factory=set)
    tenants: dict[Tenancy, str] = field(default_factory=dict)  # UUID of each container's instance
    strangers: dict[str, set[int]] = field(default_factory=dict)  # others' instance ids, by GPU
    fickle: bool = False  # promises in *fading* are withdrawn while there is no agent
    fading: set[Tenancy] = field(default_factory=set)
    boots: int = 1
    kills: int = 0

    def __post_init__(self) -> None:
        self.driver = SimulatedDriver(self.machine)
        self.chips = tuple(gpu.chip for gpu in self.machine.gpus)
        self.start(Fuse())

    def start(self, fuse: Fuse) -> None:
        """Start the agent, as a new process would."""
        self.fuse = fuse
        path = self.folder / "mig.journal"
        self.journal = Journal(path, boot=f"boot-{self.boots}", sync=fuse.sync)
        tools = MigServices(
            worker=Direct(self.driver, fuse, self.untouchable),
            journal=self.journal,
            device_files=NoFiles(),
            open_files=OpenFiles(Path("/nowhere")),
            clock=self.clock.clock(),
        )
        self.instances = InstancesController(tools, patience=0)

    def announced(self) -> Marks:
        """Return the marks in the journal file."""
        return parse_journal((self.folder / "mig.journal").read_bytes(), f"boot-{self.boots}").marks

    def untouchable(self, instance: Instance) -> bool:
        mine = instance.uuid in self.tenants.values()
        return mine or instance.id in self.strangers.get(instance.gpu, set())

    def arm(self, moment: int, torn: int) -> None:
        """Let the process be killed at its *moment*-th moment from now."""
        self.fuse.left, self.fuse.torn = moment, torn

    async def settle(self, *, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Let the agent do its work; when it is killed, start another that does.

        What happens *meanwhile* happens while there is no agent.
        """
        if not await self.survives(self.work()):
            self.kills += 1
            self.journal.close()
            meanwhile()
            if self.fickle:
                self.promised -= self.fading
            self.start(Fuse())
            await self.work()

    async def survives(self, work: Coroutine[object, object, None]) -> bool:
        try:
            await work
        except (KilledError, BaseExceptionGroup):
            if not self.fuse.dead:
                raise
            return False
        return True

    async def work(self) -> None:
        """Say what is promised and held, and wait until backoffs are over."""
        await self.instances.set_desired(
            self._by_gpu(self.promised), held=self._by_gpu(self.tenants)
        )
        for _ in range(3):
            await self.instances.settle()
            self.clock.now += 60

    def _by_gpu(self, what: set[Tenancy] | dict[Tenancy, str]) -> dict[str, set[Placement]]:
        return {chip.uuid: {p for gpu, p in what if gpu == chip.uuid} for chip in self.chips}

    async def admit(self, tenancy: Tenancy) -> None:
        """Start a container on what it was promised: from then on it holds that instance."""
        ready: ReadyInstance = await self.instances.ensure(*tenancy)
        assert ready.uuid not in self.tenants.values()
        self.tenants[tenancy] = ready.uuid
        process = Process(pid=4242, gpu=tenancy[0], memory=MiB(1), instance=ready.uuid)
        self.befall(tenancy[0], lambda g: replace(g, processes=(*g.processes, process)))

    def leave(self, tenancy: Tenancy) -> None:
        """End a container, its pod and its promise."""
        uuid = self.tenants.pop(tenancy)
        self.promised.discard(tenancy)
        self.befall(
            tenancy[0],
            lambda g: replace(g, processes=tuple(p for p in g.processes if p.instance != uuid)),
        )

    def intrude(self, gpu: str, placed: Placement) -> None:
        """Let somebody else make an instance, unless it would be in a promise's way."""
        wanted = [p for g, p in self.promised if g == gpu]
        limited = [p for p in wanted if p.profile == placed.profile and p.profile.limit]
        hit = [p for p in wanted if p.mask & placed.mask]
        state = self.driver.state()
        created = simulated_machine.create_instance(
            state, gpu, profile=placed.profile.id, start=placed.start
        )
        if hit or limited or isinstance(created, simulated_machine.DriverRefusal):
            return
        self.strangers.setdefault(gpu, set()).add(created.instance.id)
        self.driver.change(lambda _: created.state)

    def reboot(self) -> None:
        """Restart the machine: containers end, instances are gone, promises stay."""
        self.boots += 1
        self.tenants.clear()
        self.strangers.clear()
        self.journal.close()
        boot = f"boot-{self.boots}"
        gpus = self.driver.state().gpus
        kept = tuple(replace(g, instances=(), processes=()) for g in gpus)  # mode kept by admins
        self.driver.change(lambda state: replace(state, boot=boot, gpus=kept))
        self.start(Fuse())

    def befall(self, gpu: str, change: Callable[[SimulatedGpu], SimulatedGpu]) -> None:
        """Change a GPU from outside the agent."""
        self.driver.change(lambda state: simulated_machine.change_gpu(state, gpu, change))
