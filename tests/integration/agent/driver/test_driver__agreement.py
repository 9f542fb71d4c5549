"""Drivers: NVML on the stand-in and the simulation do the same, whatever is asked of them."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from hypothesis.stateful import run_state_machine_as_test as run

from agent.driver.driver import Driver, DriverError, Fault, Instance, Process
from allocator.model.board import Board
from tests.fakes.driver import A30, A100, PRO_6000, floor_swept, machine
from tests.integration.agent.hardware import Children, Hardware, NvmlHardware, SimulatedHardware

_MACHINES = {
    "a100": machine(A100),
    "a30": machine(A30),
    "rtx-pro-6000": machine(PRO_6000),
    "floor-swept": floor_swept(),
}
_PIDS = st.integers(1, 3)


class Agreement(RuleBasedStateMachine):
    """One GPU twice, each call made to both."""

    children: ClassVar[Children]
    folder: ClassVar[Path]

    @initialize(name=st.sampled_from(sorted(_MACHINES)))
    def build(self, name: str) -> None:
        state = _MACHINES[name]
        self.children.put_back()
        (self.folder / "simulated").unlink(missing_ok=True)
        self.hardware: tuple[Hardware, ...] = (
            SimulatedHardware(state, self.folder / "simulated"),
            NvmlHardware(state, self.folder / "nvml", self.children),
        )
        self.drivers = tuple(hardware.session() for hardware in self.hardware)
        self.gpu = state.gpus[0].chip.uuid
        assert state.gpus[0].chip.board is not None
        self.board: Board = state.gpus[0].chip.board

    @rule(data=st.data())
    def create_instance(self, data: st.DataObject) -> None:
        profile = data.draw(st.sampled_from(self.board.profiles))
        start = data.draw(st.one_of(st.sampled_from(profile.starts), st.integers(0, 12)))
        self.call_both("create_instance", profile.id, start)

    @rule(data=st.data())
    def create_both(self, data: st.DataObject) -> None:
        """Go where a random walk of single calls seldom gets: to instances that can be used."""
        profile = data.draw(st.sampled_from(self.board.profiles))
        before = {instance.id for instance in self.drivers[0].instances(self.gpu)}
        self.call_both("create_instance", profile.id, data.draw(st.sampled_from(profile.starts)))
        for instance in self.drivers[0].instances(self.gpu):
            if instance.id not in before:
                self.call_both("create_compute", instance.id)

    @rule(data=st.data())
    def create_compute(self, data: st.DataObject) -> None:
        self.call_both("create_compute", self.some_instance(data))

    @rule(data=st.data(), compute=st.sampled_from([0, 0, 0, 1]))
    def destroy_compute(self, data: st.DataObject, compute: int) -> None:
        self.call_both("destroy_compute", self.some_instance(data), compute)

    @rule(data=st.data())
    def destroy_instance(self, data: st.DataObject) -> None:
        self.call_both("destroy_instance", self.some_instance(data))

    @rule(pid=_PIDS, data=st.data())
    def run_process(self, pid: int, data: st.DataObject) -> None:
        listed = self.drivers[0].instances(self.gpu)
        ready = [instance.id for instance in listed if instance.uuid]
        if not ready:
            return
        number = data.draw(st.sampled_from(ready))
        for hardware, driver in zip(self.hardware, self.drivers, strict=True):
            uuids = {i.id: i.uuid for i in driver.instances(self.gpu)}
            hardware.end(pid)
            hardware.add(Process(pid=pid, gpu=self.gpu, memory=None, instance=uuids[number]))

    @rule(pid=_PIDS)
    def end_process(self, pid: int) -> None:
        for hardware in self.hardware:
            hardware.end(pid)

    @rule(data=st.data(), open_=st.booleans())
    def leak(self, data: st.DataObject, *, open_: bool) -> None:
        listed = self.drivers[0].instances(self.gpu)
        if listed:
            number = data.draw(st.sampled_from(listed)).id
            for hardware in self.hardware:
                hardware.leak(self.gpu, number, open_=open_)

    def some_instance(self, data: st.DataObject) -> int:
        """Draw the id of an instance: mostly one that is there, as most numbers never are."""
        there = [instance.id for instance in self.drivers[0].instances(self.gpu)]
        return data.draw(st.sampled_from([*there, *there, *there, *there, 0, 7]))

    @invariant()
    def same_instances(self) -> None:
        simulated, real = (
            sorted((without_uuid(i) for i in driver.instances(self.gpu)), key=lambda i: i.id)
            for driver in self.drivers
        )
        assert simulated == real

    @invariant()
    def same_processes(self) -> None:
        simulated, real = ({p.pid for p in driver.processes(self.gpu)} for driver in self.drivers)
        assert simulated == real

    def call_both(self, call: str, *arguments: int) -> None:
        simulated, real = (outcome(driver, call, self.gpu, *arguments) for driver in self.drivers)
        assert simulated == real


def outcome(driver: Driver, call: str, *arguments: object) -> Instance | Fault | None:
    """Return what a call answers or how it fails, but for what only looks random."""
    try:
        answer = getattr(driver, call)(*arguments)
    except DriverError as error:
        return error.fault
    return without_uuid(answer) if isinstance(answer, Instance) else None


def without_uuid(instance: Instance) -> Instance:
    return replace(instance, uuid=instance.uuid and "MIG")


@pytest.fixture
def agreement(tmp_path: Path) -> Iterator[type[Agreement]]:
    with ExitStack() as stack:
        Agreement.children = Children(stack)
        Agreement.folder = tmp_path
        yield Agreement


@pytest.mark.timeout(600)  # to make a failing sequence short takes minutes
def test_the_simulation_does_what_nvml_does(agreement: type[Agreement]) -> None:
    """Every sequence of calls, processes and leaks has the same outcomes on both."""
    run(
        agreement,
        settings=settings(
            max_examples=100,
            stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
        ),
    )
