"""Paths: what a tenant may not mount over in a container, nor mount from the node."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedPath:
    """A path in the container that tenants may not mount over."""

    path: str
    # Whether mounts on parent directories are refused too. False where they are usual: container
    # runtimes order mounts by depth, so ours ends up on top.
    parents: bool = True


RESERVED_PATHS: Final = (
    ReservedPath(path="/etc/ld.so.preload"),
    ReservedPath(path="/usr/local/vgpu"),
    ReservedPath(path="/tmp/vgpu", parents=False),
    ReservedPath(path="/tmp/vgpulock", parents=False),
    ReservedPath(path="/var/run/nvidia-container-devices"),
    ReservedPath(path="/run/nvidia-container-devices"),
)
# Paths of the node that give access to devices or identities. A pod that asks for vGPU may not
# mount them, anything below them, or their parents.
RESERVED_HOST_PATHS: Final = (
    "/dev",
    "/usr/local/vgpu",
    "/var/lib/kubelet",
    "/run/nvidia",
    "/var/run/nvidia",
    "/etc/cdi",
    "/run/cdi",
    "/var/run/cdi",
    "/run/containerd",
    "/var/run/containerd",
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/crio",
    "/proc",
    "/sys",
)
# Data loaders mount shared memory from the node; it gives access to no device.
HARMLESS_HOST_PATHS: Final = ("/dev/shm",)
