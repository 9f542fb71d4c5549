"""A container's mounts without a container: run as a script, with Python's own library only.

``room.py SPEC COMMAND...`` becomes COMMAND in a mount namespace of its own, whose root shows all
that this machine has, but for what SPEC (JSON) mounts and hides: ``mounts`` is a list of
``{host, path, read_only}``, ``hidden`` a list of paths, ``base`` an empty folder, ``env`` the whole
environment. Nothing outside the namespace changes, and no file is left behind. Without root's
rights it takes a user namespace too.
"""

import ctypes
import json
import os
import stat
import sys
from pathlib import Path

_NEW_MOUNTS, _NEW_USERS = 0x20000, 0x10000000  # CLONE_NEWNS, CLONE_NEWUSER
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 1 << 18  # MS_*
_REMOUNT, _READ_ONLY = 0x20, 0x1
_LIBC = ctypes.CDLL(None, use_errno=True)
Places = list[tuple[str, ...]]  # paths below a folder, as their parts


def main() -> None:
    """Make the room and become the command."""
    spec, command = json.loads(sys.argv[1]), sys.argv[2:]
    _enter_namespaces()
    root = Path(spec["base"])
    _mount("tmpfs", root, kind="tmpfs", data="mode=755")
    paths = [mount["path"] for mount in spec["mounts"]] + spec["hidden"]
    _mirror(Path("/"), root, [Path(path).parts[1:] for path in [*paths, root]])
    for mount in spec["mounts"]:
        _show(Path(mount["host"]), root.joinpath(*Path(mount["path"]).parts[1:]))
        if mount["read_only"]:
            _make_read_only(root.joinpath(*Path(mount["path"]).parts[1:]))
    os.chroot(root)
    os.chdir("/")
    os.execve(command[0], command, spec["env"])  # noqa: S606 -- the command is ours


def _enter_namespaces() -> None:
    user, group = os.getuid(), os.getgid()
    _check(_LIBC.unshare(_NEW_MOUNTS if user == 0 else _NEW_MOUNTS | _NEW_USERS), "unshare")
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _mount("none", Path("/"), flags=_RECURSIVE | _PRIVATE)


def _mirror(source: Path, target: Path, places: Places) -> None:
    """Show in *target* what is in *source*, but nothing at *places*; their folders are made."""
    for entry in os.scandir(source):
        below = [place[1:] for place in places if place[0] == entry.name]
        if () in below:
            continue
        try:
            if below and entry.is_dir():
                _make_folder(Path(entry.path), target / entry.name)
                _mirror(Path(entry.path), target / entry.name, below)
            elif entry.is_symlink():
                (target / entry.name).symlink_to(Path(entry.path).readlink())
            else:
                _show(Path(entry.path), target / entry.name)
        except FileNotFoundError:
            continue  # it was removed meanwhile
    for place in places:
        if len(place) > 1:
            target.joinpath(*place[:-1]).mkdir(parents=True, exist_ok=True)


def _make_folder(source: Path, target: Path) -> None:
    target.mkdir()
    target.chmod(stat.S_IMODE(source.stat().st_mode))  # /tmp is sticky and everybody's


def _show(source: Path, target: Path) -> None:
    """Mount *source*, a file or a folder with all that is mounted in it, at *target*."""
    if source.is_dir():
        target.mkdir(exist_ok=True)
    else:
        target.touch()
    _mount(str(source), target, flags=_BIND | _RECURSIVE)


def _make_read_only(target: Path) -> None:
    flags = os.statvfs(target).f_flag & 0xF  # ST_NOSUID and so on are the same bits as MS_NOSUID
    _mount("none", target, flags=_BIND | _REMOUNT | _READ_ONLY | flags)


def _mount(
    source: str, target: Path, *, kind: str = "none", flags: int = 0, data: str = ""
) -> None:
    arguments = (source.encode(), bytes(target), kind.encode(), flags, data.encode())
    _check(_LIBC.mount(*arguments), f"mount {target}")


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
