"""Launchers that give each of their processes one of a container's GPUs.

They do it by ``CUDA_VISIBLE_DEVICES``, which numbers the GPUs anew in each process. The
interception library then takes every GPU for the container's first one: it checks and counts all
processes against the limit of that one.
"""

import re
from collections.abc import Iterable
from typing import Final

MOST_BYTES: Final = 16 * 1024  # looked at of one container's command and of its arguments
# Programs, modules and options by which the common launchers are called. What stands between two
# words of a command is a space, or the end of one JSON string and the beginning of the next.
_NAMES: Final = (
    *("torchrun", r"torch\.distributed\.(?:run|launch)", "deepspeed", "accelerate{gap}launch"),
    *("mpirun", "mpiexec", "horovodrun", "colossalai{gap}run", "srun", "ray{gap}(?:start|job)"),
    *("vllm{gap}serve", r"vllm\.entrypoints", "sglang", "--tensor-parallel-size", "--tp-size"),
)
_GAP: Final = r"(?:\s+|\"\s*,\s*\")"
_LAUNCHER: Final = re.compile(
    rf"(?<![\w.-])(?:{'|'.join(_NAMES)})(?![\w-])".replace("{gap}", _GAP).encode()
)
# Variables that only such a launcher reads.
_VARIABLES: Final = frozenset(
    {"PET_NPROC_PER_NODE", "NPROC_PER_NODE", "LOCAL_WORLD_SIZE", "RAY_ADDRESS"}
)
_BETWEEN_STRINGS: Final = re.compile(rb'"\s*,\s*"')


def launcher_of(command: bytes, args: bytes, variables: Iterable[str]) -> str:
    """Return what names a launcher in a container, empty if nothing does.

    *command* and *args* are those of the container as JSON, *variables* are the names in its
    environment.
    """
    for text in (command, args):
        if found := _LAUNCHER.search(text[:MOST_BYTES]):
            return _BETWEEN_STRINGS.sub(b" ", found[0]).decode(errors="replace")
    return next((name for name in variables if name in _VARIABLES), "")
