"""The facts of a GPU that do not change, and its MIG mode, links and needed recovery, by NVML."""

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pynvml

from agent.driver.board_discovery import pci_address
from agent.driver.driver import ComputeMode, Device, Fault, MigMode, Recovery
from agent.nvml.calls import Handle, NvmlError, call_if_supported, call_nvml, look_up

_PCI_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_LAST_MAJOR_WITH_RESET: Final = 8  # major number of the compute capability of Ampere and Ada
_VOLTA: Final = 7  # major number of its compute capability
_COMPUTE_MODES: Final = MappingProxyType(
    {
        pynvml.NVML_COMPUTEMODE_DEFAULT: ComputeMode.DEFAULT,
        # of drivers before 2015; a process with one thread has the GPU for itself too
        pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: ComputeMode.EXCLUSIVE_PROCESS,
        pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: ComputeMode.EXCLUSIVE_PROCESS,
        pynvml.NVML_COMPUTEMODE_PROHIBITED: ComputeMode.PROHIBITED,
    }
)
_COMPUTE_MODE_CODES: Final = MappingProxyType(
    {
        ComputeMode.DEFAULT: pynvml.NVML_COMPUTEMODE_DEFAULT,
        ComputeMode.EXCLUSIVE_PROCESS: pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
        ComputeMode.PROHIBITED: pynvml.NVML_COMPUTEMODE_PROHIBITED,
    }
)
# NVML_GPU_RECOVERY_ACTION_*: faults of NVLink and IMEX do not affect a GPU that works alone.
_RECOVERIES: Final = MappingProxyType(
    {
        pynvml.NVML_GPU_RECOVERY_ACTION_NONE: Recovery.NOTHING,
        pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: Recovery.NOTHING,
        pynvml.NVML_GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN: Recovery.NOTHING,
        pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: Recovery.RESET,
        pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: Recovery.RESET,
        pynvml.NVML_GPU_RECOVERY_ACTION_BUS_RESET: Recovery.RESET,
        pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: Recovery.REBOOT,
        pynvml.NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT: Recovery.REBOOT,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedFacts:
    """The facts of one GPU.

    NVLinks come up after the driver, when the switches between the GPUs have been configured.
    """

    uuid: str
    pci: str  # address
    model: str
    ampere_or_older: bool  # MIG mode needs a reset
    numa: int | None  # NUMA node
    switch: str | None  # PCI address of the PCIe switch above the GPU
    peers: Mapping[str, int]  # the number of its NVLinks by the PCI address at their other ends
    switched: bool  # an NVLink ends at an NVSwitch, which joins all GPUs that reach it
    mps: bool  # Volta or newer
    capability: tuple[int, int] | None  # compute capability; None: unknown

    @property
    def has_nvlink(self) -> bool:
        """Say whether any NVLink is up."""
        return self.switched or bool(self.peers)


def fixed_facts(device: Handle, uuid: str, sysfs: Path) -> FixedFacts:
    """Read the facts of *device*, whose UUID is *uuid*; *sysfs* is the path of ``/sys``."""
    pci = pci_address(str(call_nvml(pynvml.nvmlDeviceGetPciInfo_v3, device).busId))
    peers, switched = _nvlink_peers(device)
    return FixedFacts(
        uuid=uuid,
        pci=pci,
        model=str(call_nvml(pynvml.nvmlDeviceGetName, device)),
        ampere_or_older=_ampere_or_older(device),
        numa=_numa_node(sysfs, pci),
        switch=_pcie_switch(sysfs, pci),
        peers=peers,
        switched=switched,
        mps=serves_mps(device),
        capability=compute_capability(device),
    )


def mig_mode(device: Handle) -> MigMode | None:
    """Return the MIG mode now and after the next reset, ``None`` if the product has no MIG.

    Any other failure raises NvmlError, so that the GPU is not taken for one without MIG.
    """
    try:
        modes = call_nvml(pynvml.nvmlDeviceGetMigMode, device)
    except NvmlError as error:
        if error.fault is not Fault.NOT_SUPPORTED:
            raise
        return None
    return MigMode(current=bool(modes[0]), pending=bool(modes[1]))


def switch_mig_on(gpu: str) -> MigMode:
    """Switch MIG mode on for the GPU with this UUID, and return the new mode.

    NVML's call succeeds even if the mode stays off; its result is then the code of the reason,
    which is raised as NvmlError.
    """
    device = look_up(gpu, pynvml.nvmlDeviceGetHandleByUUID, gpu)
    status = int(call_nvml(pynvml.nvmlDeviceSetMigMode, device, pynvml.NVML_DEVICE_MIG_ENABLE))
    mode = mig_mode(device)
    if mode is None or not mode.current:
        code = status or pynvml.NVML_ERROR_UNKNOWN
        raise NvmlError(code, "nvmlDeviceSetMigMode", f"MIG mode stays off ({code})")
    return mode


def compute_mode(gpu: str) -> ComputeMode:
    """Return the compute mode of the GPU with this UUID; raises NvmlError for an unknown one."""
    device = look_up(gpu, pynvml.nvmlDeviceGetHandleByUUID, gpu)
    code = int(call_nvml(pynvml.nvmlDeviceGetComputeMode, device))
    mode = _COMPUTE_MODES.get(code)
    if mode is None:
        text = f"unknown compute mode {code}"
        raise NvmlError(pynvml.NVML_ERROR_UNKNOWN, "nvmlDeviceGetComputeMode", text)
    return mode


def set_compute_mode(gpu: str, mode: ComputeMode) -> None:
    """Set the compute mode of the GPU with this UUID; raises NvmlError."""
    device = look_up(gpu, pynvml.nvmlDeviceGetHandleByUUID, gpu)
    call_nvml(pynvml.nvmlDeviceSetComputeMode, device, _COMPUTE_MODE_CODES[mode])


def serves_mps(device: Handle) -> bool:
    """Say whether MPS isolates the address spaces of clients on the GPU, as from Volta on."""
    capability = compute_capability(device)
    return capability is not None and capability[0] >= _VOLTA


def compute_capability(device: Handle) -> tuple[int, int] | None:
    """Return the compute capability of the GPU, ``None`` where the driver does not tell it."""
    capability = call_if_supported(pynvml.nvmlDeviceGetCudaComputeCapability, device)
    return None if capability is None else (int(capability[0]), int(capability[1]))


def in_mig_mode(device: Handle) -> bool:
    """Say whether the GPU is in MIG mode now."""
    mode = mig_mode(device)
    return mode is not None and mode.current


def recovery(device: Handle) -> Recovery | None:
    """Return the recovery that the GPU needs, ``None`` with drivers before 565."""
    fields = call_if_supported(
        pynvml.nvmlDeviceGetFieldValues, device, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
    )
    if fields is None or fields[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return _RECOVERIES.get(int(fields[0].value.uiVal))


def with_links(device: Device, gpu: FixedFacts, gpus: tuple[FixedFacts, ...]) -> Device:
    """Return *device*, whose facts are *gpu*, with its NVLinks to the other *gpus*."""
    linked = tuple(
        other
        for other in gpus
        if other.uuid != gpu.uuid and (other.pci in gpu.peers or (gpu.switched and other.switched))
    )
    # Through a switch a GPU has the same bandwidth to every other.
    counts = () if gpu.switched else tuple(gpu.peers[other.pci] for other in linked)
    return replace(device, links=tuple(other.uuid for other in linked), link_counts=counts)


def _ampere_or_older(device: Handle) -> bool:
    """Say whether MIG mode needs a reset; assumed of a GPU of unknown architecture."""
    architecture = call_if_supported(pynvml.nvmlDeviceGetArchitecture, device)
    if architecture is not None and architecture != pynvml.NVML_DEVICE_ARCH_UNKNOWN:
        return bool(architecture <= pynvml.NVML_DEVICE_ARCH_AMPERE)
    capability = compute_capability(device)
    return capability is None or capability[0] <= _LAST_MAJOR_WITH_RESET


def _numa_node(sysfs: Path, pci: str) -> int | None:
    """Return the NUMA node of the GPU's slot from sysfs, where -1 means unknown.

    NVML's own call is about GPUs that are NUMA nodes themselves (Grace).
    """
    try:
        node = int((sysfs / "bus/pci/devices" / pci / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _pcie_switch(sysfs: Path, pci: str) -> str | None:
    """Return the PCI address of the upstream port of the PCIe switch above the GPU.

    In sysfs a device is in the folder of the port that it is plugged into. The folder above that
    is the switch's upstream port, or the host bridge, which has no address.
    """
    try:
        above = (sysfs / "bus/pci/devices" / pci).resolve().parent.parent.name
    except (OSError, RuntimeError):  # RuntimeError: a loop of links
        return None
    return above if _PCI_ADDRESS.fullmatch(above) else None


def _nvlink_peers(device: Handle) -> tuple[Mapping[str, int], bool]:
    peers: Counter[str] = Counter()
    switched = False
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        active = call_if_supported(pynvml.nvmlDeviceGetNvLinkState, device, link)
        if active is None:  # no driver call returns the number of links
            break
        if not active:
            continue
        kind = call_if_supported(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, device, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            switched = True
        else:
            peers.update(_peer_address(device, link))
    return peers, switched


def _peer_address(device: Handle, link: int) -> set[str]:
    """Return the PCI address at the other end of a link, or nothing if it is unknown."""
    remote = call_if_supported(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, device, link)
    with suppress(ValueError):
        return set() if remote is None else {pci_address(str(remote.busId))}
    return set()
