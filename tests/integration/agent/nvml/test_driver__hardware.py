"""The driver of this computer, where there is one: what the contract says of any hardware."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.driver.driver import Device, Driver, DriverError, Fault
from tests.fakes.driver_process import driver_process, hardware


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    with driver_process() as child:
        found = child.open(hardware, Path())
        try:
            devices = found.devices()
        except DriverError as error:
            if error.fault is not Fault.UNAVAILABLE:
                raise
            pytest.skip(f"no NVIDIA driver here: {error}")
        if not devices:
            pytest.skip("the NVIDIA driver lists no GPU")
        yield found


def idle(driver: Driver) -> Device:
    """Return a GPU that may be cut: in MIG mode, with nothing on it."""
    for device in driver.devices():
        cut = device.mig is not None and device.mig.current and device.mig.pending
        if cut and not driver.instances(device.uuid) and not driver.processes(device.uuid):
            return device
    pytest.skip("no GPU here is in MIG mode and empty")


def test_devices_are_named_and_measured(driver: Driver) -> None:
    """Each has a name of its own, a place on the bus, and memory of which some may be used."""
    devices = driver.devices()

    assert len({device.uuid for device in devices}) == len(devices)
    assert [device.index for device in devices] == sorted(device.index for device in devices)
    for device in devices:
        assert re.fullmatch(r"GPU-[0-9a-f-]{36}", device.uuid)
        assert re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.0", device.pci)
        assert 0 <= driver.usage(device.uuid).memory <= device.memory
        assert all(process.gpu == device.uuid for process in driver.processes(device.uuid))


def test_boards_are_consistent(driver: Driver) -> None:
    """No placement ends past the last slot, and ids and names tell profiles apart."""
    for device in driver.devices():
        profiles = device.board.profiles if device.board else ()
        assert len({p.id for p in profiles}) == len({p.name for p in profiles}) == len(profiles)
        for profile in profiles:
            assert device.board is not None
            assert profile.starts
            assert max(profile.starts) + profile.size <= device.board.slots


def test_versions_and_events_answer(driver: Driver) -> None:
    """A healthy computer has nothing to report twice."""
    assert re.fullmatch(r"\d+\.\d+", driver.versions().cuda)
    driver.events()
    assert driver.events() == ()


def test_instances_come_and_go(driver: Driver) -> None:
    """Each profile can be had at its first placement, with a UUID, and taken away again."""
    device = idle(driver)
    assert device.board is not None

    for profile in device.board.profiles:
        gpu = device.uuid
        made = driver.create_instance(gpu, profile.id, profile.starts[0])
        try:
            ready = driver.create_compute(gpu, made.id)
            assert driver.instances(gpu) == (ready,)
            assert (ready.profile, ready.start) == (profile.id, profile.starts[0])
            assert (ready.uuid or "").startswith("MIG-")
            assert ready.compute is not None
            driver.destroy_compute(gpu, ready.id, ready.compute)
        finally:
            driver.destroy_instance(gpu, made.id)
    assert driver.instances(device.uuid) == ()
