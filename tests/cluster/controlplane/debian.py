"""How a program of Debian's is had without being installed: its package is unpacked in the cache.

What people run today is older than what is built here; a package of their distribution is it.
"""

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.cluster.controlplane.build import cache_folder
from tests.cluster.controlplane.toolchain import BuildError, Say


def unpacked(package: str, say: Say) -> Path:
    """Return a folder with the files of a *package*, of the release that apt offers."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise BuildError(f"{package} is a package of Debian's, and this is another system")
    folder = cache_folder() / "debian"
    kept = sorted(folder.glob(f"{package}-*"))
    if kept:
        return kept[-1]
    folder.mkdir(parents=True, exist_ok=True)
    say(f"fetching Debian's package {package}")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        archive = _fetched(package, Path(scratch))
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:12]
        target = folder / f"{package}-{archive.name.split('_')[1].replace('%3a', ':')}-{digest}"
        _run("dpkg-deb", "--extract", str(archive), f"{scratch}/files", folder=Path(scratch))
        try:
            Path(scratch, "files").rename(target)
        except OSError:
            if not target.exists():  # another process was quicker
                raise
    return target


def _fetched(package: str, folder: Path) -> Path:
    try:
        _run("apt-get", "download", package, folder=folder)
    except BuildError:  # its lists are old, or not there yet
        _run("apt-get", "update", folder=folder)
        _run("apt-get", "download", package, folder=folder)
    return next(folder.glob("*.deb"))


def _run(*command: str, folder: Path) -> None:
    answer = subprocess.run(
        command, capture_output=True, check=False, cwd=folder, text=True, timeout=300
    )
    if answer.returncode:
        raise BuildError(f"{' '.join(command)}: {answer.stderr.strip()[-500:]}")
