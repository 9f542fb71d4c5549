"""Modes: MIG mode is switched on only where that takes no reset, disturbs nobody and is allowed."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agent.driver.driver import DriverError, Fault, MigMode, Process
from agent.driver.simulated_files import SimulatedDriver
from agent.driver.simulated_machine import State, change_gpu
from agent.mig.gpu_client import MigModeClient, UnfitGpuError
from agent.mig.progress import mig_off_reason
from allocator.model.units import MiB
from tests.builders.model import placed
from tests.fakes.driver import A100, H200, T4, Faults, RelayedDriver, machine
from tests.harness.crashing_agent import Direct, Fuse
from tests.harness.mig_agent import Desk
from tests.harness.simulated_boards import GPU


def machine_with_mig_off(product: str, *, busy: bool = False) -> State:
    """Build a machine with one GPU out of MIG mode."""
    processes = (Process(pid=4, gpu=GPU, memory=MiB(1)),) if busy else ()
    return change_gpu(machine(product, mig=False), GPU, lambda g: replace(g, processes=processes))


@pytest.mark.parametrize(
    ("state", "promised", "allowed", "switched"),
    [
        pytest.param(machine_with_mig_off(H200), True, True, True, id="rebooted-hopper"),
        pytest.param(machine_with_mig_off(H200), True, False, False, id="not-allowed"),
        pytest.param(machine_with_mig_off(H200), False, True, False, id="nothing-promised"),
        pytest.param(machine_with_mig_off(H200, busy=True), True, True, False, id="has-clients"),
        pytest.param(machine_with_mig_off(A100), True, True, False, id="ampere-would-be-reset"),
        pytest.param(machine_with_mig_off(T4), True, True, False, id="no-mig"),
    ],
)
def test_the_mode_is_switched_on_in_one_case_only(
    state: State, promised: bool, *, allowed: bool, switched: bool
) -> None:
    """A GPU from Hopper on, idle, with instances promised on it, whose owner allows it."""
    driver = SimulatedDriver(state)
    faults = Faults(driver, {})
    worker = Direct(RelayedDriver(faults), Fuse(), lambda _: False)
    modes = MigModeClient(GPU, worker, lambda: allowed)

    if switched:
        device = asyncio.run(modes.device(promised=promised))
        assert device.mig == MigMode(current=True, pending=True)
    else:
        with pytest.raises(UnfitGpuError) as raised:
            asyncio.run(modes.device(promised=promised))
        assert str(raised.value) == mig_off_reason(driver.devices()[0])
    assert faults.calls["enable_mig"] == switched


def test_a_driver_that_refuses_is_asked_again(tmp_path: Path) -> None:
    """When the driver does not switch, the user reads why, and it is tried at the next look."""
    desk = Desk(tmp_path, machine_with_mig_off(H200))
    desk.tools = replace(desk.tools, may_enable_mig=lambda: True)
    desk.restart()
    desk.faults.at["enable_mig", 1] = Fault.NO_PERMISSION
    wanted = placed("1g.18gb", 0, H200)

    async def story() -> None:
        await desk.settle(wanted)
        assert "enable_mig: call 1 fails" in await desk.why(wanted)
        await desk.again()
        assert (await desk.instances.ensure(GPU, wanted)).uuid

    asyncio.run(story())


def test_a_simulated_driver_says_that_a_mode_is_only_pending() -> None:
    """What is asked of a busy Ampere is not there yet, and not passed off as there."""
    driver = SimulatedDriver(machine_with_mig_off(A100, busy=True))

    with pytest.raises(DriverError) as raised:
        driver.enable_mig(GPU)

    assert raised.value.fault is Fault.IN_USE
