"""Installing the interception library on the node: from the image, or a stand-in for simulation."""

import hashlib
import os
import re
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.region.layout import library_problem
from allocator.catalog.injection import LIBRARY_DIRECTORY, PRELOAD_LIBRARY, PRELOAD_NOTHING

SOURCE: Final = Path("/opt/vgpu/libvgpu.so")  # where an image has it that brings one
NAME: Final = "libvgpu.so"
LARGEST: Final = 32 * 1024 * 1024  # bytes; the library has less than one MiB, or four to debug it
_PREFIX: Final = 16  # characters of the SHA-256 in a file's name
_INSTALLED_BY_AGENT: Final = re.compile(
    rf"libvgpu\.so\.(?:[0-9a-f]{{{_PREFIX}}}|[0-9a-f]+\.unfinished)"
)


@dataclass(frozen=True, slots=True)
class Installed:
    """The library is installed on the node."""

    name: str  # of its file


@dataclass(frozen=True, slots=True)
class Absent:
    """The library cannot be installed, so that containers cannot be limited."""

    why: str


def install(folder: Path, source: Path = SOURCE) -> Installed | Absent:
    """Install *source* in *folder*, the node's ``hostRoot``; repeating it changes nothing."""
    try:
        content = read_library(source)
    except OSError as error:
        return Absent(f"the agent's image has no {source}: {error.strerror}")
    if problem := library_problem(content):
        return Absent(f"{source} of the agent's image cannot be used: {problem}")
    name = f"{NAME}.{hashlib.sha256(content).hexdigest()[:_PREFIX]}"
    preload = f"{LIBRARY_DIRECTORY}/{NAME}\n".encode()
    try:
        folder.mkdir(0o755, parents=True, exist_ok=True)
        _write(folder / name, content)
        _link(folder / name, folder / NAME)
        _write(folder / PRELOAD_LIBRARY, preload)
        _write(folder / PRELOAD_NOTHING, b"")
    except OSError as error:
        return Absent(f"{folder} cannot be written: {error.strerror}")
    return Installed(name)


def read_library(path: Path) -> bytes:
    """Return the content of a library; nothing of a file that is no regular one or too large.

    Raises OSError.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        return b""
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    return content if len(content) <= LARGEST else b""


def missing_reason(folder: Path, installed: Installed) -> str:
    """Return why containers would start without the library by now; empty where they would not.

    A container runtime makes an empty folder of what it is to mount and does not find, which the
    loader passes over with a warning.
    """
    with suppress(OSError):
        is_installed = (folder / NAME).samefile(folder / installed.name)
        if is_installed and (folder / NAME).is_file() and (folder / PRELOAD_LIBRARY).is_file():
            return ""
    return f"{folder}/{NAME} is missing or was replaced: restart the agent"


def sweep(folder: Path, installed: Installed) -> tuple[str, ...]:
    """Remove libraries that earlier agents installed, and return their names.

    To be called while no container of the library has an entry on this node: one that restarts
    goes on with what it started with. Libraries that others installed are theirs.
    """
    removed = []
    for path in sorted(folder.glob(f"{NAME}.*")):
        if path.name != installed.name and _INSTALLED_BY_AGENT.fullmatch(path.name):
            with suppress(OSError):
                path.unlink()
                removed.append(path.name)
    return tuple(removed)


def _write(path: Path, content: bytes) -> None:
    """Make *path* a file of *content*, atomically; a file with this content is kept."""
    with suppress(FileNotFoundError):
        if not path.is_symlink() and path.read_bytes() == content:
            return
    unfinished = _unfinished_path(path)
    try:
        with unfinished.open("xb") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def _link(file: Path, link: Path) -> None:
    """Make *link* a hard link of *file*, atomically."""
    with suppress(FileNotFoundError):
        if not link.is_symlink() and link.samefile(file):
            return
    unfinished = _unfinished_path(link)
    unfinished.hardlink_to(file)
    unfinished.replace(link)


def _unfinished_path(path: Path) -> Path:
    """Return a name next to *path* that :func:`sweep` removes if the agent is killed."""
    return path.with_name(f"{NAME}.{secrets.token_hex(4)}.unfinished")


FOLDER: Final = Path("/opt/vgpu")  # of our image
_PUBLISHED_IN: Final = "lib/nvidia"  # where in it the image of its authors is copied to
_SIMULATED_CONTENT: Final = b"simulated GPUs need no library\n"


def install_from(folder: Path, image: Path) -> Installed | Absent:
    """Install the library of the folder *image*, whose name may carry a version, in *folder*."""
    paths = [
        path
        for subfolder in ("", _PUBLISHED_IN)
        for path in sorted((image / subfolder).glob(f"{NAME}*"))
    ]
    return install(folder, paths[0] if paths else image / NAME)


def install_simulated(folder: Path) -> Installed | Absent:
    """Install files that containers can mount and that have no effect."""
    try:
        folder.mkdir(0o755, parents=True, exist_ok=True)
        for name, content in (
            (NAME, _SIMULATED_CONTENT),
            (PRELOAD_LIBRARY, b""),
            (PRELOAD_NOTHING, b""),
        ):
            path = folder / name
            if not path.is_file() or path.read_bytes() != content:
                unfinished = folder / f"{name}.unfinished"
                unfinished.write_bytes(content)
                unfinished.replace(path)
    except OSError as error:
        return Absent(f"{folder} cannot be written: {error.strerror}")
    return Installed(NAME)
