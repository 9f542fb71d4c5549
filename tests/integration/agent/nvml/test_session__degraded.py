"""NVML that answers some questions only: what is lost is what hangs on them, and nothing else."""

from pathlib import Path

from agent.driver.driver import DriverEvent
from tests.fakes.driver import A100, machine
from tests.fakes.driver_process import DriverProcess
from tests.integration.agent.nvmlsession import Scene, scene

NO_FUNCTION, UNKNOWN = 13, 999
EVERY = 0  # for the n-th call: each of them


def test_a_gpu_that_does_not_tell_its_mode_is_not_taken_for_uncut(two: Scene) -> None:
    """What would be promised on it as a whole may be cut; another GPU is told as ever."""
    two.machine.fail("nvmlDeviceGetMigMode", UNKNOWN)

    assert two.driver.devices() == two.devices[1:]
    assert two.driver.devices() == two.devices


def test_a_gpu_that_cannot_report_silences_no_other(two: Scene) -> None:
    """And it is asked to report again."""
    two.machine.fail("nvmlDeviceRegisterEvents", UNKNOWN)
    first, second = (device.uuid for device in two.devices)

    assert two.driver.events() == ()
    two.machine.report(79, second)
    assert two.driver.events() == (DriverEvent(gpu=second, xid=79),)
    two.machine.report(48, first)
    assert two.driver.events() == (DriverEvent(gpu=first, xid=48),)


def test_a_driver_that_knows_no_placements_serves_whole_gpus(two: Scene) -> None:
    """As those before 510; what it cannot place it does not offer."""
    two.machine.fail("nvmlDeviceGetGpuInstancePossiblePlacements_v2", NO_FUNCTION, nth=EVERY)
    two.driver.close()

    found = two.driver.devices()

    assert [device.uuid for device in found] == [device.uuid for device in two.devices]
    assert [device.board for device in found] == [None, None]


def test_links_that_come_up_later_are_seen(child: DriverProcess, tmp_path: Path) -> None:
    """The switches between GPUs are configured after the driver was loaded."""
    played = scene(child, tmp_path, machine(A100, A100))
    names = [device.uuid for device in played.devices]
    with played.machine.changing() as changing:
        for index in (0, 1):
            changing.gpus[index].link_count, changing.gpus[index].links[0] = 1, 1 - index

    found = played.driver.devices()

    assert [device.links for device in played.devices] == [(), ()]
    assert [device.links for device in found] == [(names[1],), (names[0],)]


def test_a_link_to_nowhere_costs_no_gpu(two: Scene) -> None:
    """The other end may be no GPU, and then it may have no address."""
    with two.machine.changing() as changing:
        changing.gpus[0].link_count, changing.gpus[0].links[0] = 1, 9

    assert two.driver.devices() == two.devices
