"""Our programs and libraries in C, compiled once per state of their sources, outside the tree."""

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.controlplane.build import cache_folder


def built(sources: Path, name: str, flags: Sequence[str]) -> Path:
    """Return what the system's compiler makes of the C files in folder *sources*, called *name*.

    It lies in a folder that holds nothing else.
    """
    files = sorted(path for path in sources.iterdir() if path.suffix in {".c", ".h"})
    compiler = os.environ.get("CC", "cc")
    digest = hashlib.sha256("\0".join((compiler, *flags)).encode())
    for file in files:
        digest.update(f"{file.name}\0".encode() + file.read_bytes())
    folder = cache_folder() / name
    target = folder / digest.hexdigest()[:12] / name
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            unfinished = folder / f"unfinished-{os.getpid()}"
            units = [file for file in files if file.suffix == ".c"]
            subprocess.run([compiler, *flags, "-o", unfinished, *units], check=True, timeout=120)
            unfinished.rename(target)
    return target
