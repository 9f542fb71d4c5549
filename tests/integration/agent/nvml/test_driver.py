"""The traps of NVML and pynvml, each with a library that misbehaves in that way."""

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from dataclasses import replace
from pathlib import Path

import pytest

from agent.driver.driver import DriverError, DriverEvent, Fault, Recovery
from agent.driver.simulated_machine import State, new_machine
from tests.fakes.driver import machine
from tests.fakes.driver_process import DriverProcess, driver_process, hardware
from tests.integration.agent.nvmlsession import Scene, scene

A100, L40S = "NVIDIA A100-SXM4-40GB", "NVIDIA L40S"
SERVER = "NVIDIA RTX PRO 6000 Blackwell Server Edition"

UNINITIALIZED, NOT_FOUND, NO_FUNCTION, UNKNOWN = 1, 6, 13, 999
EVERY = 0  # for the n-th call: each of them
AT = ((19, 6), (14, 4))  # profiles and starts that fit side by side
NEVER = 1_000_000  # for the n-th call: only counts


@contextmanager
def raises_fault(fault: Fault) -> Iterator[pytest.ExceptionInfo[DriverError]]:
    with pytest.raises(DriverError) as caught:
        yield caught
    assert caught.value.fault is fault


@pytest.mark.skipif(find_library("nvidia-ml") is not None, reason="this computer has a driver")
def test_without_the_library_the_error_says_what_would_help() -> None:
    """A node whose driver is not installed yet is told apart from one without GPUs."""
    with driver_process({"LD_LIBRARY_PATH": ""}) as child:
        driver = child.open(hardware, Path())
        with raises_fault(Fault.UNAVAILABLE) as caught:
            driver.devices()

    assert "libnvidia-ml.so.1 is not on the library path" in str(caught.value)


def test_an_old_driver_gives_the_same_boards(two: Scene) -> None:
    """Without the second version of the structs, names come from the formula."""
    for call in (
        "nvmlDeviceGetGpuInstanceProfileInfoV",
        "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
    ):
        two.machine.fail(call, NO_FUNCTION, nth=EVERY)
    two.driver.close()

    again = two.driver.devices()
    made = two.driver.create_instance(two.gpu, 20, 2)
    whole = two.driver.create_compute(two.gpu, made.id)

    assert again == two.devices
    assert whole.uuid is not None


def test_profiles_hidden_outside_mig_mode_appear_with_it(
    child: DriverProcess, tmp_path: Path
) -> None:
    """Drivers up to 535 list none until then; an answer of nothing is not remembered."""
    state = machine(A100, mig=False)
    played = scene(child, tmp_path, state)
    with played.machine.changing() as changing:
        changing.old_driver = 1
    played.driver.close()
    (before,) = played.driver.devices()
    with raises_fault(Fault.NOT_SUPPORTED):
        played.driver.create_instance(played.gpu, 19, 0)
    played.machine.set(played.gpu, mig_current=1, mig_pending=1)
    (after,) = played.driver.devices()

    assert before.board is None
    assert after.board == state.gpus[0].chip.board


def test_twelve_slots_are_cut_at_their_own_places(child: DriverProcess, tmp_path: Path) -> None:
    """A placement is passed as the board lists it: three slots wide, from the ninth."""
    played = scene(child, tmp_path, machine(SERVER))

    made = played.driver.create_instance(played.gpu, 14, 9)
    whole = played.driver.create_compute(played.gpu, made.id)

    assert (whole.profile, whole.start) == (14, 9)
    assert played.driver.instances(played.gpu) == (whole,)


def test_an_instance_that_the_driver_put_elsewhere_is_not_kept(two: Scene) -> None:
    """The place is read back: an instance at another one is refused, and removed again."""
    with two.machine.changing() as changing:
        changing.misplaces = 1

    with raises_fault(Fault.OTHER) as caught:
        two.driver.create_instance(two.gpu, 19, 0)

    assert "asked for profile 19 at 0, got 19 at 6" in str(caught.value)
    assert two.driver.instances(two.gpu) == ()


