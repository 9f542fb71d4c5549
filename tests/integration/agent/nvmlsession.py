"""NVML in a process of its own over one of the stand-in's machines, for tests of the driver."""

import os
from dataclasses import dataclass
from pathlib import Path

from agent.driver.driver import Device, Driver
from agent.driver.simulated_machine import State
from agent.nvml.driver import NvmlDriver
from tests.fakes.driver_process import DriverProcess
from tests.fakes.nvml.machine import VARIABLE, Machine


@dataclass(frozen=True, slots=True)
class Scene:
    """A machine, the driver on it, and its GPUs as they are listed at first."""

    machine: Machine
    driver: Driver
    devices: tuple[Device, ...]

    @property
    def gpu(self) -> str:
        """Return the UUID of the first GPU."""
        return self.devices[0].uuid


def opened(machine: Path, _: State | None) -> Driver:
    """Open NVML on a machine, with what lies beside it as the folder of the kernel."""
    os.environ[VARIABLE] = str(machine)
    return NvmlDriver(sysfs=machine.parent / "sys")


def scene(child: DriverProcess, folder: Path, state: State) -> Scene:
    """Play *state* in *folder*, before *child*, whose former driver is closed."""
    machine = Machine(folder / "machine", state)
    driver = child.open(opened, machine.path)
    return Scene(machine, driver, driver.devices())
