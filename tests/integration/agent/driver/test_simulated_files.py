"""Simulated boards in a file: they outlive their process, and no file stops a node from playing."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.driver.driver import DriverError, DriverEvent, Fault, Instance
from agent.driver.simulated_files import SimulatedDriver
from tests.fakes.driver import A30, A100, H200, machine


def create_whole_instance(driver: SimulatedDriver) -> Instance:
    """Create an instance on the first GPU."""
    gpu = driver.devices()[0].uuid
    return driver.create_compute(gpu, driver.create_instance(gpu, 0, 0).id)


def test_boards_are_kept_until_the_next_boot(tmp_path: Path) -> None:
    """A restarted agent finds its instances; after a reboot there are none, as with hardware."""
    file = tmp_path / "boards"
    created = create_whole_instance(SimulatedDriver(machine(A100), file=file))

    again = SimulatedDriver(machine(A100), file=file)
    assert again.instances(created.gpu) == (created,)

    booted = SimulatedDriver(machine(A100, boot="boot-2"), file=file)
    assert booted.instances(created.gpu) == ()
    assert create_whole_instance(booted).uuid != created.uuid


def test_another_fleet_replaces_what_differs(tmp_path: Path) -> None:
    """An edited ConfigMap exchanges GPUs, and those that stay keep their instances."""
    file = tmp_path / "boards"
    created = create_whole_instance(SimulatedDriver(machine(A100, A30), file=file))

    edited = SimulatedDriver(machine(A100, H200), file=file)

    assert [device.model for device in edited.devices()] == [A100, H200]
    assert edited.instances(created.gpu) == (created,)


@pytest.mark.parametrize("left", [b"", b"{", b"[]", b'{"boot":"boot-1"}', b'{"boot":"\xff"}'])
def test_a_damaged_file_is_another_machine(tmp_path: Path, left: bytes) -> None:
    """Whatever a power loss or a person left there, the node plays its fleet again."""
    file = tmp_path / "boards"
    file.write_bytes(left)

    driver = SimulatedDriver(machine(A100), file=file)

    created = create_whole_instance(driver)
    assert SimulatedDriver(machine(A100), file=file).instances(created.gpu) == (created,)


def test_a_cut_off_file_is_another_machine(tmp_path: Path) -> None:
    """At every length, a prefix of the file is either refused or whole."""
    file = tmp_path / "boards"
    create_whole_instance(SimulatedDriver(machine(A30), file=file))
    whole = file.read_bytes()

    for length in range(0, len(whole), 97):
        file.write_bytes(whole[:length])
        assert (
            SimulatedDriver(machine(A30), file=file).instances(machine(A30).gpus[0].chip.uuid) == ()
        )


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    """The fault is the one at which an agent waits and asks again."""
    with pytest.raises(DriverError, match="nowhere") as caught:
        SimulatedDriver(machine(A100), file=tmp_path / "nowhere" / "boards")

    assert caught.value.fault is Fault.UNAVAILABLE


def test_a_faulty_gpu_says_so_to_every_session() -> None:
    """Once to each, as the first thing that it hears."""
    state = machine(A100, A30)
    faulty = replace(state.gpus[1], faulty=True)
    state = replace(state, gpus=(state.gpus[0], faulty))

    for driver in (SimulatedDriver(state), SimulatedDriver(state)):
        assert driver.events() == (DriverEvent(gpu=faulty.chip.uuid, xid=79),)
        assert driver.events() == ()
