"""Drivers: the one that the command line asks for."""

from enum import StrEnum
from pathlib import Path
from typing import Final

import structlog

from agent.core.driver import Driver
from agent.core.simulatedfleet import simulated_node
from agent.shell.nvml import NvmlDriver
from agent.shell.simulated import SimulatedDriver
from allocator.model.problem import Rejected

BOOT_ID: Final = "proc/sys/kernel/random/boot_id"

log = structlog.get_logger(__name__)


class DriverKind(StrEnum):
    """What stands behind the driver."""

    NVML = "nvml"
    SIMULATED = "simulated"


class FleetError(Exception):
    """The fleet file says nothing that this node could play."""


def boot_of(root: Path) -> str:
    """Return the id of this boot; raises OSError where the kernel tells none."""
    return (root / BOOT_ID).read_text(encoding="ascii").strip()


def simulated_driver(fleet: Path, *, node: str, boot: str, state: Path) -> Driver:
    """Return the boards that *fleet* gives *node*, as *state* remembers them; raises FleetError."""
    try:
        text = fleet.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FleetError(f"{fleet} cannot be read: {error}") from error
    found = simulated_node(text, node=node, boot=boot)
    if isinstance(found, Rejected):
        raise FleetError(f"{fleet}: {found}")
    for warning in found.warnings:
        log.warning("malformed fleet file", what=str(warning))
    return SimulatedDriver(found.value, file=state)


def real(root: Path) -> Driver:
    """Return the NVIDIA driver of the machine whose files are below *root*."""
    return NvmlDriver(sysfs=root / "sys")
