"""Runtimes: whether the container runtime of a node reads the CDI documents that we write."""

import re
from collections.abc import Iterable
from typing import Final

from agent.core.nodefacts import Runtime

_VERSION: Final = re.compile(r"(containerd|cri-o)://v?(\d+)\.(\d+)", re.ASCII)
# The first releases that read CDI documents by default, and those that do if configured to.
_BY_DEFAULT: Final = {"containerd": (2, 0), "cri-o": (1, 23)}
_IF_TOLD: Final = (1, 7)


def containerd_major(runtime: str) -> int | None:
    """Return the first number of containerd's version; ``None`` for any other runtime."""
    found = _VERSION.match(runtime)
    return int(found[2]) if found is not None and found[1] == "containerd" else None


def reads_cdi(runtime: str, configured: Iterable[Runtime] = ()) -> bool:
    """Say whether the runtime of ``nodeInfo.containerRuntimeVersion`` reads our CDI documents.

    *configured* are the configurations of containerd that the node has, where it can be seen. All
    that say something must agree: what Allocate answers is dropped without a word by one that does
    not read CDI, and ends the pod where it reads it elsewhere.
    """
    found = _VERSION.match(runtime)
    if found is None:
        return False
    version = int(found[2]), int(found[3])
    default = version >= _BY_DEFAULT[found[1]]
    if found[1] != "containerd" or version < _IF_TOLD:
        return default
    sound = [one for one in configured if not one.problem]
    on = all(default if one.cdi is None else one.cdi for one in sound) if sound else default
    return on and all(one.finds_ours for one in sound)
