"""Launching a daemon: the command line and the environment of ``nvidia-cuda-mps-control``.

The daemon gets a mount namespace of its own, with its shared memory at ``/dev/shm``: clients have
the same folder there. As a child of the agent it ends with the agent's container. Under systemd it
belongs to the node, and outlives the agent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agent.mps.daemon import DaemonFolders

OPEN_FILES: Final = 16384  # that a server needs
# Mounts, then becomes the daemon: the process keeps its pid.
_WITH_SHARED_MEMORY: Final = 'mount --bind "$1" /dev/shm && shift && exec "$@"'


class MpsLauncher(StrEnum):
    """Who keeps the daemons running."""

    CHILD = "child"  # the agent itself
    SYSTEMD = "systemd"  # the node's systemd


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """How one daemon is started; ``folders`` are as the daemon sees them."""

    gpu: str
    folders: DaemonFolders
    program: str
    mounts: bool = True  # its /dev/shm is a folder of its own
    static: bool = False  # its clients get partitions


def environment(plan: LaunchPlan) -> dict[str, str]:
    """Return the variables of a daemon: one GPU, and folders of its own."""
    return {
        "CUDA_VISIBLE_DEVICES": plan.gpu,
        "CUDA_MPS_PIPE_DIRECTORY": plan.folders.pipe,
        "CUDA_MPS_LOG_DIRECTORY": plan.folders.log,
    }


def _arguments(plan: LaunchPlan) -> list[str]:
    """Return the arguments of the program.

    ``-f`` keeps it in the foreground; ``-M`` lets one server take clients of every user, where
    otherwise the first call of a second user hangs until the first one's processes have ended.
    ``-S`` enables static partitioning.
    """
    return ["-f", "-M", "-S"] if plan.static else ["-f", "-M"]


def child_command(plan: LaunchPlan) -> list[str]:
    """Return the command line of a daemon that the agent starts as its child.

    It ends with the agent's container.
    """
    daemon = [plan.program, *_arguments(plan)]
    if not plan.mounts:
        return daemon
    shell = ["sh", "-c", _WITH_SHARED_MEMORY, "sh", plan.folders.shared_memory]
    return ["unshare", "--mount", "--propagation", "slave", "--", *shell, *daemon]


def unit_of(gpu: str) -> str:
    """Return the name of the unit of the daemon of *gpu*."""
    return f"vgpu-mps-{gpu}.service"


def on_node(command: Sequence[str]) -> list[str]:
    """Return the command line that runs *command* in the node's own mounts; needs hostPID."""
    return ["nsenter", "--target", "1", "--mount", "--", *command]


def systemd_command(plan: LaunchPlan) -> list[str]:
    """Return the command line that has systemd start a daemon.

    Systemd does not restart it: the agent must see its end, tell whom it hurts, and set the limits
    of the next one before a client arrives.
    """
    properties: Mapping[str, str] = {
        "Type": "exec",
        "Restart": "no",
        "LimitNOFILE": str(OPEN_FILES),
        "BindPaths": f"{plan.folders.shared_memory}:/dev/shm",
    }
    return on_node(
        [
            "systemd-run",
            "--quiet",
            "--collect",
            f"--unit={unit_of(plan.gpu)}",
            *(f"--property={name}={value}" for name, value in properties.items()),
            *(f"--setenv={name}={value}" for name, value in environment(plan).items()),
            plan.program,
            *_arguments(plan),
        ]
    )


def main_pid_command(gpu: str) -> list[str]:
    """Return the command line that prints the pid of the daemon that systemd runs."""
    return on_node(["systemctl", "show", "--property=MainPID", "--value", unit_of(gpu)])
