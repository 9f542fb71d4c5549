"""Hardware for driver tests: a driver, and what happens to its GPUs besides."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from agent.driver.driver import Driver, DriverEvent, Process
from agent.driver.simulated_files import SimulatedDriver
from agent.driver.simulated_machine import SimulatedGpu, State, add_event, change_gpu
from tests.fakes.driver_process import DriverProcess, driver_process, nvml
from tests.fakes.nvml.machine import Machine


class Hardware(Protocol):
    """What a test does to GPUs past the driver."""

    def session(self) -> Driver:
        """Open another session on the same GPUs."""

    def add(self, process: Process) -> None: ...

    def end(self, pid: int) -> None: ...

    def leak(self, gpu: str, instance: int, *, open_: bool = True) -> None: ...

    def report(self, xid: int, gpu: str | None = None, instance: int | None = None) -> None: ...

    def lose(self, gpu: str) -> None: ...


@dataclass(frozen=True, slots=True)
class SimulatedHardware:
    """Boards of the simulation that lie in a file, as several sessions are to see them."""

    fresh: State
    file: Path

    def session(self) -> SimulatedDriver:
        return SimulatedDriver(self.fresh, file=self.file)

    def add(self, process: Process) -> None:
        self._change(process.gpu, lambda g: replace(g, processes=(*g.processes, process)))

    def end(self, pid: int) -> None:
        for running in self.fresh.gpus:
            self._change(
                running.chip.uuid,
                lambda g: replace(g, processes=tuple(p for p in g.processes if p.pid != pid)),
            )

    def leak(self, gpu: str, instance: int, *, open_: bool = True) -> None:
        handles = frozenset({instance})
        self._change(
            gpu, lambda g: replace(g, leaks=g.leaks | handles if open_ else g.leaks - handles)
        )

    def report(self, xid: int, gpu: str | None = None, instance: int | None = None) -> None:
        event = DriverEvent(gpu=gpu, xid=xid, instance=instance)
        self.session().change(lambda state: add_event(state, event))

    def lose(self, gpu: str) -> None:
        self._change(gpu, lambda g: replace(g, lost=True))

    def _change(self, gpu: str, change: Callable[[SimulatedGpu], SimulatedGpu]) -> None:
        self.session().change(lambda state: change_gpu(state, gpu, change))


class Children:
    """Processes that hold drivers, started when first needed and used by test after test."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._started: list[DriverProcess] = []
        self._taken = 0

    def next(self, machine: Machine) -> DriverProcess:
        """Return one that this test has not had yet."""
        if self._taken == len(self._started):
            child = self._stack.enter_context(driver_process(machine.environment))
            self._started.append(child)
        self._taken += 1
        return self._started[self._taken - 1]

    def put_back(self) -> None:
        """Let the next test have all of them."""
        self._taken = 0


class NvmlHardware:
    """The stand-in's machine, to which each session speaks from a process of its own."""

    def __init__(self, fresh: State, file: Path, children: Children) -> None:
        self.machine = Machine(file, fresh)
        self.add = self.machine.add
        self.end = self.machine.end
        self.leak = self.machine.leak
        self.report = self.machine.report
        self._children = children

    def session(self) -> Driver:
        return self._children.next(self.machine).open(nvml, self.machine.path)

    def lose(self, gpu: str) -> None:
        self.machine.set(gpu, lost=1)
