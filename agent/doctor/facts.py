"""Facts about a node, as far as they decide whether pods with GPUs can run on it."""

from dataclasses import dataclass
from typing import Final

from agent.driver.driver import Device, Versions

CDI_FOLDERS: Final = frozenset(("/var/run/cdi", "/run/cdi"))  # ours: one is a link to the other


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """containerd as it is configured in ``path``; ``default`` is the runtime of pods without class.

    ``cdi`` says whether it reads CDI documents, from ``cdi_folders``, or is ``None`` where that
    depends on the version of containerd. ``problem`` is why the file
    could not be read; then the rest means nothing.
    """

    path: str
    runtimes: frozenset[str] = frozenset()
    default: str = "runc"
    cdi: bool | None = None
    cdi_folders: tuple[str, ...] = ()
    problem: str = ""

    @property
    def finds_ours(self) -> bool:
        """Say whether it looks for CDI documents where we write them."""
        return not CDI_FOLDERS.isdisjoint(self.cdi_folders)


@dataclass(frozen=True, slots=True)
class Plugin:
    """Another program that would serve the node's GPUs: its name, and what gives it away."""

    name: str
    trace: str
    running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The interception library on the node: its SHA-256, and whether containers preload it."""

    sha256: str
    elf: bool
    preloaded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What was found on a node. ``silent`` is why the driver did not answer, ``None`` if it did.

    ``toolkit`` is the container toolkit's version, ``runtimes`` every configuration of containerd.
    ``files`` are the device files that exist below ``/dev``, ``capabilities`` says whether the
    kernel's table of MIG capabilities can be read. Sockets are those of kubelet.
    """

    versions: Versions | None = None
    devices: tuple[Device, ...] = ()
    silent: str | None = None
    toolkit: str | None = None
    runtimes: tuple[Runtime, ...] = ()
    plugins: tuple[Plugin, ...] = ()
    registration: bool = False
    podresources: bool = False
    library: Library | None = None
    files: frozenset[str] = frozenset()
    capabilities: bool = False
