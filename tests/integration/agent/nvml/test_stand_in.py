"""The stand-in for NVIDIA's library: layouts as nvidia-ml-py has them, misbehaviours as told."""

import ctypes
from collections.abc import Callable, Iterator
from ctypes import byref, c_char_p, c_int, c_long, c_uint, c_ulonglong, c_void_p
from pathlib import Path
from typing import Any, Final

import pynvml
import pytest

from agent.driver.driver import Process
from agent.driver.simulated_machine import State
from tests.fakes.driver import A100, H200, PRO_6000, machine
from tests.fakes.nvml import layout
from tests.fakes.nvml.library import library
from tests.fakes.nvml.machine import VARIABLE, Machine

# what nvidia-ml-py calls otherwise than the header
_ALIASES: Final = {
    "nvmlPciInfo_t": "nvmlPciInfo_t",  # without the prefix that the others have
    "nvmlProcessInfo_t": "c_nvmlProcessInfo_v3_t",
    "nvmlDeviceAttributes_t": "c_nvmlDeviceAttributes",
}

Plug = Callable[[State], "Library"]


class Library:
    """The library in this process, on one machine; calls return codes as C has them."""

    def __init__(self, functions: ctypes.CDLL, hardware: Machine) -> None:
        self.hardware = hardware
        self._functions = functions

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = getattr(self._functions, name)
        return lambda *arguments: int(function(*arguments))

    def gpu(self, index: int = 0) -> c_void_p:
        handle = c_void_p()
        assert self.nvmlDeviceGetHandleByIndex_v2(index, byref(handle)) == 0
        return handle

    def create_instances(
        self, profile: int, *, compute: int | None = None
    ) -> tuple[c_void_p, c_void_p]:
        """Create an instance where the driver likes; return the handles of both."""
        gi, ci = c_void_p(), c_void_p()
        assert self.nvmlDeviceCreateGpuInstance(self.gpu(), profile, byref(gi)) == 0
        if compute is not None:
            assert self.nvmlGpuInstanceCreateComputeInstance(gi, compute, byref(ci)) == 0
        return gi, ci

    def info(self, gi: c_void_p) -> Any:  # noqa: ANN401 -- ctypes knows its fields
        info = pynvml.c_nvmlGpuInstanceInfo_t()
        assert self.nvmlGpuInstanceGetInfo(gi, byref(info)) == 0
        return info


@pytest.fixture(scope="module")
def functions() -> ctypes.CDLL:
    return ctypes.CDLL(str(library("libstand-in.so")))


@pytest.fixture
def plug(functions: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plug]:
    file = tmp_path / "machine"
    monkeypatch.setenv(VARIABLE, str(file))

    def plugged(state: State) -> Library:
        found = Library(functions, Machine(file, state))
        assert found.nvmlInit_v2() == 0
        return found

    yield plugged
    functions.nvmlShutdown()


def ctypes_of(name: str) -> Any:  # noqa: ANN401 -- a type that pynvml or the layout declares
    ours = f"C{name.capitalize()}"
    if hasattr(layout, ours):
        return getattr(layout, ours)
    alias = _ALIASES.get(name, f"c_{name}")
    return getattr(pynvml, alias)


def test_layouts_are_those_of_ctypes(functions: ctypes.CDLL) -> None:
    """Every size and offset that the compiler chose is the one Python reads by."""
    functions.fakeLayoutName.restype = c_char_p
    functions.fakeLayout.restype = c_long
    names: list[str] = []
    while (name := functions.fakeLayoutName(len(names))) is not None:
        names.append(name.decode())

    assert len(names) > 60
    for name in names:
        structure, _, field = name.partition(".")
        declared = ctypes_of(structure)
        expected = getattr(declared, field).offset if field else ctypes.sizeof(declared)
        assert functions.fakeLayout(name.encode()) == expected, name


def test_nothing_works_without_a_session(functions: ctypes.CDLL, tmp_path: Path) -> None:
    """No machine is no driver; a file that is none, too."""
    count = c_uint()
    assert functions.nvmlDeviceGetCount_v2(byref(count)) == pynvml.NVML_ERROR_UNINITIALIZED
    assert functions.nvmlShutdown() == pynvml.NVML_ERROR_UNINITIALIZED

    for content in (None, b"", b"x" * 100):
        file = tmp_path / "machine"
        if content is not None:
            file.write_bytes(content)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(VARIABLE, str(file))
            assert functions.nvmlInit_v2() == pynvml.NVML_ERROR_DRIVER_NOT_LOADED


