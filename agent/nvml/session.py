"""An NVML session: the calls to the driver, and what is cached of its GPUs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pynvml
import structlog

from agent.driver.board_discovery import MIB, ProfileFacts, board_of
from agent.driver.driver import (
    Device,
    DriverError,
    DriverEvent,
    Fault,
    Instance,
    Process,
    Usage,
    Versions,
)
from agent.nvml.calls import (
    Handle,
    NvmlError,
    call_if_supported,
    call_nvml,
    ends_session,
    is_not_found,
    look_up,
)
from agent.nvml.devices import FixedFacts, fixed_facts, in_mig_mode, mig_mode, recovery, with_links
from agent.nvml.events import ErrorEvents
from agent.nvml.mig import (
    ComputeProfile,
    ProfileSlot,
    compute_instances,
    compute_of,
    compute_profiles,
    create_compute,
    create_gpu_instance,
    gpu_instances,
    profile_facts,
)
from agent.nvml.processes import memory_by_process, usage_of, utilization
from allocator.model.units import MiB

log = structlog.get_logger()
_NO_GPUS: Final = 1  # NVML_INIT_FLAG_NO_GPUS: do not fail without GPUs


class NvmlSession:
    """One session; every method raises DriverError, as the Driver protocol says."""

    def __init__(self, *, sysfs: Path, clock: Callable[[], float]) -> None:
        """Start the session."""
        call_nvml(pynvml.nvmlInitWithFlags, _NO_GPUS)
        self._sysfs = sysfs
        self._clock = clock
        self._errors = ErrorEvents()
        self._warned: set[tuple[int | str, str]] = set()
        # by UUID: handles, and facts that do not change but take many calls to read
        self._handles: dict[str, Handle] = {}
        self._fixed: dict[str, FixedFacts] = {}
        self._profile_facts: dict[str, tuple[ProfileFacts, ...]] = {}
        self._compute_profiles_by_id: dict[tuple[str, int], tuple[ComputeProfile, ...]] = {}

    def versions(self) -> Versions:
        """Return the versions of driver and library."""
        cuda = int(call_nvml(pynvml.nvmlSystemGetCudaDriverVersion_v2))  # 12080 is 12.8
        return Versions(
            driver=str(call_nvml(pynvml.nvmlSystemGetDriverVersion)),
            nvml=str(call_nvml(pynvml.nvmlSystemGetNVMLVersion)),
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
        )

    def devices(self) -> tuple[Device, ...]:
        """Return the GPUs that can be read; others are logged, once for each reason."""
        devices = tuple(self._readable_devices())
        facts = tuple(self._fixed[device.uuid] for device in devices)
        return tuple(with_links(device, self._fixed[device.uuid], facts) for device in devices)

    def _readable_devices(self) -> Iterator[Device]:
        for index in range(int(call_nvml(pynvml.nvmlDeviceGetCount))):
            try:
                yield self._read_device(index)
            except (DriverError, ValueError) as error:  # ValueError: invalid text or address
                if ends_session(error):
                    raise
                self._warn_once("GPU not readable", index, error)

    def _read_device(self, index: int) -> Device:
        handle = call_nvml(pynvml.nvmlDeviceGetHandleByIndex, index)
        uuid = str(call_nvml(pynvml.nvmlDeviceGetUUID, handle))
        self._handles[uuid] = handle
        fixed = self._fixed.get(uuid)
        if fixed is None or not fixed.has_nvlink:
            fixed = self._fixed[uuid] = fixed_facts(handle, uuid, self._sysfs)
        memory_info = call_if_supported(pynvml.nvmlDeviceGetMemoryInfo, handle)
        total = None if memory_info is None else int(memory_info.total) or None
        mig = mig_mode(handle)
        facts = () if mig is None else self._profiles_if_allowed(uuid, handle)
        board = board_of(fixed.model, facts, total=total)
        if total is None and board is None:
            raise DriverError(
                Fault.NO_PERMISSION, "nvmlDeviceGetMemoryInfo", "its memory is unknown"
            )
        return Device(
            uuid=uuid,
            index=index,
            minor=int(call_nvml(pynvml.nvmlDeviceGetMinorNumber, handle)),  # changes with a reset
            pci=fixed.pci,
            model=fixed.model,
            memory=MiB(total // MIB if total else max(fact.memory for fact in facts)),
            ampere_or_older=fixed.ampere_or_older,
            mig=mig,
            board=board,
            numa=fixed.numa,
            switch=fixed.switch,
            recovery=recovery(handle),
            mps=fixed.mps,
            capability=fixed.capability,
        )

    def instances(self, gpu: str) -> tuple[Instance, ...]:
        """Return all GPU instances of one GPU, those without a compute instance too."""
        device = self._device_handle(gpu)
        handles = gpu_instances(device, self._profiles(gpu, device))
        instances = (self._read_instance(gpu, device, handle) for handle in handles)
        return tuple(instance for instance in instances if instance is not None)

    def _read_instance(self, gpu: str, device: Handle, handle: Handle) -> Instance | None:
        """Return a GPU instance by its handle, ``None`` if it no longer exists.

        Raises DriverError if its compute instance is destroyed meanwhile.
        """
        try:
            info = call_nvml(pynvml.nvmlGpuInstanceGetInfo, handle)
        except NvmlError as error:
            if is_not_found(error):
                return None
            raise
        try:
            shapes = self._compute_profiles(gpu, int(info.profileId), handle)
            compute = min(
                compute_instances(device, handle, shapes), key=lambda c: c.id, default=None
            )
        except DriverError as error:
            if is_not_found(error):
                text = f"GPU instance {info.id} changed while being read: {error}"
                raise DriverError(Fault.OTHER, "instances", text) from error
            raise
        return Instance(
            gpu=gpu,
            id=int(info.id),
            profile=int(info.profileId),
            start=int(info.placement.start),
            compute=None if compute is None else compute.id,
            uuid=None if compute is None else compute.uuid,
        )

    def processes(self, gpu: str) -> tuple[Process, ...]:
        """Return the processes that use one GPU or an instance of it."""
        device = self._device_handle(gpu)
        memories = memory_by_process(device)
        pairs = {user.ids for user in memories if user.ids is not None}
        uuids = {ids: self._uuid_of(device, ids) for ids in pairs}
        utilizations = None if in_mig_mode(device) else utilization(device, self._clock())
        return tuple(
            Process(
                pid=user.pid,
                gpu=gpu,
                memory=memory,
                instance=None if user.ids is None else uuids[user.ids],
                utilization=None if utilizations is None else utilizations.get(user.pid, 0),
            )
            for user, memory in memories.items()
        )

    def _uuid_of(self, device: Handle, ids: tuple[int, int]) -> str | None:
        """Return the UUID of a MIG device by its ids, ``None`` if it no longer exists."""
        try:
            instance = call_nvml(pynvml.nvmlDeviceGetGpuInstanceById, device, ids[0])
            handle = call_nvml(pynvml.nvmlGpuInstanceGetComputeInstanceById, instance, ids[1])
            return compute_of(device, handle).uuid
        except DriverError as error:
            if is_not_found(error):
                return None
            raise

    def usage(self, gpu: str) -> Usage:
        """Return the usage of one GPU, if possible without the memory that the driver reserves."""
        device = self._device_handle(gpu)
        return usage_of(device, in_mig_mode=in_mig_mode(device))

    def events(self) -> tuple[DriverEvent, ...]:
        """Return the critical errors since the last call, without waiting."""
        if not self._handles:
            self.devices()
        for uuid, handle in self._handles.items():
            try:
                self._errors.watch(uuid, handle)
            except NvmlError as error:
                if error.fault is Fault.UNAVAILABLE:
                    raise
                if error.fault is not Fault.LOST:  # reported already
                    self._warn_once("critical errors of a GPU not reported", uuid, error)
        return self._errors.poll()

    def create_instance(self, gpu: str, profile: int, start: int) -> Instance:
        """Create a GPU instance at exactly this placement, still without compute."""
        device = self._device_handle(gpu)
        facts = self._profiles(gpu, device)
        handle = create_gpu_instance(device, facts, ProfileSlot(profile, start))
        id_ = int(call_nvml(pynvml.nvmlGpuInstanceGetInfo, handle).id)
        return Instance(gpu=gpu, id=id_, profile=profile, start=start)

    def create_compute(self, gpu: str, instance: int) -> Instance:
        """Create the compute instance that fills a GPU instance, and return both as one."""
        device = self._device_handle(gpu)
        handle = self._instance_handle(device, instance)
        info = call_nvml(pynvml.nvmlGpuInstanceGetInfo, handle)
        profile = int(info.profileId)
        slices = {fact.slices for fact in self._profiles(gpu, device) if fact.id == profile}
        shapes = self._compute_profiles(gpu, profile, handle)
        shape = next((shape for shape in shapes if shape.slices in slices), None)
        if shape is None:
            text = f"no compute profile fills instance {instance} of profile {profile}"
            raise DriverError(Fault.OTHER, "create_compute", text)
        compute = create_compute(device, handle, shape)
        return Instance(
            gpu=gpu,
            id=instance,
            profile=profile,
            start=int(info.placement.start),
            compute=compute.id,
            uuid=compute.uuid,
        )

    def destroy_compute(self, gpu: str, instance: int, compute: int) -> None:
        """Destroy a compute instance; IN_USE while something holds it."""
        handle = self._instance_handle(self._device_handle(gpu), instance)
        what, by_id = f"compute instance {compute}", pynvml.nvmlGpuInstanceGetComputeInstanceById
        compute_handle = look_up(what, by_id, handle, compute)
        call_nvml(pynvml.nvmlComputeInstanceDestroy, compute_handle)

    def destroy_instance(self, gpu: str, instance: int) -> None:
        """Destroy a GPU instance without compute; IN_USE while something holds it."""
        call_nvml(
            pynvml.nvmlGpuInstanceDestroy, self._instance_handle(self._device_handle(gpu), instance)
        )

    def close(self) -> None:
        """End the session; one that ended by itself is only logged."""
        try:
            self._errors.close()
            call_nvml(pynvml.nvmlShutdown)
        except NvmlError as error:
            log.info("driver session already ended", error=str(error))

    def _device_handle(self, gpu: str) -> Handle:
        """Return a handle of the GPU, verified by its UUID."""
        handle = self._handles.pop(gpu, None)
        if handle is None or call_if_supported(pynvml.nvmlDeviceGetUUID, handle) != gpu:
            handle = look_up(gpu, pynvml.nvmlDeviceGetHandleByUUID, gpu)
            uuid = call_nvml(pynvml.nvmlDeviceGetUUID, handle)
            if uuid != gpu:
                text = f"asked for GPU {gpu}, got {uuid}"
                raise DriverError(Fault.ABSENT, "nvmlDeviceGetHandleByUUID", text)
        self._handles[gpu] = handle
        return handle

    def _instance_handle(self, device: Handle, id_: int) -> Handle:
        return look_up(f"GPU instance {id_}", pynvml.nvmlDeviceGetGpuInstanceById, device, id_)

    def _profiles(self, gpu: str, device: Handle) -> tuple[ProfileFacts, ...]:
        """Return a GPU's profiles; an empty result is not cached, because MIG may be off."""
        facts = self._profile_facts.get(gpu) or profile_facts(device)
        self._profile_facts[gpu] = facts
        return facts

    def _profiles_if_allowed(self, gpu: str, device: Handle) -> tuple[ProfileFacts, ...]:
        """Return a GPU's profiles, or none if the driver withholds placements."""
        try:
            return self._profiles(gpu, device)
        except NvmlError as error:
            if error.fault is not Fault.NO_PERMISSION:
                raise
            self._warn_once("MIG placements withheld", gpu, error)
            return ()

    def _warn_once(self, event: str, gpu: int | str, error: Exception) -> None:
        """Log a warning once, though it recurs in every cycle."""
        if (gpu, str(error)) not in self._warned:
            self._warned.add((gpu, str(error)))
            log.warning(event, gpu=gpu, error=str(error))

    def _compute_profiles(
        self, gpu: str, profile: int, instance: Handle
    ) -> tuple[ComputeProfile, ...]:
        profiles = self._compute_profiles_by_id.get((gpu, profile)) or compute_profiles(instance)
        self._compute_profiles_by_id[gpu, profile] = profiles
        return profiles
