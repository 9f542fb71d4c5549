"""Paths: what a tenant may not mount over in a container, nor mount from the node."""

import re
from dataclasses import dataclass
from typing import Final

from allocator.catalog.injection import (
    HOST_ROOT,
    MPS_PIPE_PATH,
    REGION_PATH_WITHOUT_ENVIRONMENT,
    SHARED_MEMORY_PATH,
    Column,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedPath:
    """A path in the container that tenants may not mount over."""

    path: str
    # Whether mounts on parent directories are refused too. False where they are usual: container
    # runtimes order mounts by depth, so ours ends up on top.
    parents: bool = True
    only: Column | None = None  # where containers are treated otherwise, it is theirs


RESERVED_PATHS: Final = (
    ReservedPath(path="/etc/ld.so.preload"),
    ReservedPath(path="/usr/local/vgpu"),
    ReservedPath(path="/tmp/vgpu", parents=False),
    ReservedPath(path="/tmp/vgpulock", parents=False),
    ReservedPath(path=REGION_PATH_WITHOUT_ENVIRONMENT, parents=False),
    ReservedPath(path=MPS_PIPE_PATH, parents=False, only=Column.MPS),
    ReservedPath(path=SHARED_MEMORY_PATH, parents=False, only=Column.MPS),
    # A mount below one of these names a GPU to NVIDIA's runtime; one above names none.
    ReservedPath(path="/var/run/nvidia-container-devices", parents=False),
    ReservedPath(path="/run/nvidia-container-devices", parents=False),
)
# Paths of the node that give access to devices or identities. A pod that asks for vGPU may not
# mount them, anything below them, or their parents.
RESERVED_HOST_PATHS: Final = (
    "/dev",
    HOST_ROOT,
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
_STATE: Final = "/var/lib/vgpu-admission"  # the agent's own files
_FOLDER: Final = re.compile(r"(?:/[A-Za-z0-9._-]+)+")


def overlaps(one: str, other: str) -> bool:
    """Say whether a path is the other one, holds it or is in it; both are absolute and normal."""
    return one == other or other.startswith(one.rstrip("/") + "/") or one.startswith(other + "/")


def host_root_problem(path: str) -> str:
    """Return why *path* cannot be ``hostRoot``; empty if it can.

    The folder is emptied when the node is left, so nobody else may have files in it.
    """
    if not _FOLDER.fullmatch(path) or {".", ".."} & set(path.split("/")):
        return (
            "it is not an absolute path in letters, digits, '.', '_' and '-', without '..' and "
            "without a slash at the end"
        )
    if "vgpu" not in path.rpartition("/")[2]:
        return "the name of the folder must contain vgpu, because it is emptied on uninstalling"
    taken = [other for other in (*RESERVED_HOST_PATHS, _STATE) if overlaps(path, other)]
    return f"it is, holds or is in {taken[0]}" if taken and path != HOST_ROOT else ""