def test_one_session_serves_all_calls(two: Scene) -> None:
    """Beginning one is slow; it is kept, and lookups of profiles are too."""
    two.machine.fail("nvmlInitWithFlags", UNKNOWN, nth=NEVER)
    two.machine.fail("nvmlDeviceGetGpuInstanceProfileInfoV", UNKNOWN, nth=NEVER)

    for _ in range(3):
        two.driver.devices()
        two.driver.instances(two.gpu)
        two.driver.usage(two.gpu)
        two.driver.events()

    assert two.machine.calls("nvmlInitWithFlags") == 0
    assert two.machine.calls("nvmlDeviceGetGpuInstanceProfileInfoV") == 0


def test_a_lost_session_is_begun_anew_once(two: Scene) -> None:
    """The caller does not notice a driver that was reloaded."""
    two.machine.fail("nvmlInitWithFlags", UNKNOWN, nth=NEVER)
    two.machine.fail("nvmlDeviceGetCount_v2", UNINITIALIZED)

    assert two.driver.devices() == two.devices
    assert two.machine.calls("nvmlInitWithFlags") == 1

    two.machine.fail("nvmlDeviceGetCount_v2", UNINITIALIZED, nth=EVERY)
    with raises_fault(Fault.UNAVAILABLE):
        two.driver.devices()
    two.machine.mend()
    assert two.driver.devices() == two.devices


def test_an_unloaded_driver_is_unavailable_until_it_is_back(two: Scene) -> None:
    """What would help is said; nothing has to be restarted when it is there again."""
    with two.machine.changing() as changing:
        changing.unloaded = 1
    with raises_fault(Fault.UNAVAILABLE):
        two.driver.instances(two.gpu)
    with two.machine.changing() as changing:
        changing.unloaded = 0

    assert two.driver.instances(two.gpu) == ()


@pytest.mark.parametrize("call", ["nvmlGpuInstanceGetInfo", "nvmlDeviceGetHandleByUUID"])
def test_what_cannot_be_verified_is_undone(two: Scene, call: str) -> None:
    """Neither a GPU instance nor a compute instance stays behind unseen."""
    two.machine.fail(call, UNKNOWN)
    if call == "nvmlGpuInstanceGetInfo":
        with raises_fault(Fault.OTHER):
            two.driver.create_instance(two.gpu, 19, 3)
        assert two.driver.instances(two.gpu) == ()
    else:
        made = two.driver.create_instance(two.gpu, 19, 3)
        with raises_fault(Fault.OTHER):
            two.driver.create_compute(two.gpu, made.id)
        assert two.driver.instances(two.gpu) == (made,)


def test_a_mig_handle_that_does_not_answer_is_found_by_walking(two: Scene) -> None:
    """A handle is believed only with the ids it should have."""
    made = [two.driver.create_instance(two.gpu, profile, start) for profile, start in AT]
    wholes = {two.driver.create_compute(two.gpu, instance.id) for instance in made}
    two.machine.fail("nvmlDeviceGetGpuInstanceId", NOT_FOUND)
    two.machine.fail("nvmlDeviceGetMigDeviceHandleByIndex", UNKNOWN, nth=NEVER)

    assert set(two.driver.instances(two.gpu)) == wholes
    assert two.machine.calls("nvmlDeviceGetMigDeviceHandleByIndex") > 0


def test_a_handle_is_not_believed_for_another_gpu(two: Scene) -> None:
    """A GPU that was exchanged is absent under its old name, whatever the handle says."""
    with two.machine.changing() as changing:
        changing.gpus[0].uuid = b"GPU-another"

    with raises_fault(Fault.ABSENT):
        two.driver.usage(two.gpu)
    assert two.driver.devices()[0].uuid == "GPU-another"


def test_minors_are_asked_for_again(two: Scene) -> None:
    """A reset may number device files anew."""
    two.machine.set(two.gpu, minor=5)

    assert [device.minor for device in two.driver.devices()] == [5, 1]


def test_memory_that_may_not_be_read_costs_only_what_depends_on_it(two: Scene) -> None:
    """With MIG its profiles tell enough; without, the GPU cannot be given out."""
    for device in two.devices:
        two.machine.set(device.uuid, memory_hidden=1)

    (only,) = two.driver.devices()

    assert only.board == two.devices[0].board
    assert only.memory == 40192