def test_a_question_without_room_tells_how_much_is_needed(plug: Plug) -> None:
    """A null list with something in it is INSUFFICIENT_SIZE, an empty one is success."""
    gpu = machine(A100, mig=False).gpus[0].chip.uuid
    lib = plug(machine(A100, mig=False))
    count = c_uint(0)
    listing = lib.nvmlDeviceGetComputeRunningProcesses_v3
    assert listing(lib.gpu(), byref(count), None) == 0
    lib.hardware.add(Process(pid=9, gpu=gpu, memory=None))

    assert listing(lib.gpu(), byref(count), None) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert count.value == 1
    since, untold = c_ulonglong(2**61), c_uint(0)
    samples = lib.nvmlDeviceGetProcessUtilization
    assert samples(lib.gpu(), None, byref(untold), since) == pynvml.NVML_ERROR_NOT_FOUND
    since = c_ulonglong(0)
    assert samples(lib.gpu(), None, byref(untold), since) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    short = (pynvml.c_nvmlGpuInstancePlacement_t * 2)()
    two = c_uint(2)
    places = lib.nvmlDeviceGetGpuInstancePossiblePlacements_v2
    assert places(lib.gpu(), 19, short, byref(two)) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert two.value == 7


def test_versions_of_structures_are_checked(plug: Plug) -> None:
    """Whoever forgets the version gets nothing; two versions of profile information are known."""
    lib = plug(machine(A100))
    memory = pynvml.c_nvmlMemory_v2_t()
    info = pynvml.c_nvmlGpuInstanceProfileInfo_v2_t()
    question = lib.nvmlDeviceGetGpuInstanceProfileInfoV

    info.version = memory.version = 0x01000001
    mismatch = pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    assert lib.nvmlDeviceGetMemoryInfo_v2(lib.gpu(), byref(memory)) == mismatch
    assert question(lib.gpu(), 0, byref(info)) == mismatch
    for version in (0x02000098, 0x03000098):
        info.version = version
        assert question(lib.gpu(), 0, byref(info)) == 0
        assert (info.id, info.name, info.version) == (19, "1g.5gb", version)
    assert question(lib.gpu(), 0x40, byref(info)) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert question(lib.gpu(), 5, byref(info)) == pynvml.NVML_ERROR_NOT_SUPPORTED


