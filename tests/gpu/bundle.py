"""Makes a folder with which a machine without network can run the checks: ``make gpu-bundle``.

It holds our code, the few packages that the checks need, for several versions of Python, and the
builds of the interception library that ``VGPU_HAMI_CORE`` names. Python loads an extension module
by the version in its name, so the packages of all versions lie in one folder.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.gpu.builds import VARIABLE, builds_in, has_seeded_layout

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("msgspec", "nvidia-ml-py", "pyyaml", "structlog")
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
LARGEST: Final = 64  # MiB
_SOURCES: Final = ("agent", "allocator", "kube", "tests/gpu")
_PLATFORMS: Final = ("2_17", "2_28", "2_34")  # versions of glibc that wheels are made for
_MIB: Final = 1 << 20


def main() -> None:
    """Make the folder that the first argument names; what it held before is removed."""
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    named = os.environ.get(VARIABLE)
    builds = [b for b in builds_in(Path(named) if named else None) if has_seeded_layout(b)]
    copy_files(folder, builds)
    for version in PYTHONS:
        _install(version, folder / "site")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / _MIB
    if size > LARGEST:
        sys.exit(f"{folder} has {size:.1f} MiB, expected at most {LARGEST}")
    print(f"{folder}: {size:.1f} MiB, {len(builds)} builds of libvgpu.so")
    print(f"copy it to a machine with a GPU, and run: python3 {folder.name} --json gpu.json")


def copy_files(folder: Path, builds: Sequence[Path]) -> None:
    """Make *folder* of all but the packages: our code, and *builds* of the library."""
    ignored = shutil.ignore_patterns("__pycache__", "*.proto")
    for source in _SOURCES:
        shutil.copytree(ROOT / source, folder / source, ignore=ignored)
    (folder / "tests/__init__.py").touch()
    shutil.copyfile(ROOT / "tests/gpu/carried.py", folder / "__main__.py")
    (folder / "libvgpu").mkdir()
    for build in builds:
        shutil.copyfile(build, folder / "libvgpu" / build.name)


def requirements_of(lock: str) -> str:
    """Return the lines of a lock file about PACKAGES, with their hashes."""
    return "".join(block for name, block in _blocks(lock) if name in PACKAGES)


def _blocks(lock: str) -> Iterator[tuple[str, str]]:
    for block in re.split(r"(?m)^(?=\S)", lock):
        yield block.partition("==")[0], block


def _install(version: str, site: Path) -> None:
    """Add the packages for a version of Python to the folder *site*."""
    with TemporaryDirectory() as folder:
        requirements, target = Path(folder, "requirements.txt"), Path(folder, "site")
        requirements.write_text(requirements_of((ROOT / "requirements/run.txt").read_text()))
        machine = platform.machine()
        platforms = [f"--platform=manylinux_{glibc}_{machine}" for glibc in _PLATFORMS]
        platforms.append(f"--platform=manylinux2014_{machine}")
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--no-compile", "--only-binary=:all:", "--require-hashes"),
            *("--implementation=cp", f"--python-version={version}", *platforms),
            *(f"--target={target}", f"--requirement={requirements}"),
        ]
        subprocess.run(command, check=True)
        shutil.copytree(target, site, dirs_exist_ok=True)


if __name__ == "__main__":
    main()
