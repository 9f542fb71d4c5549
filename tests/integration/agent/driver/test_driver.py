"""Drivers: the simulated boards and NVML answer alike, whoever else is on the same GPUs."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from agent.driver.driver import Driver, DriverError, DriverEvent, Fault, Instance, MigMode, Process
from agent.driver.simulated_machine import State
from allocator.model.units import MiB
from tests.fakes.driver import A30, A100, H200, PRO_6000, T4, floor_swept, machine
from tests.integration.agent.hardware import Children, Hardware, NvmlHardware, SimulatedHardware

Make = Callable[[State], Hardware]


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    with ExitStack() as stack:
        yield Children(stack)


@pytest.fixture(params=["simulated", "nvml"])
def make(request: pytest.FixtureRequest, tmp_path: Path, children: Children) -> Make:
    children.put_back()
    file = tmp_path / "machine"
    if request.param == "simulated":
        return lambda state: SimulatedHardware(state, file)
    return lambda state: NvmlHardware(state, file, children)


def fault_of(driver: Driver, call: str, *arguments: object) -> Fault | None:
    """Return how a call fails, ``None`` if it does not."""
    try:
        getattr(driver, call)(*arguments)
    except DriverError as error:
        return error.fault
    return None


def create_whole_instance(driver: Driver, gpu: str, *, profile: int, start: int) -> Instance:
    """Create an instance with its compute."""
    return driver.create_compute(gpu, driver.create_instance(gpu, profile, start).id)


def only_gpu(driver: Driver) -> str:
    """Return the UUID of the one GPU."""
    (device,) = driver.devices()
    return device.uuid


def test_devices_are_what_was_built(make: Make) -> None:
    """Every field but NUMA, which the kernel tells, is read back as the board has it."""
    state = machine(A100, T4, PRO_6000, A30, H200)
    linked = replace(state.gpus[0].chip, links=(state.gpus[3].chip.uuid,), minor=7)
    state = replace(state, gpus=(replace(state.gpus[0], chip=linked), *state.gpus[1:]))

    devices = make(state).session().devices()

    assert [device.index for device in devices] == [0, 1, 2, 3, 4]
    for device, running in zip(devices, state.gpus, strict=True):
        chip = running.chip
        assert (device.uuid, device.minor, device.pci) == (chip.uuid, chip.minor, chip.pci)
        assert (device.model, device.memory) == (chip.model, chip.memory)
        assert (device.ampere_or_older, device.mig) == (chip.ampere_or_older, running.mig)
        assert (device.board, device.links) == (chip.board, chip.links)


def test_versions_are_reported(make: Make) -> None:
    """The newest CUDA is a pair of numbers; the others have some text."""
    versions = make(machine(T4)).session().versions()

    assert versions.driver
    assert versions.nvml
    assert re.fullmatch(r"\d+\.\d+", versions.cuda)


@pytest.mark.parametrize("model", [A100, A30, H200, PRO_6000, "floor-swept"])
def test_every_placement_can_be_had_alone(make: Make, model: str) -> None:
    """What a board lists is created where it says, and read back the same."""
    driver = make(floor_swept() if model == "floor-swept" else machine(model)).session()
    (device,) = driver.devices()
    assert device.board is not None

    for profile in device.board.profiles:
        for start in profile.starts:
            created = driver.create_instance(device.uuid, profile.id, start)

            assert (created.gpu, created.profile, created.start) == (device.uuid, profile.id, start)
            assert (created.compute, created.uuid) == (None, None)
            assert driver.instances(device.uuid) == (created,)
            driver.destroy_instance(device.uuid, created.id)
    assert driver.instances(device.uuid) == ()


def test_compute_fills_its_instance(make: Make) -> None:
    """A GPU instance has no UUID until it has compute, and then one that no other has."""
    driver = make(machine(A100)).session()
    gpu = only_gpu(driver)

    small, large = (
        create_whole_instance(driver, gpu, profile=19, start=6),
        create_whole_instance(driver, gpu, profile=9, start=0),
    )

    assert {small, large} == set(driver.instances(gpu))
    assert all(
        re.fullmatch(r"MIG-[0-9a-f-]{36}", instance.uuid or "") for instance in (small, large)
    )
    assert small.uuid != large.uuid
    assert fault_of(driver, "create_compute", gpu, small.id) is Fault.NO_ROOM


def test_taken_slots_are_refused(make: Make) -> None:
    """Overlap is NO_ROOM, even with the very same instance; what is beside it fits."""
    driver = make(machine(A100)).session()
    gpu = only_gpu(driver)
    create_whole_instance(driver, gpu, profile=14, start=2)

    assert fault_of(driver, "create_instance", gpu, 14, 2) is Fault.NO_ROOM
    assert fault_of(driver, "create_instance", gpu, 19, 3) is Fault.NO_ROOM
    assert fault_of(driver, "create_instance", gpu, 5, 0) is Fault.NO_ROOM
    assert fault_of(driver, "create_instance", gpu, 19, 1) is None
    assert fault_of(driver, "create_instance", gpu, 9, 4) is None


@pytest.mark.parametrize(("model", "first", "second"), [(A100, 20, 20), (PRO_6000, 65, 14)])
def test_media_engines_run_out(make: Make, *, model: str, first: int, second: int) -> None:
    """There is one +me instance, and beside +me.all nothing but -me."""
    driver = make(machine(model)).session()
    gpu = only_gpu(driver)
    driver.create_instance(gpu, first, 0)

    assert fault_of(driver, "create_instance", gpu, second, 6) is Fault.NO_ROOM
    if model == PRO_6000:
        assert fault_of(driver, "create_instance", gpu, 67, 6) is None


def test_no_other_placement_exists(make: Make) -> None:
    """An unknown profile or start is an error, and creates nothing."""
    driver = make(machine(A30)).session()
    gpu = only_gpu(driver)

    assert fault_of(driver, "create_instance", gpu, 19, 0) is Fault.OTHER
    assert fault_of(driver, "create_instance", gpu, 5, 1) is Fault.OTHER
    assert driver.instances(gpu) == ()


def test_what_is_not_there_is_absent(make: Make) -> None:
    """GPUs, instances and compute instances alike."""
    driver = make(machine(A30)).session()
    gpu = only_gpu(driver)
    created = driver.create_instance(gpu, 14, 0)

    assert fault_of(driver, "instances", "GPU-none") is Fault.ABSENT
    assert fault_of(driver, "create_compute", gpu, created.id + 1) is Fault.ABSENT
    assert fault_of(driver, "destroy_instance", gpu, created.id + 1) is Fault.ABSENT
    assert fault_of(driver, "destroy_compute", gpu, created.id, 0) is Fault.ABSENT


def test_nothing_is_cut_without_mig_mode(make: Make) -> None:
    """A GPU without the mode has no instances and can have none; nor has one that lacks MIG."""
    driver = make(machine(A100, T4, mig=False)).session()
    able, plain = driver.devices()

    assert (able.mig, plain.mig) == (MigMode(current=False, pending=False), None)
    for device in (able, plain):
        assert driver.instances(device.uuid) == ()
        assert fault_of(driver, "create_instance", device.uuid, 19, 0) is Fault.NOT_SUPPORTED


@pytest.mark.parametrize("model", [A100, H200])
def test_mig_mode_is_switched_on_where_nobody_is_in_the_way(make: Make, model: str) -> None:
    """The mode is on when the call returns; with clients it stays off, and without MIG it fails."""
    hardware = make(machine(model, model, T4, mig=False))
    driver = hardware.session()
    idle, busy, plain = (device.uuid for device in driver.devices())
    hardware.add(Process(pid=4242, gpu=busy, memory=MiB(256)))

    assert driver.enable_mig(idle) == MigMode(current=True, pending=True)
    assert driver.create_instance(idle, 19, 0).start == 0
    assert fault_of(driver, "enable_mig", busy) is Fault.IN_USE
    assert fault_of(driver, "enable_mig", plain) is Fault.NOT_SUPPORTED


def test_busy_instances_stay(make: Make) -> None:
    """A process keeps the compute, compute keeps the instance, and so does a leaked handle."""
    hardware = make(machine(A100))
    driver = hardware.session()
    gpu = only_gpu(driver)
    created = create_whole_instance(driver, gpu, profile=9, start=4)
    hardware.add(Process(pid=77, gpu=gpu, memory=None, instance=created.uuid))
    hardware.leak(gpu, created.id)

    assert fault_of(driver, "destroy_compute", gpu, created.id, 0) is Fault.IN_USE
    hardware.end(77)
    assert fault_of(driver, "destroy_instance", gpu, created.id) is Fault.IN_USE
    driver.destroy_compute(gpu, created.id, 0)
    assert fault_of(driver, "destroy_instance", gpu, created.id) is Fault.IN_USE
    assert driver.instances(gpu) == (replace(created, compute=None, uuid=None),)
    hardware.leak(gpu, created.id, open_=False)
    driver.destroy_instance(gpu, created.id)
    assert driver.instances(gpu) == ()


def test_numbers_are_used_again_and_uuids_never(make: Make) -> None:
    """An instance made anew at its place has the old number and another UUID."""
    driver = make(machine(PRO_6000)).session()
    gpu = only_gpu(driver)
    seen = set()

    for _ in range(3):
        created = create_whole_instance(driver, gpu, profile=14, start=9)
        seen.add((created.id, created.uuid))
        driver.destroy_compute(gpu, created.id, 0)
        driver.destroy_instance(gpu, created.id)

    assert len(seen) == 3
    assert {number for number, _ in seen} == {6}


def test_processes_are_listed_by_instance(make: Make) -> None:
    """Under MIG nobody knows what a process computes; on a whole GPU the driver does."""
    hardware = make(machine(A100, T4))
    driver = hardware.session()
    with_mig, plain = (device.uuid for device in driver.devices())
    created = create_whole_instance(driver, with_mig, profile=19, start=0)
    inside = Process(pid=5, gpu=with_mig, memory=MiB(300), instance=created.uuid)
    outside = Process(pid=6, gpu=plain, memory=MiB(2000), utilization=40)
    untold = Process(pid=7, gpu=plain, memory=None, utilization=30)
    for process in (inside, outside, untold):
        hardware.add(process)

    assert driver.processes(with_mig) == (inside,)
    assert set(driver.processes(plain)) == {outside, untold}
    assert (driver.usage(with_mig).memory, driver.usage(with_mig).utilization) == (300, None)
    assert (driver.usage(plain).memory, driver.usage(plain).utilization) == (2000, 70)


def test_each_session_reads_every_event_once(make: Make) -> None:
    """A session hears what happens after it began to listen, and hears it once."""
    hardware = make(machine(A100, T4))
    first = hardware.session()
    with_mig, plain = (device.uuid for device in first.devices())
    assert first.events() == ()

    hardware.report(63, plain)
    second = hardware.session()
    assert second.events() == ()
    hardware.report(94, with_mig, 7)

    later = DriverEvent(gpu=with_mig, xid=94, instance=7)
    assert first.events() == (DriverEvent(gpu=plain, xid=63), later)
    assert second.events() == (later,)
    assert first.events() == ()


def test_a_lost_gpu_is_the_only_one_lost(make: Make) -> None:
    """Questions about it say so; the other is listed and answers."""
    hardware = make(machine(A100, A30))
    driver = hardware.session()
    lost, other = (device.uuid for device in driver.devices())
    hardware.lose(lost)

    assert [device.uuid for device in driver.devices()] == [other]
    assert fault_of(driver, "instances", lost) is Fault.LOST
    assert fault_of(driver, "create_instance", lost, 19, 0) is Fault.LOST
    assert fault_of(driver, "usage", lost) is Fault.LOST
    assert driver.create_instance(other, 14, 3).start == 3


def test_sessions_see_one_machine(make: Make) -> None:
    """What one creates another lists, and may destroy; closing a session changes nothing."""
    hardware = make(machine(A100))
    first, second = hardware.session(), hardware.session()
    gpu = only_gpu(first)
    created = create_whole_instance(first, gpu, profile=5, start=0)
    first.close()

    assert second.instances(gpu) == (created,)
    second.destroy_compute(gpu, created.id, 0)
    assert first.instances(gpu) == (replace(created, compute=None, uuid=None),)
