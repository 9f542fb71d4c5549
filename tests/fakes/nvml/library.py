"""The stand-in for NVIDIA's library: compiled once per state of its sources, outside the tree."""

import fcntl
import hashlib
import os
import subprocess
from pathlib import Path
from typing import Final

from tests.cluster.controlplane.build import cache_folder

SONAME: Final = "libnvidia-ml.so.1"
SOURCE: Final = Path(__file__).parent / "source"
_FLAGS: Final = (
    *("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"),
    *("-fPIC", "-shared", "-fvisibility=hidden", "-pthread", f"-Wl,-soname,{SONAME}"),
)


def library() -> Path:
    """Return the shared object; its folder is fit for LD_LIBRARY_PATH, and holds nothing else."""
    sources = sorted(SOURCE.iterdir())
    compiler = os.environ.get("CC", "cc")
    digest = hashlib.sha256("\0".join((compiler, *_FLAGS)).encode())
    for source in sources:
        digest.update(f"{source.name}\0".encode() + source.read_bytes())
    folder = cache_folder() / "nvml"
    target = folder / digest.hexdigest()[:12] / SONAME
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            unfinished = folder / f"unfinished-{os.getpid()}"
            files = [source for source in sources if source.suffix == ".c"]
            subprocess.run([compiler, *_FLAGS, "-o", unfinished, *files], check=True, timeout=120)
            unfinished.rename(target)
    return target
