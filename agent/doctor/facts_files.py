"""Reads facts from the files of a node, within bounds; changes nothing."""

import hashlib
import os
import re
import socket
import stat
import tomllib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from agent.doctor.checks import version_of
from agent.doctor.container_runtime import Table, imports_of, runtime_of
from agent.doctor.facts import ACCEPTS, Library, NodeFacts, Plugin, Runtime, ToolkitConfig
from agent.region.layout import library_problem
from agent.region.library_files import LARGEST, NAME
from allocator.catalog.injection import LIBRARY_DIRECTORY, PRELOAD_LIBRARY

_CONNECT_TIMEOUT: Final = 1.0  # seconds for a socket to accept a connection
_LARGEST_FILE: Final = 32 * 1024 * 1024  # bytes; the status of a package database is some
_MOST_IMPORTS: Final = 64
_MOST_PROCESSES: Final = 100_000
_CONFIGURATIONS: Final = (
    "etc/containerd/config.toml",
    "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "var/snap/microk8s/current/args/containerd.toml",
)
# As packages and the GPU Operator install it.
_TOOLKIT_CONFIGURATIONS: Final = (
    "etc/nvidia-container-runtime/config.toml",
    "usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml",
)
_LARGEST_TOOLKIT_CONFIG: Final = 64 * 1024  # bytes; NVIDIA's own has some hundred
# The node's root for a program that sees the node's processes, as the agent does.
_HOST_ROOT: Final = "proc/1/root"
_PACKAGES: Final = "var/lib/dpkg/status"
# The name of the toolkit's library ends in its version, however it was installed.
_TOOLKIT: Final = tuple(
    f"{folder}/libnvidia-container.so.1.*"
    for folder in ("usr/lib/*", "usr/lib64", "usr/lib", "usr/local/nvidia/toolkit")
)
_MINORS: Final = "proc/driver/nvidia-caps/mig-minors"
_NVIDIA_OR_HAMI: Final = "NVIDIA's or HAMi's device plugin"
_VOLCANO: Final = "Volcano's vGPU device plugin"
_GPUSHARE: Final = "the gpushare device plugin"
_SOCKETS: Final = (
    (re.compile(r"nvidia-(?:vgpu-.*|gpu-memory|gpu-cores)\.sock"), _VOLCANO),
    (re.compile(r"nvidia-.*\.sock"), _NVIDIA_OR_HAMI),
    (re.compile(r"aliyungpushare\.sock"), _GPUSHARE),
)
_PROGRAMS: Final = {
    "nvidia-device-plugin": _NVIDIA_OR_HAMI,
    "volcano-vgpu-device-plugin": _VOLCANO,
    "gpushare-device-plugin-v2": _GPUSHARE,
}


def facts_of(root: Path, kubelet: Path, host_root: Path) -> NodeFacts:
    """Return the facts from files below *root*, the node's ``/``, *kubelet*'s folder and ours.

    The fields that come from the driver are left empty.
    """
    plugins = kubelet / "device-plugins"
    return NodeFacts(
        toolkit=_toolkit(root),
        toolkit_configs=toolkit_configs(root),
        runtimes=configurations(root),
        plugins=(*_sockets(plugins), *_programs(root / "proc")),
        registration=_is_socket(plugins / "kubelet.sock"),
        podresources=_is_socket(kubelet / "pod-resources/kubelet.sock"),
        library=_library(host_root),
        files=frozenset(path.name for path in _list_folder(root / "dev") if "nvidia" in path.name),
        capabilities=bool(_read(root / _MINORS)),
    )


def _toolkit(root: Path) -> str | None:
    """Return the newest version of the container toolkit that is installed."""
    versions = [
        path.name.removeprefix("libnvidia-container.so.")
        for pattern in _TOOLKIT
        for path in root.glob(pattern)
    ]
    for paragraph in (_read(root / _PACKAGES) or b"").decode(errors="replace").split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in paragraph.splitlines())
        installed = fields.get("Status", "").endswith(" installed")
        if fields.get("Package") == "nvidia-container-toolkit" and installed:
            versions.append(fields.get("Version", ""))
    return max(versions, key=version_of, default=None)


def toolkit_configs(root: Path) -> tuple[ToolkitConfig, ...]:
    """Return the configurations of the container toolkit that exist below *root*, the node's ``/``.

    Without any there, those below its ``proc/1/root``.
    """
    for base in (root, root / _HOST_ROOT):
        names = [name for name in _TOOLKIT_CONFIGURATIONS if os.path.lexists(base / name)]
        if names:
            return tuple(_toolkit_config(base, name) for name in names)
    return ()


