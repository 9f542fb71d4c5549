"""MIG through NVML: profiles, placements, instances and their UUIDs, behind NVML's handles.

Instances are listed by profile id, never by MIG handles: each compute instance has one, so that a
GPU instance without compute, which a crash may leave, would be missed.
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
# Ranges include profiles that only newer drivers know; others answer NOT_SUPPORTED.
_GPU_PROFILES: Final = range(0x21)
_COMPUTE_PROFILES: Final = range(0x11)
# NVML writes as many handles as there are and does not know the size of the array. The instance
# counts of A30 are reported to be wrong, so arrays exceed the memory slots of any board.
_MOST_HANDLES: Final = 64
_OLD_DRIVER: Final = frozenset(
    (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
)


@dataclass(frozen=True, slots=True)
class ComputeProfile:
    """A profile of compute instances."""

    id: int  # within the GPU instance
    slices: int  # of compute


@dataclass(frozen=True, slots=True)
class ProfileSlot:
    """Where a GPU instance is or should be."""

    profile: int  # id on the board
    start: int  # first memory slot


@dataclass(frozen=True, slots=True)
class Compute:
    """A compute instance that exists."""

    id: int
    uuid: str  # of its MIG device


def profile_facts(device: Handle) -> tuple[ProfileFacts, ...]:
    """Return the GPU instance profiles of *device*, as the driver lists them.

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
    """Return the name of a profile; the first version of the struct has none.

    pynvml decodes the bytes when they are read, and raises if they are not text.
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
        ):  # or the driver lacks the call
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
    """Return the profiles of compute instances that a GPU instance may have, by NVML's number."""
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
    """Yield the compute instances of the profiles *shapes* in a GPU instance of *device*."""
    for shape in shapes:
        array = (pynvml.c_nvmlComputeInstance_t * _MOST_HANDLES)()
        listing = pynvml.nvmlGpuInstanceGetComputeInstances
        for handle in _handles(array, listing, gpu_instance, shape.id):
            yield compute_of(device, handle)


def compute_of(device: Handle, handle: Handle) -> Compute:
    """Return a compute instance by its handle.

    Its information names its MIG device. That handle counts only if its ids match, because handles
    are recycled and stale ones may still resolve. Otherwise all MIG devices are searched.

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
    """Create a GPU instance and verify its placement.

    Raises
    ------
    DriverError
        The fault of NVML; OTHER for a placement that the board does not have, or if NVML created
        another one, which is then destroyed.

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
    # by reference: pynvml does not convert it, and a value would crash the process
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
    """Create a compute instance and verify that its UUID names it.

    Raises
    ------
    DriverError
        The fault of NVML; OTHER if the UUID names another instance; the new one is then destroyed.

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
    """Destroy *handle* if the block fails; if that fails too, the next listing shows it."""
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
            if not is_not_found(error):  # a gap in the numbers
                raise


def _mig_ids(mig: Handle) -> tuple[int, int] | None:
    """Return the ids of a MIG device's instances, ``None`` if *mig* is not a MIG device."""
    try:
        # the result is a ctypes object, which is always true
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
    array: Sequence[Handle], listing: Callable[..., object], *arguments: object
) -> Iterator[Handle]:
    """Yield the handles that *listing*, called with *arguments*, writes into *array*."""
    count = ctypes.c_uint(0)
    try:
        call_nvml(listing, *arguments, array, ctypes.byref(count))
    except NvmlError as error:
        if is_not_found(error):
            return
        raise
    yield from array[: count.value]


def _profile_info(function: Callable[..., T], *args: object) -> T | None:
    """Return a profile's information, ``None`` if there is no such profile.

    Old drivers return the first version of the struct.
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
