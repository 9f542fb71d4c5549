"""The daemons of mode mps: the calls that the agent makes to them, and where their files are.

One daemon serves one GPU, so that a fault reaches the clients of that GPU and no others. It has
folders of its own: with the default ones it would capture every container of the node.
"""

import re
from dataclasses import dataclass
from typing import Final, Protocol

from allocator.model.units import MiB

MPS_FOLDER: Final = "mps"  # below hostRoot
CONTROL: Final = "nvidia-cuda-mps-control"
SERVER: Final = "nvidia-cuda-mps-server"
_LONGEST_SOCKET: Final = 107  # bytes of a path that the kernel takes
_SOCKET: Final = "/pipe/control_privileged"  # the longest name of a socket
LEAST_SHARED_MEMORY: Final = MiB(64)
# NVIDIA's own plugin takes half of the node's memory too, for all GPUs together.
SHARED_MEMORY_DIVISOR: Final = 2
_GPU: Final = re.compile(r"GPU-[0-9a-fA-F-]{8,60}")


class DaemonError(Exception):
    """A daemon did not start, end or answer; the text says why."""


@dataclass(frozen=True, slots=True)
class DaemonFolders:
    """The folders of one daemon on the node; all of their parents let other users pass."""

    root: str

    @property
    def pipe(self) -> str:
        """Return the folder of its sockets, which clients have mounted."""
        return f"{self.root}/pipe"

    @property
    def log(self) -> str:
        """Return the folder of its logs."""
        return f"{self.root}/log"

    @property
    def shared_memory(self) -> str:
        """Return the folder that daemon and clients have mounted at ``/dev/shm``."""
        return f"{self.root}/shm"


def folders_of(host_root: str, gpu: str) -> DaemonFolders:
    """Return the folders of the daemon of *gpu*; raises DaemonError for what is no UUID."""
    if not is_gpu(gpu):
        raise DaemonError(f"{gpu[:64]!r} is not the UUID of a GPU, as GPU-… names one")
    return DaemonFolders(f"{host_root}/{MPS_FOLDER}/{gpu}")


def is_gpu(name: str) -> bool:
    """Say whether *name* is the UUID of a GPU, and so that of its daemon's folder."""
    return _GPU.fullmatch(name) is not None


def check_sockets(folders: DaemonFolders) -> None:
    """Raise DaemonError where paths of the daemon's sockets are longer than the kernel takes."""
    if len(folders.root.encode()) + len(_SOCKET) > _LONGEST_SOCKET:
        most = _LONGEST_SOCKET - len(_SOCKET)
        raise DaemonError(f"{folders.root!r} is too long for sockets; at most {most} bytes")


def shared_memory_size(total: MiB, *, gpus: int) -> MiB:
    """Return the size of one daemon's ``/dev/shm`` on a node of *total* memory with *gpus* GPUs.

    A bound, not a reservation: a tenant that fills it takes this much of the node's memory.
    """
    return MiB(max(LEAST_SHARED_MEMORY, total // SHARED_MEMORY_DIVISOR // max(1, gpus)))


class Daemons(Protocol):
    """The daemons of this node, by the UUID of their GPU."""

    async def prepare(self, gpu: str) -> None:
        """Create the folders of a daemon, and mount what it shares; raises DaemonError."""

    async def start(self, gpu: str, *, static: bool = False) -> None:
        """Start a daemon, with partitions if *static*; returns once it answers.

        Raises DaemonError.
        """

    async def is_alive(self, gpu: str) -> bool:
        """Say whether the daemon's process exists, whoever started it."""

    def is_static(self, gpu: str) -> bool:
        """Say whether the daemon that was started last has partitions."""

    async def ask(self, gpu: str, command: str) -> str:
        """Return the daemon's answer to one command; raises DaemonError."""

    async def server_pids(self, gpu: str) -> frozenset[int]:
        """Return the pids of the servers of the daemon as the node sees them."""

    async def last_refusal(self, gpu: str) -> str:
        """Return what the server last logged of a client for whom it had no room, else ""."""

    async def kill(self, gpu: str) -> None:
        """Kill the daemon and its servers, whatever they do; raises DaemonError."""

    def known(self) -> frozenset[str]:
        """Return the GPUs for whose daemon there are folders, from an earlier agent too."""

    async def remove(self, gpu: str) -> None:
        """Remove the folders of a daemon that has ended; raises DaemonError."""
