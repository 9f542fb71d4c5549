"""Capability devices: the files by which a container reaches one MIG instance, made on the host.

The driver does not create them, and a program in a container creates them in its own /dev, where no
other container finds them. So they are created here, below the root of the host. Device files for
graphics come from the kernel and are only looked up.
"""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from agent.share import DeviceNode

_MIG_MINORS: Final = "proc/driver/nvidia-caps/mig-minors"
_DEVICE_MAJORS: Final = "proc/devices"
_FOLDER_MODE: Final = 0o755
_ACCESS: Final = re.compile(r"(gpu\d+/gi\d+/(?:ci\d+/)?access) (\d+)", re.ASCII)
_MAJOR: Final = re.compile(r" *(\d+) (\S+)", re.ASCII)
_BLOCK_HEADER: Final = "Block devices:"
_PCI_DEVICES: Final = "sys/bus/pci/devices"
_DRM: Final = re.compile(r"card\d+|renderD\d+", re.ASCII)
_DEVICE_NUMBERS: Final = re.compile(r"(\d+):(\d+)", re.ASCII)
_FRONTEND: Final = ("nvidia", "nvidia-frontend")  # old drivers call it the latter
_UVM: Final = ("nvidia-uvm",)
_CAPS: Final = ("nvidia-caps",)
_CONTROL_MINOR: Final = 255


class CapabilityError(Exception):
    """A device file that a container needs is missing and cannot be created."""


class DeviceFiles(Protocol):
    """Device files on the host, which only root can create."""

    def numbers(self, path: Path) -> tuple[int, int] | None:
        """Return major and minor of the device *path*, ``None`` if it is none; raises OSError."""

    def make(self, path: Path, node: DeviceNode, mode: int) -> None:
        """Create a character device with the numbers of *node*; raises OSError."""


class HostFiles:
    """Real device files; needs CAP_MKNOD."""

    def numbers(self, path: Path) -> tuple[int, int] | None:
        """Return major and minor of a character device."""
        try:
            status = path.lstat()
        except FileNotFoundError:
            return None
        if not stat.S_ISCHR(status.st_mode):
            return None
        return os.major(status.st_rdev), os.minor(status.st_rdev)

    def make(self, path: Path, node: DeviceNode, mode: int) -> None:
        """Create a character device, which replaces any file of that name; ignores the umask."""
        path.parent.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mknod(path, stat.S_IFCHR | mode, os.makedev(node.major, node.minor))
        path.chmod(mode)


@dataclass(frozen=True, slots=True)
class _DeviceFile:
    """A device file that is needed below /dev."""

    name: str
    drivers: tuple[str, ...]  # names that /proc/devices may have for the driver that serves it
    minor: int
    mode: int = 0o666


class Capabilities:
    """Finds and makes the device files of MIG instances below *root*, the host's ``/``."""

    def __init__(self, root: Path, *, files: DeviceFiles | None = None) -> None:
        """Touch nothing yet."""
        self._root = root
        self._files = HostFiles() if files is None else files
        self._minors: Mapping[str, int] = {}  # by capability, of all possible instances; fixed

    def nodes(self, minor: int, instance: int, compute: int) -> tuple[DeviceNode, ...]:
        """Return the files of one compute instance, and create those that are missing.

        *minor* is that of the GPU, *instance* and *compute* are the driver's numbers. Raises
        ``CapabilityError`` with a text that names the file.
        """
        majors = _majors(self._read(_DEVICE_MAJORS))
        gi = f"gpu{minor}/gi{instance}"
        device_files = (
            _DeviceFile("nvidiactl", _FRONTEND, _CONTROL_MINOR),
            _DeviceFile("nvidia-uvm", _UVM, 0),
            _DeviceFile("nvidia-uvm-tools", _UVM, 1),
            _DeviceFile(f"nvidia{minor}", _FRONTEND, minor),
            self._capability(f"{gi}/access"),
            self._capability(f"{gi}/ci{compute}/access"),
        )
        return tuple(self._ensure_device(device_file, majors) for device_file in device_files)

    def graphics(self, pci: str) -> tuple[DeviceNode, ...]:
        """Return the DRM files of the GPU at *pci*; none where nvidia-drm is not loaded.

        They are looked up by PCI address in sysfs, because their numbers follow no GPU index.
        """
        device_nodes = (
            self._drm_node(path)
            for path in sorted((self._root / _PCI_DEVICES / pci / "drm").glob("*"))
        )
        return tuple(node for node in device_nodes if node is not None)

    @staticmethod
    def _drm_node(path: Path) -> DeviceNode | None:
        try:
            numbers = _DEVICE_NUMBERS.fullmatch((path / "dev").read_text(encoding="ascii").strip())
        except (OSError, UnicodeDecodeError):
            return None
        if numbers is None or not _DRM.fullmatch(path.name):
            return None
        return DeviceNode(f"/dev/dri/{path.name}", int(numbers[1]), int(numbers[2]))

    def _capability(self, access: str) -> _DeviceFile:
        if access not in self._minors:
            self._minors = dict(_minors(self._read(_MIG_MINORS)))
        number = self._minors.get(access)
        if number is None:
            raise CapabilityError(f"/{_MIG_MINORS} has no line for {access}")
        return _DeviceFile(f"nvidia-caps/nvidia-cap{number}", _CAPS, number, 0o444)

    def _ensure_device(self, device_file: _DeviceFile, majors: Mapping[str, int]) -> DeviceNode:
        major = next((majors[name] for name in device_file.drivers if name in majors), None)
        if major is None:
            what = f"/{_DEVICE_MAJORS} has no {device_file.drivers[0]}; load its kernel module"
            raise CapabilityError(f"/dev/{device_file.name} is missing: {what}")
        node = DeviceNode(f"/dev/{device_file.name}", major, device_file.minor)
        path = self._root / "dev" / device_file.name
        try:
            if self._files.numbers(path) != (major, device_file.minor):
                self._files.make(path, node, device_file.mode)
        except OSError as error:
            raise CapabilityError(f"{node.path} cannot be created: {error.strerror}") from error
        return node

    def _read(self, name: str) -> str:
        try:
            return (self._root / name).read_text(encoding="ascii", errors="replace")
        except OSError as error:
            raise CapabilityError(f"/{name} cannot be read: {error.strerror}") from error


class NoFiles:
    """Stands in for :class:`Capabilities` where GPUs are simulated: they have no files."""

    def nodes(self, minor: int, instance: int, compute: int) -> tuple[DeviceNode, ...]:  # noqa: ARG002
        """Return nothing to be mounted."""
        return ()

    def graphics(self, pci: str) -> tuple[DeviceNode, ...]:  # noqa: ARG002
        """Return nothing to be mounted."""
        return ()


def _minors(text: str) -> Mapping[str, int]:
    lines = map(_ACCESS.fullmatch, text.splitlines())
    return {line[1]: int(line[2]) for line in lines if line is not None}


def _majors(text: str) -> Mapping[str, int]:
    """Return the major numbers of character devices; block devices have numbers of their own."""
    lines = map(_MAJOR.fullmatch, text.partition(_BLOCK_HEADER)[0].splitlines())
    return {line[2]: int(line[1]) for line in lines if line is not None}
