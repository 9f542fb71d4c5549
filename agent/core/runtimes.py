"""Runtimes: what a node's container runtime can do, by the version that kubelet tells of it."""

import re
from typing import Final

_VERSION: Final = re.compile(r"(containerd|cri-o)://v?(\d+)\.(\d+)", re.ASCII)
# The first releases that read CDI documents unless told otherwise (platform.md §3.8).
_FIRST: Final = {"containerd": (2, 0), "cri-o": (1, 23)}


def reads_cdi(runtime: str) -> bool:
    """Say whether the runtime of ``nodeInfo.containerRuntimeVersion`` reads CDI by default."""
    found = _VERSION.match(runtime)
    return found is not None and (int(found[2]), int(found[3])) >= _FIRST[found[1]]
