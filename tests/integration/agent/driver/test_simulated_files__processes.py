"""Drivers of several processes: they agree, and one that is killed leaves nothing half done."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent.driver.driver import Driver, DriverError, Fault, Instance
from agent.driver.simulated_files import SimulatedDriver
from agent.driver.simulated_machine import State
from allocator.model.board import Placement
from tests.fakes.driver import A100, machine
from tests.fakes.driver_process import Opener, driver_process, nvml, simulated
from tests.fakes.nvml.machine import DIES_AFTER, DIES_BEFORE, Machine

_LOOKS = 4000  # at the machine, some milliseconds apart
CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"
COMPUTE = "nvmlGpuInstanceCreateComputeInstance"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def births(opener: Opener, file: Path, fresh: State) -> int:
    """Return how many compute instances were ever made, past any driver's session."""
    if opener is nvml:
        return int(Machine(file).read().births)
    return SimulatedDriver(fresh, file=file).state().births


def assert_consistent(driver: Driver, gpu: str) -> tuple[Instance, ...]:
    """Return the instances after making sure that a GPU could have them all."""
    (device,) = driver.devices()
    assert device.board is not None
    by_id = {profile.id: profile for profile in device.board.profiles}
    instances = driver.instances(gpu)
    taken = 0
    for instance in instances:
        placed = Placement(by_id[instance.profile], instance.start)
        assert instance.start in placed.profile.starts
        assert not taken & placed.mask
        taken |= placed.mask
        assert (instance.compute is None) == (instance.uuid is None)
    uuids = [instance.uuid for instance in instances if instance.uuid]
    assert len({instance.id for instance in instances}) == len(instances)
    assert len(set(uuids)) == len(uuids)
    return instances


def destroy_all_instances(driver: Driver, gpu: str) -> None:
    for instance in driver.instances(gpu):
        if instance.compute is not None:
            driver.destroy_compute(gpu, instance.id, instance.compute)
        driver.destroy_instance(gpu, instance.id)


@pytest.mark.parametrize("opener", [simulated, nvml])
def test_the_machine_outlives_whoever_is_killed(
    opener: Opener, tmp_path: Path, stack: ExitStack
) -> None:
    """Two processes work on one GPU; whichever instant they are killed at, it stays usable."""
    fresh, file = machine(A100), tmp_path / "machine"
    gpu = fresh.gpus[0].chip.uuid
    environment = Machine(file, fresh).environment if opener is nvml else {}
    watcher = stack.enter_context(driver_process(environment)).open(opener, file, fresh)

    def wait(more: int) -> None:
        goal = births(opener, file, fresh) + more
        for _ in range(_LOOKS):
            if births(opener, file, fresh) >= goal:
                return
            time.sleep(0.005)
        pytest.fail("nobody works")

    for seed in range(3):
        pair = [stack.enter_context(driver_process(environment)) for _ in range(2)]
        for number, worker in enumerate(pair):
            worker.open(opener, file, fresh)
            worker.churn(gpu, 2 * seed + number)
        for worker in pair:  # once the first is gone, the other goes on
            wait(10 + seed)
            worker.kill()

        assert_consistent(watcher, gpu)
        destroy_all_instances(watcher, gpu)
        created = watcher.create_instance(gpu, 0, 0)  # all of it is free again
        watcher.destroy_instance(gpu, created.id)


@pytest.mark.parametrize(
    ("call", "death", "left"),
    [
        (CREATE, DIES_BEFORE, []),
        (CREATE, DIES_AFTER, [False]),
        (COMPUTE, DIES_BEFORE, [False]),
        (COMPUTE, DIES_AFTER, [True]),
    ],
)
def test_death_within_a_call_is_all_or_nothing(
    call: str, death: int, left: list[bool], *, tmp_path: Path, stack: ExitStack
) -> None:
    """The machine is as before the call or as after it, and a new process goes on from there."""
    hardware = Machine(tmp_path / "machine", machine(A100))
    gpu = machine(A100).gpus[0].chip.uuid
    victim = stack.enter_context(driver_process(hardware.environment))
    driver = victim.open(nvml, hardware.path)
    hardware.fail(call, death)

    with pytest.raises((EOFError, ConnectionError)):
        driver.create_compute(gpu, driver.create_instance(gpu, 9, 4).id)

    hardware.mend()
    heir = stack.enter_context(driver_process(hardware.environment)).open(nvml, hardware.path)
    instances = assert_consistent(heir, gpu)
    assert [instance.uuid is not None for instance in instances] == left
    destroy_all_instances(heir, gpu)
    assert heir.instances(gpu) == ()


def test_failures_are_injected_by_call(tmp_path: Path, stack: ExitStack) -> None:
    """The n-th call of a function fails as told, in whichever process it is made."""
    hardware = Machine(tmp_path / "machine", machine(A100))
    gpu = machine(A100).gpus[0].chip.uuid
    drivers = [
        stack.enter_context(driver_process(hardware.environment)).open(nvml, hardware.path)
        for _ in range(2)
    ]
    hardware.fail(CREATE, 999, nth=2)
    drivers[0].create_instance(gpu, 19, 0)

    with pytest.raises(DriverError, match=f"{CREATE}.*999"):
        drivers[1].create_instance(gpu, 19, 1)

    drivers[0].create_instance(gpu, 19, 2)
    assert hardware.calls(CREATE) == 3
    assert [instance.start for instance in drivers[1].instances(gpu)] == [0, 2]


def test_compute_may_fail_after_its_instance(tmp_path: Path, stack: ExitStack) -> None:
    """What is left is a GPU instance without compute, which a MIG device's listing would hide."""
    hardware = Machine(tmp_path / "machine", machine(A100))
    gpu = machine(A100).gpus[0].chip.uuid
    driver = stack.enter_context(driver_process(hardware.environment)).open(nvml, hardware.path)
    hardware.fail(COMPUTE, 999)
    created = driver.create_instance(gpu, 14, 4)

    with pytest.raises(DriverError, match=COMPUTE):
        driver.create_compute(gpu, created.id)

    assert driver.instances(gpu) == (created,)
    assert driver.create_compute(gpu, created.id).uuid is not None


def test_a_reloaded_driver_is_found_again(tmp_path: Path, stack: ExitStack) -> None:
    """While it is away it is UNAVAILABLE, whatever is asked; then the same driver goes on."""
    hardware = Machine(tmp_path / "machine", machine(A100))
    gpu = machine(A100).gpus[0].chip.uuid
    driver = stack.enter_context(driver_process(hardware.environment)).open(nvml, hardware.path)
    before = driver.devices()

    with hardware.changing() as changed:
        changed.unloaded = 1
    for call, arguments in (("devices", ()), ("instances", (gpu,)), ("events", ())):
        with pytest.raises(DriverError) as caught:
            getattr(driver, call)(*arguments)
        assert caught.value.fault is Fault.UNAVAILABLE
    with hardware.changing() as changed:
        changed.unloaded = 0

    assert driver.devices() == before
    assert driver.events() == ()
