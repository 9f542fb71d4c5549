"""MIG through NVML: profiles, placements, instances and their UUIDs, behind NVML's handles.

Instances are listed per profile id, never through MIG handles: one of those exists per compute
instance, so a GPU instance without one, which a crash leaves, would stay unseen.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final, TypeVar

import pynvml

from agent.driver.board_discovery import ProfileFacts, SlotSpan
from agent.driver.driver import DriverError, Fault
from agent.nvml.calls import Handle, NvmlError, call_nvml, is_not_found
from allocator.model.units import MiB

T = TypeVar("T")
# Newer drivers know more profiles than this header; unknown ones answer NOT_SUPPORTED.
_GPU_PROFILES: Final = range(0x21)
_COMPUTE_PROFILES: Final = range(0x11)
# NVML writes as many handles as there are, without being told the size of the array, and reports
# of A30 say that its instance counts are wrong: room for more than any board has memory slots.
_MOST_HANDLES: Final = 64
_OLD_DRIVER: Final = frozenset(
    (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
)


@dataclass(frozen=True, slots=True)
class ComputeProfile:
    """A shape of compute instance: its id within its GPU instance, and its compute slices."""

    id: int
    slices: int


@dataclass(frozen=True, slots=True)
class ProfileSlot:
    """A profile, by its id on the board, at its first memory slot."""

    profile: int
    start: int


@dataclass(frozen=True, slots=True)
class Compute:
    """A compute instance that exists, with the UUID of the MIG device it is."""

    id: int
    uuid: str


def profile_facts(device: Handle) -> tuple[ProfileFacts, ...]:
    """Return what the driver lists of every GPU instance profile of *device*.

    Empty without MIG, and with drivers up to 535 while MIG mode is off.
    """
    return tuple(_profile_facts(device))


def _profile_facts(device: Handle) -> Iterator[ProfileFacts]:
    for enum in _GPU_PROFILES:
        info = _profile_info(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, device, enum)
        if info is None:
            continue
        yield ProfileFacts(
            enum=enum,
            id=int(info.id),
            slices=int(info.sliceCount),
            most=int(info.instanceCount),
            sms=int(info.multiprocessorCount),
            memory=MiB(int(info.memorySizeMB)),
            name=_name_of(info),
            spans=_spans(device, int(info.id)),
        )


def _name_of(info: object) -> str | None:
    """Return the name in a profile's struct, which its first version lacks.

    pynvml decodes the bytes as they are read, and raises where they are no text.
    """
    try:
        return str(getattr(info, "name", "")) or None
    except UnicodeDecodeError:
        return None


def _spans(device: Handle, profile: int) -> tuple[SlotSpan, ...]:
    count = ctypes.c_uint(0)
    listing = pynvml.nvmlDeviceGetGpuInstancePossiblePlacements
    try:
        call_nvml(listing, device, profile, None, ctypes.byref(count))
    except NvmlError as error:
        if (
            is_not_found(error) or error.fault is Fault.NOT_SUPPORTED
        ):  # or a driver that cannot tell
            return ()
        if error.code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            raise
    if count.value == 0:
        return ()
    array = (pynvml.c_nvmlGpuInstancePlacement_t * max(count.value, _MOST_HANDLES))()
    count.value = len(array)
    call_nvml(listing, device, profile, array, ctypes.byref(count))
    return tuple(SlotSpan(int(span.start), int(span.size)) for span in array[: count.value])


def compute_profiles(gpu_instance: Handle) -> tuple[ComputeProfile, ...]:
    """Return the shapes of compute instance that a GPU instance may have, plainest first."""
    shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    function = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    infos = (_profile_info(function, gpu_instance, enum, shared) for enum in _COMPUTE_PROFILES)
    return tuple(
        ComputeProfile(int(info.id), int(info.sliceCount)) for info in infos if info is not None
    )


def gpu_instances(device: Handle, facts: Sequence[ProfileFacts]) -> Iterator[Handle]:
    """Yield every GPU instance of *device*, of whatever profile."""
    for fact in facts:
        array = (pynvml.c_nvmlGpuInstance_t * _MOST_HANDLES)()
        yield from _handles(array, pynvml.nvmlDeviceGetGpuInstances, device, fact.id)


def compute_instances(
    device: Handle, gpu_instance: Handle, shapes: Sequence[ComputeProfile]
) -> Iterator[Compute]:
    """Yield the compute instances of these *shapes* within a GPU instance of *device*."""
    for shape in shapes:
        array = (pynvml.c_nvmlComputeInstance_t * _MOST_HANDLES)()
        listing = pynvml.nvmlGpuInstanceGetComputeInstances
        for handle in _handles(array, listing, gpu_instance, shape.id):
            yield compute_of(device, handle)


def compute_of(device: Handle, handle: Handle) -> Compute:
    """Return a compute instance by its handle.

    Its information names its MIG device directly. That handle is believed only if it answers with
    the ids it should have: handles are recycled, and stale ones have been seen to resolve. A walk
    over the MIG devices finds it otherwise.

    Raises
    ------
    DriverError
        ABSENT if no MIG device has these ids.

    """
    info = call_nvml(pynvml.nvmlComputeInstanceGetInfo_v2, handle)
    ids = (int(call_nvml(pynvml.nvmlGpuInstanceGetInfo, info.gpuInstance).id), int(info.id))
    for mig in chain([info.device], _mig_devices(device)):
        if mig and _mig_ids(mig) == ids:
            return Compute(ids[1], str(call_nvml(pynvml.nvmlDeviceGetUUID, mig)))
    raise DriverError(
        Fault.ABSENT,
        "nvmlComputeInstanceGetInfo",
        f"no MIG device has GPU instance {ids[0]} and compute instance {ids[1]}",
    )


def create_gpu_instance(device: Handle, facts: Sequence[ProfileFacts], at: ProfileSlot) -> Handle:
    """Create a GPU instance and read back that it is where it should be.

    Raises
    ------
    DriverError
        What NVML refused; OTHER for a placement that the board does not have, or another than
        was asked for, which is undone.

    """
    call = "nvmlDeviceCreateGpuInstanceWithPlacement"
    if not facts:
        raise DriverError(
            Fault.NOT_SUPPORTED, call, "the driver lists no profiles: MIG mode is off"
        )
    spans = [span for fact in facts if fact.id == at.profile for span in fact.spans]
    span = next((span for span in spans if span.start == at.start), None)
    if span is None:
        starts = ", ".join(str(span.start) for span in spans) or "none"
        text = f"profile {at.profile} has no placement at {at.start}; accepted: {starts}"
        raise DriverError(Fault.OTHER, call, text)
    placement = pynvml.c_nvmlGpuInstancePlacement_t(span.start, span.size)
    create = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement
    # by reference: pynvml passes it through, and by value it ends the process
    gpu_instance: Handle = call_nvml(create, device, at.profile, ctypes.byref(placement))
    with _destroyed_on_error(pynvml.nvmlGpuInstanceDestroy, gpu_instance):
        info = call_nvml(pynvml.nvmlGpuInstanceGetInfo, gpu_instance)
        actual = ProfileSlot(int(info.profileId), int(info.placement.start))
        if actual != at:
            wanted = f"asked for profile {at.profile} at {at.start}"
            text = f"{wanted}, got {actual.profile} at {actual.start}"
            raise DriverError(Fault.OTHER, call, text)
    return gpu_instance


def create_compute(device: Handle, gpu_instance: Handle, shape: ComputeProfile) -> Compute:
    """Create a compute instance and verify that its UUID leads back to it.

    Raises
    ------
    DriverError
        What NVML refused; OTHER if the UUID names something else, which undoes the creation.

    """
    create = pynvml.nvmlGpuInstanceCreateComputeInstance
    handle = call_nvml(create, gpu_instance, shape.id)
    with _destroyed_on_error(pynvml.nvmlComputeInstanceDestroy, handle):
        compute = compute_of(device, handle)
        wanted = (int(call_nvml(pynvml.nvmlGpuInstanceGetInfo, gpu_instance).id), compute.id)
        named = _mig_ids(call_nvml(pynvml.nvmlDeviceGetHandleByUUID, compute.uuid))
        if named != wanted:
            text = f"{compute.uuid} leads to instances {named}, expected {wanted}"
            raise DriverError(Fault.OTHER, create.__name__, text)
    return compute


@contextmanager
def _destroyed_on_error(destroy: Callable[..., object], handle: Handle) -> Iterator[None]:
    """Destroy what was made if what follows fails; one that cannot be is found by the next look."""
    try:
        yield
    except DriverError:
        with suppress(NvmlError):
            call_nvml(destroy, handle)
        raise


def _mig_devices(device: Handle) -> Iterator[Handle]:
    for index in range(int(call_nvml(pynvml.nvmlDeviceGetMaxMigDeviceCount, device))):
        try:
            yield call_nvml(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, device, index)
        except NvmlError as error:
            if not is_not_found(error):  # a hole in the numbering
                raise


def _mig_ids(mig: Handle) -> tuple[int, int] | None:
    """Return the ids of a MIG device's instances, ``None`` for the handle of anything else."""
    try:
        # the answer is a ctypes object, which is always true
        if not call_nvml(pynvml.nvmlDeviceIsMigDeviceHandle, mig).value:
            return None
        return (
            int(call_nvml(pynvml.nvmlDeviceGetGpuInstanceId, mig)),
            int(call_nvml(pynvml.nvmlDeviceGetComputeInstanceId, mig)),
        )
    except NvmlError as error:
        if is_not_found(error):
            return None
        raise


def _handles(
    array: Sequence[Handle], listing: Callable[..., object], *of: object
) -> Iterator[Handle]:
    """Yield the handles that *listing* of *of* writes into *array*, which is ours."""
    count = ctypes.c_uint(0)
    try:
        call_nvml(listing, *of, array, ctypes.byref(count))
    except NvmlError as error:
        if is_not_found(error):
            return
        raise
    yield from array[: count.value]


def _profile_info(function: Callable[..., T], *args: object) -> T | None:
    """Return a profile's information, from old drivers in the first version of the struct.

    ``None`` where there is no such profile.
    """
    try:
        try:
            return call_nvml(function, *args)
        except NvmlError as error:
            if error.code not in _OLD_DRIVER:
                raise
        return call_nvml(partial(function, version=1), *args)
    except NvmlError as error:
        if is_not_found(error):
            return None
        raise
