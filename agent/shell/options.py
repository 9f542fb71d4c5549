"""Options: what the command line of the agent decides."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.core.xid import XidPolicy
from agent.shell.drivers import DriverKind
from agent.shell.libraries import FOLDER
from agent.shell.server import ListenAddress
from kube.config import Access

FLEET: Final = Path("/etc/vgpu-admission/fleet.yaml")
KUBELET: Final = Path("/var/lib/kubelet")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """What the command line decides.

    ``node`` is our Node's name, ``namespace`` where settings live. All paths of the node are below
    ``root``, but for ``kubelet``, its folder. ``library`` is the folder of the interception library
    in our own image. ``fleet`` says which boards are played where the driver is simulated.
    ``xids`` is what the driver's critical errors mean. ``withdraw`` takes everything back instead
    of serving.
    """

    access: Access
    node: str
    namespace: str
    listen: ListenAddress
    driver: DriverKind = DriverKind.NVML
    fleet: Path = FLEET
    root: Path = Path("/")
    kubelet: Path = KUBELET
    library: Path = FOLDER
    xids: XidPolicy = field(default_factory=XidPolicy)
    withdraw: bool = False
