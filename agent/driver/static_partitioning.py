"""Static partitioning of MPS: which GPUs can have it, and the size of their chunks.

From NVIDIA's documentation of MPS: it needs CUDA 13.1 and a GPU of Ampere or newer. A chunk has 8
multiprocessors on GPUs of Hopper and newer, 4 on older ones, 2 on those of a system on a chip.
"""

from typing import Final

from allocator.model.untrusted import quote

LEAST_CUDA: Final = (13, 1)
AMPERE: Final = (8, 0)  # compute capabilities
HOPPER: Final = (9, 0)
_ON_A_CHIP: Final = frozenset({(8, 7), (11, 0)})  # Orin, Thor
_LONGEST_VERSION: Final = 9  # characters

Capability = tuple[int, int]


def cuda_version(text: str) -> tuple[int, int] | None:
    """Return the numbers of a version such as ``13.1``, ``None`` where it is none."""
    major, _, minor = text.partition(".")
    numbers = major.isascii() and major.isdigit() and minor.isascii() and minor.isdigit()
    return (int(major), int(minor)) if numbers and len(text) <= _LONGEST_VERSION else None


def chunk_size(capability: Capability | None) -> int:
    """Return the multiprocessors of one chunk of a GPU, 0 where it has no chunks."""
    if capability is None or capability < AMPERE:
        return 0
    if capability in _ON_A_CHIP:
        return 2
    return 8 if capability >= HOPPER else 4


def static_refusal(cuda: str, capability: Capability | None) -> str:
    """Return why a GPU cannot be partitioned statically, "" where it can.

    *cuda* is the newest CUDA that the driver supports.
    """
    version = cuda_version(cuda)
    if version is not None and version >= LEAST_CUDA and chunk_size(capability):
        return ""
    found = "unknown" if capability is None else f"{capability[0]}.{capability[1]}"
    return (
        "mpsstatic asks for static partitioning, which needs CUDA 13.1 and compute capability 8.0 "
        f"(Ampere) or newer; found CUDA {quote(cuda) if version is None else cuda} and compute "
        f"capability {found}"
    )