def _toolkit_config(base: Path, name: str) -> ToolkitConfig:
    """Read one configuration; a link would lead out of a root that is not ``/``."""
    path, shown = base / name, f"/{name}"
    below = (path, *list(path.parents)[: name.count("/")])
    if base != Path("/") and any(part.is_symlink() for part in below):
        return ToolkitConfig(path=shown, problem="it is a link, which is not followed")
    content = _read(path, _LARGEST_TOOLKIT_CONFIG)
    if content is None:
        most = _LARGEST_TOOLKIT_CONFIG // 1024
        return ToolkitConfig(path=shown, problem=f"it is no file of up to {most} KiB")
    try:
        accepts = _table_in(content).get(ACCEPTS, True)
    except ValueError as error:
        return ToolkitConfig(path=shown, problem=f"it is not TOML: {error}")
    if not isinstance(accepts, bool):
        return ToolkitConfig(path=shown, problem=f"{ACCEPTS} is neither true nor false")
    return ToolkitConfig(path=shown, accepts=accepts)


def _table_in(content: bytes) -> Table:
    """Return what a TOML document says; raises ValueError, also where it is nested too deeply."""
    try:
        return tomllib.loads(content.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def configurations(root: Path, *, major: int | None = None) -> tuple[Runtime, ...]:
    """Return the node's configurations of containerd, which has the version *major*.

    They are searched for below *root*, the node's ``/``, and without any there below its
    ``proc/1/root``.
    """
    runtimes: list[Runtime | None] = []
    for base in (root, root / _HOST_ROOT):
        names = [name for name in _CONFIGURATIONS if _read(base / name) is not None]
        runtimes += (_configuration(base, name, major) for name in names)
        if names:
            break
    return tuple(runtime for runtime in runtimes if runtime is not None)


def _configuration(root: Path, name: str, major: int | None) -> Runtime | None:
    try:
        return runtime_of(f"/{name}", _documents(root, root / name), major=major)
    except ValueError as error:
        return Runtime(path=f"/{name}", problem=f"it or a file it imports is not TOML: {error}")


def _documents(root: Path, file: Path) -> list[Table]:
    """Return a configuration and what it imports, and what that imports, each file once."""
    pending, loaded = [file], dict[Path, Table]()
    while pending and len(loaded) <= _MOST_IMPORTS:
        path = pending.pop(0)
        if path not in loaded:
            loaded[path] = _table_in(_read(path) or b"")
            pending += _import_paths(root, path.parent, imports_of(loaded[path]))
    return list(loaded.values())


def _import_paths(root: Path, folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Return the files that patterns of the node name, seen from *root*."""
    files: list[Path] = []
    for pattern in patterns:
        base = root if pattern.startswith("/") else folder
        try:
            files += sorted(islice(base.glob(pattern.lstrip("/")), _MOST_IMPORTS))
        except (ValueError, OSError, RecursionError):  # no pattern, a name too long, far too deep
            continue
    return files[:_MOST_IMPORTS]


def _sockets(folder: Path) -> Iterator[Plugin]:
    for path in sorted(_list_folder(folder)):
        name = next((name for pattern, name in _SOCKETS if pattern.fullmatch(path.name)), None)
        if name is not None and _is_socket(path):
            yield Plugin(name, f"socket {path.name}", _listens(path))


def _programs(proc: Path) -> Iterator[Plugin]:
    for folder in islice(_list_folder(proc), _MOST_PROCESSES):
        if not folder.name.isdecimal():
            continue
        command = (_read(folder / "cmdline") or b"").split(b"\0")[0].decode(errors="replace")
        name = _PROGRAMS.get(command.rpartition("/")[2])
        if name is not None:
            yield Plugin(name, f"process {folder.name}", running=True)


def _library(folder: Path) -> Library | None:
    content = _read(folder / NAME, LARGEST)
    if content is None:
        return None
    preload = (_read(folder / PRELOAD_LIBRARY) or b"").decode(errors="replace").split()
    return Library(
        sha256=hashlib.sha256(content).hexdigest(),
        problem=library_problem(content),
        preloaded=f"{LIBRARY_DIRECTORY}/{NAME}" in preload,
    )


def _listens(path: Path) -> bool:
    """Say whether a program accepts connections there; sends nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT_TIMEOUT)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


def _list_folder(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _read(path: Path, most: int = _LARGEST_FILE) -> bytes | None:
    """Return a regular file's content; ``None`` without one, or if it has over *most* bytes."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError:
        return None
    return content if len(content) <= most else None
