"""What was asked for and given, in a few characters: ``2x8000Mi/50%``, ``1g.5gb``."""

from collections.abc import Iterable

from allocator.audit.record import AskedPart, DevicePart, GivenPart
from console.get.table import NONE, word


def asked_text(containers: Iterable[AskedPart]) -> str:
    """Return what the containers of a pod ask for, joined by ``+``."""
    return "+".join(map(_asked, containers)) or NONE


def _asked(container: AskedPart) -> str:
    count = f"{container.count}x" if container.count != 1 else ""
    if container.memory_mib is not None:
        memory = f"{container.memory_mib}Mi"
    elif container.memory_percent is not None:
        memory = f"{container.memory_percent}%mem"
    else:
        memory = "gpu"
    cores = f"/{container.cores_percent}%" if container.cores_percent else ""
    return f"{count}{memory}{cores}"


def given_text(containers: Iterable[GivenPart]) -> str:
    """Return what the containers of a pod were given, joined by ``+``."""
    return "+".join(device_text(d) for each in containers for d in each.devices) or NONE


def device_text(device: DevicePart) -> str:
    """Return one grant: a profile with its slot, or memory and compute."""
    if device.profile:
        slot = "" if device.start is None else f"@{device.start}"
        return f"{word(device.profile)}{slot}"
    memory = "gpu" if device.memory_mib is None else f"{device.memory_mib}Mi"
    cores = f"/{device.cores_percent}%" if device.cores_percent else ""
    return f"{memory}{cores}"
