"""Options of the agent, and the driver that they select."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

import structlog

from agent.driver.driver import Driver
from agent.driver.simulated_files import SimulatedDriver
from agent.driver.simulated_fleet import simulated_node
from agent.health.xid import XidPolicy
from agent.metax.machine import MetaxMachine, metax_machine
from agent.mps.launch import MpsLauncher
from agent.node.paths_cli import KUBELET
from agent.nvml.driver import NvmlDriver
from agent.region.library_files import (
    FOLDER,
    Absent,
    Installed,
    install_from,
    install_simulated,
)
from allocator.catalog.injection import HOST_ROOT
from allocator.cli.audit import AuditOptions
from allocator.cli.http_server import Listen
from allocator.model.problem import Rejected
from kube.config import Access

BOOT_ID: Final = "proc/sys/kernel/random/boot_id"
log = structlog.get_logger(__name__)


class DriverKind(StrEnum):
    """Which driver the agent uses."""

    NVML = "nvml"
    SIMULATED = "simulated"


class FleetError(Exception):
    """The fleet file cannot be read, or has no GPUs for this node."""


def boot_of(root: Path) -> str:
    """Return the id of this boot; raises OSError where the kernel tells none."""
    return (root / BOOT_ID).read_text(encoding="ascii").strip()


def simulated_driver(fleet: Path, *, node: str, boot: str, state: Path) -> Driver:
    """Return the driver of the GPUs of *node* in *fleet*, kept in *state*; raises FleetError."""
    loaded = simulated_node(_fleet_text(fleet), node=node, boot=boot)
    if isinstance(loaded, Rejected):
        raise FleetError(f"{fleet}: {loaded}")
    for warning in loaded.warnings:
        log.warning("malformed fleet file", what=str(warning))
    return SimulatedDriver(loaded.value, file=state)


def simulated_metax(fleet: Path, *, node: str) -> MetaxMachine | None:
    """Return the MetaX node that *node* is in *fleet*, ``None`` if none; raises FleetError."""
    machine = metax_machine(_fleet_text(fleet), node=node)
    if isinstance(machine, Rejected):
        raise FleetError(f"{fleet}: {machine}")
    return machine


def _fleet_text(fleet: Path) -> str:
    try:
        return fleet.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FleetError(f"{fleet} cannot be read: {error}") from error


def nvml_driver(root: Path) -> Driver:
    """Return the NVIDIA driver of the machine whose files are below *root*."""
    return NvmlDriver(sysfs=root / "sys")


FLEET: Final = Path("/etc/vgpu-admission/fleet.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """The options of the command line."""

    access: Access
    node: str  # name of our Node
    namespace: str  # of our settings
    listen: Listen
    driver: DriverKind = DriverKind.NVML
    fleet: Path = FLEET  # file with the simulated GPUs
    root: Path = Path("/")  # of the node; all of its paths but kubelet's are below it
    host_root: Path = Path(HOST_ROOT)  # on the node; what containers have mounted is in it
    kubelet: Path = KUBELET  # kubelet's directory
    relay: Path | None = None  # folder of the relay's sockets, if there is a relay
    library: Path = FOLDER  # with the interception library, in our image
    xids: XidPolicy = field(default_factory=XidPolicy)
    instance: str = ""  # name of our pod, for records
    audit: AuditOptions | None = None  # None: records go to standard output only
    mps_launcher: MpsLauncher = MpsLauncher.CHILD  # who keeps MPS daemons running
    withdraw: bool = False  # remove what agents added to the node, instead of serving


def driver_of(options: AgentOptions, state: Path, *, boot: str) -> Driver:
    """Return the driver that *options* select; raises FleetError. *state* is the agent's folder."""
    if options.driver is not DriverKind.SIMULATED:
        return nvml_driver(options.root)
    file = state / "simulated.json"
    return simulated_driver(options.fleet, node=options.node, boot=boot, state=file)


def installed_library(options: AgentOptions, folder: Path) -> Installed | Absent:
    """Install the interception library in *folder*; containers cannot be limited without it."""
    library = (
        install_simulated(folder)
        if options.driver is DriverKind.SIMULATED
        else install_from(folder, options.library)
    )
    if isinstance(library, Absent):
        log.warning("hami-core unavailable on this node", why=library.why)
    return library
