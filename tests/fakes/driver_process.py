"""Drivers in a process of their own: pynvml and the loader keep the first library they find.

It also can be killed while it works.
"""

import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from agent.driver.driver import Driver, DriverError, Fault
from agent.driver.simulated_files import SimulatedDriver
from agent.driver.simulated_machine import State
from agent.nvml.driver import NvmlDriver
from tests.fakes.driver import RelayedDriver
from tests.fakes.nvml.machine import VARIABLE

_ROOT: Final = Path(__file__).parents[2]
_PATIENCE: Final = 60.0  # seconds; the machine may be busy

Opener = Callable[[Path, State | None], Driver]


def nvml(machine: Path, _: State | None) -> Driver:
    """Open NVML on one of the stand-in's machines."""
    os.environ[VARIABLE] = str(machine)
    return NvmlDriver()


def hardware(_: Path, __: State | None) -> Driver:
    """Open NVML on what this computer has."""
    return NvmlDriver()


def simulated(file: Path, fresh: State | None) -> Driver:
    """Open simulated boards that lie in *file*."""
    assert fresh is not None
    return SimulatedDriver(fresh, file=file)


class DriverProcess:
    """A child that holds a driver; ``driver`` is how that is spoken to, and raises as it does."""

    def __init__(self, connection: Connection, process: "subprocess.Popen[bytes]") -> None:
        self.pid = process.pid
        self.driver = RelayedDriver(self._ask)
        self._process = process
        self._connection = connection

    def open(self, opener: Opener, path: Path, fresh: State | None = None) -> RelayedDriver:
        """Let it close its driver and open another one."""
        self._ask("open", (opener, path, fresh))
        return self.driver

    def churn(self, gpu: str, seed: int) -> None:
        """Let it create and destroy instances on *gpu* until it is killed; it answers no more."""
        self._connection.send(("churn", (gpu, seed)))

    def kill(self) -> None:
        """End it as a node that runs out of memory would."""
        self._process.kill()
        self._process.wait(_PATIENCE)

    def _ask(self, call: str, arguments: tuple[object, ...]) -> Any:  # noqa: ANN401 -- any answer
        self._connection.send((call, arguments))
        if not self._connection.poll(_PATIENCE):
            raise TimeoutError(f"{call} got no answer within {_PATIENCE} s")
        fault, answer = self._connection.recv()
        if fault is not None:
            raise DriverError(Fault(fault), call, answer)
        return answer


@contextmanager
def driver_process(environment: Mapping[str, str] = {}) -> Iterator[DriverProcess]:
    """Run a child with this addition to its environment; it has no driver until told which."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "tests.fakes.driver_process", str(theirs.fileno())]
    process = subprocess.Popen(
        command, cwd=_ROOT, env={**os.environ, **environment}, pass_fds=(theirs.fileno(),)
    )
    theirs.close()
    with process:
        try:
            with Connection(ours.detach()) as connection:
                yield DriverProcess(connection, process)
        finally:
            process.kill()


def _serve(connection: Connection) -> None:
    driver: Driver | None = None
    while True:
        try:
            call, arguments = connection.recv()
        except EOFError:
            return
        try:
            if call == "churn" and driver is not None:
                _churn(driver, *arguments)
            elif call == "open":
                opener, path, fresh = arguments
                if driver is not None:
                    driver.close()
                driver = opener(path, fresh)
                connection.send((None, None))
            else:
                connection.send((None, getattr(driver, call)(*arguments)))
        except DriverError as error:
            connection.send((error.fault.value, str(error)))


def _churn(driver: Driver, gpu: str, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 -- the same from run to run
    boards = {device.uuid: device.board for device in driver.devices()}
    board = boards[gpu]
    assert board is not None
    while True:
        try:
            if chance.random() < 0.5:
                profile = chance.choice(board.profiles)
                made = driver.create_instance(gpu, profile.id, chance.choice(profile.starts))
                driver.create_compute(gpu, made.id)
            elif found := driver.instances(gpu):
                old = chance.choice(found)
                if old.compute is not None:
                    driver.destroy_compute(gpu, old.id, old.compute)
                driver.destroy_instance(gpu, old.id)
        except DriverError as error:
            if error.fault in {Fault.UNAVAILABLE, Fault.LOST}:
                raise  # all others come of what the other process does meanwhile


if __name__ == "__main__":
    with Connection(int(sys.argv[1])) as parent:
        _serve(parent)
