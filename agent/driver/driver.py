"""The driver: what the agent asks of a node's NVIDIA driver, and the values it answers with.

NVML implements the protocol, and so do simulated GPUs for clusters without hardware. Calls block.
One thread makes all of them, because concurrent walks of NVML take seconds. GPUs are named by
UUID, because handles and indexes are reused.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from allocator.model.board import Board
from allocator.model.units import MiB


class Fault(StrEnum):
    """Why the driver refused, as far as the agent acts differently on it."""

    ABSENT = "absent"  # no such GPU, instance or process
    IN_USE = "in-use"  # a process or an open handle holds it
    NO_ROOM = "no-room"  # the placement is taken, or engines are exhausted
    NOT_SUPPORTED = "not-supported"
    NO_PERMISSION = "no-permission"
    LOST = "lost"  # the GPU fell off the bus, or needs a reset
    UNAVAILABLE = "unavailable"  # no driver, no library, or its session was lost
    OTHER = "other"


class DriverError(Exception):
    """The driver refused *call*; *text* is its own word for why."""

    def __init__(self, fault: Fault, call: str, text: str) -> None:
        """Say that *call* failed for *fault*."""
        super().__init__(f"{call}: {text}")
        self.fault = fault
        self.call = call


@dataclass(frozen=True, slots=True, kw_only=True)
class MigMode:
    """Whether MIG mode is on, now and after its next reset."""

    current: bool
    pending: bool


class Recovery(StrEnum):
    """What the driver says a GPU needs before it can be relied on again."""

    NOTHING = "nothing"
    RESET = "reset"
    REBOOT = "reboot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One physical GPU as the driver lists it.

    ``minor`` is the N of ``/dev/nvidiaN``, not the index; ``pci`` is ``0000:3b:00.0``. ``memory``
    is the total, which includes what the driver keeps for itself. ``mig`` is ``None`` where the
    product has no MIG. ``board`` has profiles and placements, ``None`` without MIG or where the
    driver lists them only in MIG mode. ``links`` are UUIDs of GPUs that NVLink joins with it,
    directly or through a switch; ``switch`` is the PCI address of the PCIe switch above it.
    ``recovery`` is ``None`` where the driver does not tell.
    """

    uuid: str
    index: int
    minor: int
    pci: str
    model: str
    memory: MiB
    ampere_or_older: bool
    mig: MigMode | None = None
    board: Board | None = None
    numa: int | None = None
    links: tuple[str, ...] = ()
    switch: str | None = None
    recovery: Recovery | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A GPU instance that exists.

    ``uuid`` and ``compute`` are ``None`` while it lacks its compute instance, which is how one
    leaked by a crash looks. ``id`` and ``compute`` are the driver's numbers, reused after
    destruction; ``profile`` is the profile's id on this board, ``start`` its first memory slot.
    """

    gpu: str
    id: int
    profile: int
    start: int
    compute: int | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process on a GPU in the host's view; ``instance`` is the UUID of the MIG instance.

    ``memory`` is ``None`` where the driver does not tell. ``utilization`` is the percent of
    compute it used of late, ``None`` where unknown (always under MIG).
    """

    pid: int
    gpu: str
    memory: MiB | None
    instance: str | None = None
    utilization: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What is used of one GPU in all; ``utilization`` is ``None`` in MIG mode."""

    memory: MiB
    utilization: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverEvent:
    """A critical error that the driver reported; ``gpu`` is ``None`` where it concerns all."""

    gpu: str | None
    xid: int
    instance: int | None = None  # the GPU instance's id


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What the driver says of itself; ``cuda`` is the newest CUDA it serves, as ``12.8``."""

    driver: str
    nvml: str
    cuda: str


class Driver(Protocol):
    """The calls. Each raises DriverError; none is safe to make from two threads at once."""

    def versions(self) -> Versions:
        """Return the versions of driver and library."""

    def devices(self) -> tuple[Device, ...]:
        """Return all GPUs by index; what one of them will not tell is left out of it alone."""

    def instances(self, gpu: str) -> tuple[Instance, ...]:
        """Return all GPU instances of one GPU, those without a compute instance too."""

    def processes(self, gpu: str) -> tuple[Process, ...]:
        """Return the processes that use one GPU or an instance of it."""

    def usage(self, gpu: str) -> Usage:
        """Return what is used of one GPU."""

    def events(self) -> tuple[DriverEvent, ...]:
        """Return the critical errors since the last call, without waiting."""

    def create_instance(self, gpu: str, profile: int, start: int) -> Instance:
        """Create a GPU instance at exactly this placement, still without compute."""

    def create_compute(self, gpu: str, instance: int) -> Instance:
        """Create the compute instance that fills a GPU instance, and return both as one."""

    def destroy_compute(self, gpu: str, instance: int, compute: int) -> None:
        """Destroy a compute instance; IN_USE while something holds it."""

    def destroy_instance(self, gpu: str, instance: int) -> None:
        """Destroy a GPU instance without compute; IN_USE while something holds it."""

    def enable_mig(self, gpu: str) -> MigMode:
        """Switch MIG mode on and return it; IN_USE while the GPU has clients. Resets Ampere."""

    def close(self) -> None:
        """End the session."""
