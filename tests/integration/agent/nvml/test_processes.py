"""Processes as NVML lists them: three listings, two versions of each, and samples of any age."""

from pathlib import Path

import pytest

from agent.driver.driver import Process
from allocator.model.units import MiB
from tests.fakes.driver import machine
from tests.fakes.driver_process import DriverProcess
from tests.fakes.nvml.machine import Kind
from tests.integration.agent.nvmlsession import Scene, scene

NOT_SUPPORTED, TOO_SMALL, NO_FUNCTION = 3, 7, 13
EVERY = 0  # for the n-th call: each of them


@pytest.fixture
def plain(child: DriverProcess, tmp_path: Path) -> Scene:
    return scene(child, tmp_path, machine("NVIDIA L40S"))


def test_a_process_is_listed_once(plain: Scene) -> None:
    """One that computes and draws is in several listings with the same memory."""
    gpu = plain.gpu
    for kind in Kind:
        plain.machine.add(Process(pid=40, gpu=gpu, memory=MiB(300), utilization=7), kind=kind)
    plain.machine.add(Process(pid=41, gpu=gpu, memory=None), kind=Kind.GRAPHICS)

    found = {process.pid: process for process in plain.driver.processes(gpu)}

    assert len(found) == len(plain.driver.processes(gpu)) == 2
    assert found[40] == Process(pid=40, gpu=gpu, memory=MiB(300), utilization=7)
    assert found[41].memory is None


@pytest.mark.parametrize("kind", Kind)
def test_a_process_of_each_kind_is_listed(plain: Scene, kind: Kind) -> None:
    """Each kind has a listing of its own: who computes, who draws, and who computes by MPS."""
    client = Process(pid=40, gpu=plain.gpu, memory=MiB(300), utilization=7)
    plain.machine.add(client, kind=kind)

    assert plain.driver.processes(plain.gpu) == (client,)


@pytest.mark.parametrize(
    ("call", "code", "nth"),
    [
        pytest.param("nvmlDeviceGetComputeRunningProcesses_v3", NO_FUNCTION, EVERY, id="old"),
        pytest.param("nvmlDeviceGetComputeRunningProcesses_v3", TOO_SMALL, 2, id="grew"),
        pytest.param("nvmlDeviceGetGraphicsRunningProcesses_v3", NOT_SUPPORTED, EVERY, id="blind"),
        pytest.param("nvmlDeviceGetMPSComputeRunningProcesses_v3", NO_FUNCTION, EVERY, id="no MPS"),
    ],
)
def test_processes_are_listed_by_what_the_driver_has(
    plain: Scene, call: str, code: int, *, nth: int
) -> None:
    """Older listings stand in, other kinds may be missing, and a list may grow meanwhile."""
    gpu = plain.gpu
    plain.machine.add(Process(pid=40, gpu=gpu, memory=MiB(300)))
    plain.machine.fail(call, code, nth=nth)

    assert [process.pid for process in plain.driver.processes(gpu)] == [40]


def test_utilization_of_long_ago_is_none_of_now(plain: Scene) -> None:
    """The driver keeps samples for long; who has none of the last seconds computes nothing."""
    gpu = plain.gpu
    plain.machine.add(Process(pid=40, gpu=gpu, memory=MiB(300), utilization=90), seen=1_000_000)
    plain.machine.add(Process(pid=41, gpu=gpu, memory=MiB(300), utilization=7))

    found = {process.pid: process.utilization for process in plain.driver.processes(gpu)}

    assert found == {40: 0, 41: 7}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param(6, 0, id="no-sample-found"),
        pytest.param(NOT_SUPPORTED, None, id="not-supported"),
        pytest.param(NO_FUNCTION, None, id="old-driver"),
        pytest.param(4, None, id="no-permission"),
        pytest.param(999, None, id="unknown-error"),
    ],
)
def test_a_driver_without_samples_says_nothing_of_compute(
    plain: Scene, code: int, expected: int | None
) -> None:
    """Only one that can sample says by leaving a process out that it computes nothing."""
    plain.machine.add(Process(pid=40, gpu=plain.gpu, memory=MiB(300), utilization=7))
    plain.machine.fail("nvmlDeviceGetProcessUtilization", code, nth=EVERY)

    (process,) = plain.driver.processes(plain.gpu)

    assert process.utilization == expected
