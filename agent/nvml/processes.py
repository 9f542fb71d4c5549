"""Processes on a GPU (compute, graphics, MPS) and its usage, through NVML."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pynvml

from agent.driver.board_discovery import MIB
from agent.driver.driver import Fault, Usage
from agent.nvml.calls import Handle, NvmlError, call_if_supported, call_nvml
from allocator.model.units import MiB

_NO_INSTANCE: Final = 0xFFFFFFFF  # in place of the id of a MIG instance
_SAMPLE_WINDOW: Final = 2_000_000  # microseconds of samples that make up a process's utilization
_MOST_PERCENT: Final = 100  # drivers have been seen to return larger numbers in a sample
# What NVML returns while nobody computes; pynvml raises if the driver succeeds without samples too.
_NO_SAMPLES: Final = frozenset((pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND))
_TRIES: Final = 3


class _Record(Protocol):
    """NVML's record of a process, in its spelling."""

    pid: int
    usedGpuMemory: int | None  # noqa: N815 -- bytes
    gpuInstanceId: int  # noqa: N815
    computeInstanceId: int  # noqa: N815


_Listing = Callable[[Handle], Sequence[_Record]]
_COMPUTE: Final[tuple[_Listing, ...]] = (
    pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
    pynvml.nvmlDeviceGetComputeRunningProcesses_v2,
)
_GRAPHICS: Final[tuple[_Listing, ...]] = (
    pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
    pynvml.nvmlDeviceGetGraphicsRunningProcesses_v2,
)
_MPS: Final[tuple[_Listing, ...]] = (
    pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
    pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v2,
)


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process on a GPU."""

    pid: int  # on the host
    ids: tuple[int, int] | None  # of its GPU instance and compute instance


def memory_by_process(device: Handle) -> dict[GpuProcess, MiB | None]:
    """Return the memory of each process on *device*, ``None`` if the driver does not report it.

    A process with compute and graphics is in both listings, with the same sum.
    """
    memories: dict[GpuProcess, MiB | None] = {}
    for record in (
        *_records(device, _COMPUTE),
        *_records_if_any(device, _GRAPHICS),
        *_records_if_any(device, _MPS),
    ):
        ids = (int(record.gpuInstanceId), int(record.computeInstanceId))
        user = GpuProcess(int(record.pid), None if _NO_INSTANCE in ids else ids)
        used = record.usedGpuMemory
        memory = None if used is None else MiB(-(-int(used) // MIB))
        known = memories.get(user)
        memories[user] = memory if known is None else max(known, memory or known)
    return memories


def utilization(device: Handle, now: float) -> dict[int, int] | None:
    """Return the percent of compute that each process used recently, at *now* in Unix seconds.

    The driver samples only processes that compute, so one that is left out used none. ``None``
    means that the driver has no samples at all, as in a virtual machine's vGPU. Not for GPUs in MIG
    mode, where it has none either.
    """
    since = max(0, int(now * 1_000_000) - _SAMPLE_WINDOW)
    try:
        samples = call_nvml(pynvml.nvmlDeviceGetProcessUtilization, device, since)
    except NvmlError as error:
        if error.fault in {Fault.LOST, Fault.UNAVAILABLE}:
            raise
        return {} if error.code in _NO_SAMPLES else None
    newest = sorted(samples, key=lambda sample: int(sample.timeStamp))
    return {int(s.pid): int(s.smUtil) for s in newest if int(s.smUtil) <= _MOST_PERCENT}


def usage_of(device: Handle, *, in_mig_mode: bool) -> Usage:
    """Return the usage of *device*; utilization is not measured *in_mig_mode*."""
    memory_info = call_if_supported(pynvml.nvmlDeviceGetMemoryInfo, device, pynvml.nvmlMemory_v2)
    if memory_info is None:  # the first version includes memory that the driver reserves
        memory_info = call_nvml(pynvml.nvmlDeviceGetMemoryInfo, device)
    rates = None if in_mig_mode else call_if_supported(pynvml.nvmlDeviceGetUtilizationRates, device)
    return Usage(
        memory=MiB(-(-int(memory_info.used) // MIB)),
        utilization=None if rates is None else int(rates.gpu),
    )


def _records_if_any(device: Handle, listings: Sequence[_Listing]) -> Sequence[_Record]:
    """Return the records of a listing that some products, drivers and modes lack."""
    try:
        return _records(device, listings)
    except NvmlError as error:
        if error.fault in {Fault.LOST, Fault.UNAVAILABLE}:
            raise
        return ()


def _records(device: Handle, listings: Sequence[_Listing]) -> Sequence[_Record]:
    """Return the records of the newest version of a listing that the driver has."""
    *newer, oldest = listings
    for listing in newer:
        try:
            return _read_listing(device, listing)
        except NvmlError as error:
            if error.code != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise
    return _read_listing(device, oldest)


def _read_listing(device: Handle, listing: _Listing) -> Sequence[_Record]:
    """Return the records of a listing; retries, because it fails if processes start meanwhile."""
    for _ in range(_TRIES - 1):
        try:
            return call_nvml(listing, device)
        except NvmlError as error:
            if error.code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                raise
    return call_nvml(listing, device)
