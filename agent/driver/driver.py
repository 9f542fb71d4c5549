"""The driver: the calls that the agent makes to a node's NVIDIA driver, and their values.

NVML implements the protocol, and so do simulated GPUs for clusters without hardware. Calls block.
One thread makes all of them, because concurrent walks of NVML take seconds. GPUs are named by
UUID, because handles and indexes are reused.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from allocator.model.board import Board
from allocator.model.units import MiB

SIMULATED: Final = "simulated"  # what simulated GPUs report as the version of their driver


class Fault(StrEnum):
    """Why the driver refused, in the cases that the agent treats differently."""

    ABSENT = "absent"  # no such GPU, instance or process
    IN_USE = "in-use"  # a process or an open handle holds it
    NO_ROOM = "no-room"  # the placement is taken, or engines are exhausted
    NOT_SUPPORTED = "not-supported"
    NO_PERMISSION = "no-permission"
    LOST = "lost"  # the GPU fell off the bus, or needs a reset
    UNAVAILABLE = "unavailable"  # no driver, no library, or its session was lost
    OTHER = "other"


class DriverError(Exception):
    """The driver refused *call* with its message *text*."""

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


class ComputeMode(StrEnum):
    """Which processes may compute on a GPU at once."""

    DEFAULT = "default"  # any number
    EXCLUSIVE_PROCESS = "exclusive-process"  # one, such as the server of MPS
    PROHIBITED = "prohibited"  # none


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One physical GPU as the driver lists it."""

    uuid: str
    index: int
    minor: int  # the N of /dev/nvidiaN, which is not the index
    pci: str  # PCI address, as 0000:3b:00.0
    model: str
    memory: MiB  # in total, with what the driver keeps for itself
    ampere_or_older: bool
    mig: MigMode | None = None  # None: the product has no MIG
    # profiles and placements; None without MIG, or where they are listed only in MIG mode
    board: Board | None = None
    numa: int | None = None
    links: tuple[str, ...] = ()  # UUIDs of GPUs joined by NVLink, directly or through a switch
    link_counts: tuple[int, ...] = ()  # the number of NVLinks to each of these; empty with a switch
    switch: str | None = None  # PCI address of the PCIe switch above it
    recovery: Recovery | None = None  # None: the driver does not report it
    # Volta or newer, which MPS gives address spaces of their own and limits
    mps: bool = True
    capability: tuple[int, int] | None = None  # compute capability; None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A GPU instance that exists.

    It lacks its compute instance while it is created, and where a crash left it unfinished.
    """

    gpu: str
    id: int  # the driver's number, reused after destruction
    profile: int  # id of the profile on this board
    start: int  # first memory slot
    compute: int | None = None  # number of the compute instance, reused too; None without one
    uuid: str | None = None  # of the MIG instance; None without a compute instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process on a GPU in the host's view."""

    pid: int
    gpu: str
    memory: MiB | None  # None: the driver does not report it
    instance: str | None = None  # UUID of the MIG instance
    # recent percent of compute; None where the driver does not tell it, as under MIG
    utilization: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What all processes together use of one GPU; ``utilization`` is ``None`` in MIG mode."""

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
    """Versions of the driver; ``cuda`` is the newest CUDA that it supports, as ``12.8``."""

    driver: str
    nvml: str
    cuda: str


class Driver(Protocol):
    """The driver calls. Each raises DriverError; only one thread may make them."""

    def versions(self) -> Versions:
        """Return the versions of driver and library."""

    def devices(self) -> tuple[Device, ...]:
        """Return all GPUs by index; fields that a GPU does not report are left at their default."""

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

    def compute_mode(self, gpu: str) -> ComputeMode:
        """Return which processes may compute on one GPU at once."""

    def set_compute_mode(self, gpu: str, mode: ComputeMode) -> None:
        """Set which processes may compute on one GPU at once; those that run are left alone."""

    def close(self) -> None:
        """End the session."""
