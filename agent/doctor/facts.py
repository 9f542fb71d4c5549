"""Facts about a node, as far as they decide whether pods with GPUs can run on it."""

from dataclasses import dataclass
from typing import Final

from agent.driver.driver import Device, Versions

# The toolkit's setting; its default is true.
ACCEPTS: Final = "accept-nvidia-visible-devices-envvar-when-unprivileged"
CDI_FOLDERS: Final = frozenset(("/var/run/cdi", "/run/cdi"))  # ours: one is a link to the other


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """One configuration of containerd."""

    path: str
    runtimes: frozenset[str] = frozenset()  # names of the runtimes that it defines
    default: str = "runc"  # the runtime of pods without a RuntimeClass
    cdi: bool | None = None  # whether it reads CDI; None: that depends on containerd's version
    cdi_folders: tuple[str, ...] = ()  # where it reads CDI documents
    problem: str = ""  # why the file cannot be read; then all other fields mean nothing

    @property
    def finds_ours(self) -> bool:
        """Say whether it looks for CDI documents where we write them."""
        return not CDI_FOLDERS.isdisjoint(self.cdi_folders)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitConfig:
    """One configuration of NVIDIA's container toolkit."""

    path: str
    # Whether a container that is not privileged may name GPUs; NVIDIA's default where not said.
    accepts: bool = True
    problem: str = ""  # why the file cannot be read; then what it says is not known


@dataclass(frozen=True, slots=True)
class Plugin:
    """Another device plugin that would serve the node's GPUs."""

    name: str
    trace: str  # the socket or process by which it was detected
    running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The interception library on the node."""

    sha256: str
    problem: str  # why it limits nothing; empty if it limits
    preloaded: bool  # by containers


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What was found on a node."""

    versions: Versions | None = None  # of the driver
    devices: tuple[Device, ...] = ()
    driver_error: str | None = None  # why the driver did not answer; None: it did
    toolkit: str | None = None  # version of the NVIDIA container toolkit
    toolkit_configs: tuple[ToolkitConfig, ...] = ()  # those that exist
    runtimes: tuple[Runtime, ...] = ()  # every configuration of containerd
    plugins: tuple[Plugin, ...] = ()
    registration: bool = False  # kubelet's socket for device plugins exists
    podresources: bool = False  # kubelet's podresources socket exists
    library: Library | None = None
    files: frozenset[str] = frozenset()  # names of NVIDIA's files in /dev
    capabilities: bool = False  # the kernel's table of MIG capabilities can be read
