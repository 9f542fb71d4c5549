"""Drivers for tests: simulated boards by model name, and drivers whose calls go another way."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from agent.driver.driver import (
    ComputeMode,
    Device,
    Driver,
    DriverError,
    DriverEvent,
    Fault,
    Instance,
    MigMode,
    Process,
    Usage,
    Versions,
)
from agent.driver.simulated_fleet import simulated_device
from agent.driver.simulated_machine import State, new_machine
from allocator.catalog.boards import MODELS, board_named
from allocator.model.board import Board

A100: Final = "NVIDIA A100-SXM4-40GB"
A30: Final = "NVIDIA A30"
H200: Final = "NVIDIA H200"
PRO_6000: Final = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
T4: Final = "Tesla T4"

Relay = Callable[[str, tuple[object, ...]], Any]


def machine(*models: str, node: str = "node-a", mig: bool = True, boot: str = "boot-1") -> State:
    """Build a machine with these products, in MIG mode where they have one."""
    chips = [
        simulated_device(MODELS[model], node=node, index=i, mig=mig)
        for i, model in enumerate(models)
    ]
    return new_machine(chips, boot)


def floor_swept() -> State:
    """Build a machine with an A100 that lists fewer places than its siblings."""
    whole = board_named(A100)
    assert whole is not None
    starts = {19: (0, 1, 4, 5), 14: (0, 4), 0: (0,)}
    kept = [replace(p, starts=starts[p.id]) for p in whole.profiles if p.id in starts]
    board = Board(name=whole.name, slots=whole.slots, profiles=tuple(kept))
    return new_machine([replace(machine(A100).gpus[0].chip, board=board)], "boot-1")


class RelayedDriver:
    """Implements the driver by handing each call's name and arguments to *relay*."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def versions(self) -> Versions:
        answer: Versions = self._relay("versions", ())
        return answer

    def devices(self) -> tuple[Device, ...]:
        answer: tuple[Device, ...] = self._relay("devices", ())
        return answer

    def instances(self, gpu: str) -> tuple[Instance, ...]:
        answer: tuple[Instance, ...] = self._relay("instances", (gpu,))
        return answer

    def processes(self, gpu: str) -> tuple[Process, ...]:
        answer: tuple[Process, ...] = self._relay("processes", (gpu,))
        return answer

    def usage(self, gpu: str) -> Usage:
        answer: Usage = self._relay("usage", (gpu,))
        return answer

    def events(self) -> tuple[DriverEvent, ...]:
        answer: tuple[DriverEvent, ...] = self._relay("events", ())
        return answer

    def create_instance(self, gpu: str, profile: int, start: int) -> Instance:
        answer: Instance = self._relay("create_instance", (gpu, profile, start))
        return answer

    def create_compute(self, gpu: str, instance: int) -> Instance:
        answer: Instance = self._relay("create_compute", (gpu, instance))
        return answer

    def destroy_compute(self, gpu: str, instance: int, compute: int) -> None:
        self._relay("destroy_compute", (gpu, instance, compute))

    def destroy_instance(self, gpu: str, instance: int) -> None:
        self._relay("destroy_instance", (gpu, instance))

    def enable_mig(self, gpu: str) -> MigMode:
        answer: MigMode = self._relay("enable_mig", (gpu,))
        return answer

    def compute_mode(self, gpu: str) -> ComputeMode:
        answer: ComputeMode = self._relay("compute_mode", (gpu,))
        return answer

    def set_compute_mode(self, gpu: str, mode: ComputeMode) -> None:
        self._relay("set_compute_mode", (gpu, mode))

    def close(self) -> None:
        self._relay("close", ())


class Faults:
    """A relay to *driver* whose n-th call of a name (from 1) fails as ``at`` says.

    ``calls`` counts the calls of each name.
    """

    def __init__(self, driver: Driver, at: Mapping[tuple[str, int], Fault]) -> None:
        self.at = dict(at)
        self.calls: Counter[str] = Counter()
        self._driver = driver

    def __call__(self, call: str, arguments: tuple[object, ...]) -> object:
        self.calls[call] += 1
        fault = self.at.get((call, self.calls[call]))
        if fault is not None:
            raise DriverError(fault, call, f"call {self.calls[call]} fails, as the test says")
        return getattr(self._driver, call)(*arguments)