def test_placements_that_may_not_be_read_leave_the_gpu(two: Scene) -> None:
    """Without the capability a GPU is listed without a board, and creating says why not."""
    two.driver.close()
    with two.machine.changing() as changing:
        changing.no_config = 1

    first, second = two.driver.devices()

    assert first.board is None
    assert second == two.devices[1]
    with raises_fault(Fault.NO_PERMISSION) as caught:
        two.driver.create_instance(two.gpu, 19, 0)
    assert "NVIDIA_MIG_CONFIG_DEVICES=all" in str(caught.value)


def test_a_gpu_off_the_bus_can_still_be_named(two: Scene) -> None:
    """Its last error is told by the handle: it cannot be asked for its UUID any more."""
    assert two.driver.events() == ()
    two.machine.report(79, two.gpu)
    two.machine.set(two.gpu, lost=1)

    assert two.driver.events() == (DriverEvent(gpu=two.gpu, xid=79),)
    assert two.driver.devices() == two.devices[1:]

    two.machine.set(two.gpu, lost=0)
    two.machine.report(13, two.gpu, 7)
    assert two.driver.devices() == two.devices
    assert two.driver.events() == (DriverEvent(gpu=two.gpu, xid=13, instance=7),)


def test_answers_that_are_no_text_cost_what_they_name(two: Scene) -> None:
    """A profile is named by the formula then; a GPU without a name is left out alone."""
    two.driver.close()
    with two.machine.changing() as changing:
        changing.gpus[0].profiles[0].name = b"\xff\xfe"
        changing.gpus[1].name = b"\xff\xfe"

    assert two.driver.devices() == two.devices[:1]


def test_what_a_gpu_needs_is_the_drivers_word(two: Scene) -> None:
    """A reset, or a reboot of the node; what only concerns links is nothing."""
    told = []
    for action in (0, 1, 2, 3, 99):
        two.machine.set(two.gpu, recovery=action)
        told.append(two.driver.devices()[0].recovery)

    wanted = [Recovery.NOTHING, Recovery.RESET, Recovery.REBOOT, Recovery.NOTHING, None]
    assert told == wanted


def test_the_node_of_a_gpu_is_the_kernels_word(child: DriverProcess, tmp_path: Path) -> None:
    """Unknown where the kernel says -1, or nothing."""
    state = machine(A100, L40S)
    for running, text in zip(state.gpus, ("1\n", "-1\n"), strict=True):
        folder = tmp_path / "sys/bus/pci/devices" / running.chip.pci
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(text)

    assert [device.numa for device in scene(child, tmp_path, state).devices] == [1, None]


def test_the_switch_of_a_gpu_is_where_the_kernel_keeps_it(
    child: DriverProcess, tmp_path: Path
) -> None:
    """The upper port of its switch; a GPU in a slot of the host's own hangs on none."""
    state = machine(A100, A100, L40S, L40S)
    links, tree = tmp_path / "sys/bus/pci/devices", tmp_path / "sys/devices/pci0000:00"
    links.mkdir(parents=True)
    upper = "0000:00:01.0/0000:f0:00.0"
    places = (f"{upper}/0000:f1:00.0", f"{upper}/0000:f1:01.0", "0000:00:02.0", None)
    for running, place in zip(state.gpus, places, strict=True):
        if place is not None:
            folder = tree / place / running.chip.pci
            folder.mkdir(parents=True)
            (links / running.chip.pci).symlink_to(folder)

    found = [device.switch for device in scene(child, tmp_path, state).devices]

    assert found == ["0000:f0:00.0", "0000:f0:00.0", None, None]


def test_links_are_told_by_the_other_end(child: DriverProcess, tmp_path: Path) -> None:
    """Several links to one GPU are one neighbour, and they are counted."""
    devices = scene(child, tmp_path, with_linked_gpus(machine(A100, A100, L40S))).devices

    first, second, third = (device.links for device in devices)
    names = [device.uuid for device in devices]

    assert (first, second, third) == ((names[1],), (names[0],), ())
    assert [device.link_counts for device in devices] == [(2,), (2,), ()]


def with_linked_gpus(state: State) -> State:
    first, second, *rest = (running.chip for running in state.gpus)
    joined = [replace(a, links=(b.uuid, b.uuid)) for a, b in ((first, second), (second, first))]
    return new_machine([*joined, *rest], state.boot)