@pytest.mark.parametrize(
    ("model", "profile", "starts"),
    [(A100, 19, [6, 4, 5, 0]), (A100, 14, [4, 0, 2]), (PRO_6000, 14, [0, 3, 6, 9])],
)
def test_the_driver_chooses_places_its_own_way(
    plug: Plug, model: str, profile: int, *, starts: list[int]
) -> None:
    """Without a placement the order is not lowest first, and ids are nodes of a tree."""
    lib = plug(machine(model))

    made = [lib.info(lib.create_instances(profile)[0]) for _ in starts]

    assert [info.placement.start for info in made] == starts
    first, size = {19: (7, 1), 14: (3, 2 if model == A100 else 3)}[profile]
    assert [info.id for info in made] == [first + start // size for start in starts]


def test_mode_is_pending_while_the_gpu_is_busy(plug: Plug) -> None:
    """The call succeeds and says IN_USE or RESET_REQUIRED; Ampere waits, Hopper forgets."""
    state = machine(A100, H200, mig=False)
    lib = plug(state)
    for running in state.gpus:
        lib.hardware.add(Process(pid=9, gpu=running.chip.uuid, memory=None))
    status, current, pending = c_uint(), c_uint(), c_uint()

    modes = []
    for index in (0, 1):
        assert lib.nvmlDeviceSetMigMode(lib.gpu(index), 1, byref(status)) == 0
        assert lib.nvmlDeviceGetMigMode(lib.gpu(index), byref(current), byref(pending)) == 0
        modes.append((status.value, current.value, pending.value))
    assert modes == [(pynvml.NVML_ERROR_IN_USE, 0, 1), (pynvml.NVML_ERROR_IN_USE, 0, 0)]

    lib.hardware.end(9)
    lib.hardware.set(state.gpus[0].chip.uuid, guest=1)
    assert lib.nvmlDeviceSetMigMode(lib.gpu(0), 1, byref(status)) == 0
    assert status.value == pynvml.NVML_ERROR_RESET_REQUIRED
    assert lib.nvmlDeviceSetMigMode(lib.gpu(1), 1, byref(status)) == 0
    lib.hardware.reboot("boot-2")
    modes = []
    for index in (0, 1):
        assert lib.nvmlDeviceGetMigMode(lib.gpu(index), byref(current), byref(pending)) == 0
        modes.append((index, current.value, pending.value))
    assert modes == [(0, 1, 1), (1, 0, 0)]


def test_old_drivers_list_profiles_in_mig_mode_only(plug: Plug) -> None:
    """And a field says whether this is one of them."""
    lib = plug(machine(A100, mig=False))
    with lib.hardware.changing() as changed:
        changed.old_driver = 1
    info = pynvml.c_nvmlGpuInstanceProfileInfo_t()
    values = (pynvml.c_nvmlFieldValue_t * 2)()
    values[0].fieldId, values[1].fieldId = 184, 199

    unsupported = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert lib.nvmlDeviceGetGpuInstanceProfileInfo(lib.gpu(), 0, byref(info)) == unsupported
    assert lib.nvmlDeviceGetFieldValues(lib.gpu(), c_int(2), values) == 0
    assert [value.value.uiVal for value in values] == [0, 0]


def test_permissions_are_asked_for_separately(plug: Plug) -> None:
    """Creating needs one file, listing another, and memory may be hidden."""
    lib = plug(machine(A100))
    gi, count = c_void_p(), c_uint()
    lib.hardware.set(machine(A100).gpus[0].chip.uuid, memory_hidden=1)
    with lib.hardware.changing() as changed:
        changed.no_config = changed.no_monitor = 1

    denied = pynvml.NVML_ERROR_NO_PERMISSION
    memory, handles = pynvml.c_nvmlMemory_t(), (c_void_p * 8)()
    assert lib.nvmlDeviceGetMemoryInfo(lib.gpu(), byref(memory)) == denied
    assert lib.nvmlDeviceCreateGpuInstance(lib.gpu(), 19, byref(gi)) == denied
    assert lib.nvmlDeviceGetGpuInstances(lib.gpu(), 19, handles, byref(count)) == denied


def test_handles_and_indexes_outlive_what_they_meant(plug: Plug) -> None:
    """An index keeps its hole, a handle finds whatever is made in its place."""
    lib = plug(machine(A100))
    first, second = (lib.create_instances(19, compute=0) for _ in range(2))
    old, new, mig = c_void_p(), c_void_p(), ctypes.create_string_buffer(80)
    by_index = lib.nvmlDeviceGetMigDeviceHandleByIndex
    assert by_index(lib.gpu(), 0, byref(old)) == 0
    assert lib.nvmlDeviceGetUUID(old, mig, 80) == 0
    before = mig.value
    place = b"MIG-%s/13/0" % machine(A100).gpus[0].chip.uuid.encode()  # as old drivers name it
    for name in (before, place):
        assert lib.nvmlDeviceGetHandleByUUID(name, byref(new)) == 0
        assert new.value == old.value
    assert lib.nvmlComputeInstanceDestroy(first[1]) == 0
    assert lib.nvmlGpuInstanceDestroy(first[0]) == 0

    assert by_index(lib.gpu(), 0, byref(new)) == pynvml.NVML_ERROR_NOT_FOUND
    assert by_index(lib.gpu(), 1, byref(new)) == 0
    assert lib.nvmlDeviceGetUUID(old, mig, 80) == pynvml.NVML_ERROR_NOT_FOUND
    assert lib.nvmlDeviceGetHandleByUUID(before, byref(new)) == pynvml.NVML_ERROR_NOT_FOUND
    lib.create_instances(19, compute=0)
    assert lib.nvmlDeviceGetUUID(old, mig, 80) == 0
    assert mig.value != before
    assert lib.nvmlGpuInstanceDestroy(second[0]) == pynvml.NVML_ERROR_IN_USE


def test_a_gpu_instance_may_hold_several_computes(plug: Plug) -> None:
    """As somebody by hand would cut it; each is a MIG device, and they do not overlap."""
    lib = plug(machine(H200))
    gi, first = lib.create_instances(9, compute=1)
    second, third = c_void_p(), c_void_p()
    create = lib.nvmlGpuInstanceCreateComputeInstance
    assert create(gi, 0, byref(second)) == 0
    assert create(gi, 0, byref(third)) == pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES

    uuids, info, uuid = set(), pynvml.c_nvmlComputeInstanceInfo_t(), ctypes.create_string_buffer(80)
    for ci in (first, second):
        assert lib.nvmlComputeInstanceGetInfo_v2(ci, byref(info)) == 0
        assert lib.nvmlDeviceGetUUID(info.device, uuid, 80) == 0
        uuids.add((uuid.value, info.placement.start, info.placement.size))
    assert {place[1:] for place in uuids} == {(0, 2), (2, 1)}
    assert len({place[0] for place in uuids}) == 2
