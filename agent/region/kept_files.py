"""Kept regions: a second name of each region where its container does not see it.

A container's root may delete the region or put another file in its place. Processes that run go on
with the file that they have in memory; those that start later would count in another one, each
group up to the whole limit. So the file itself gets its name back.
"""

import os
import stat
from contextlib import suppress
from typing import Final

from agent.region import safe_files
from allocator.catalog.injection import REGION_FILE

KEPT_SUFFIX: Final = ".kept"
REPLACED: Final = "replaced.cache"  # the name that a region of the tenant's gets which was in place
_TRIES: Final = 3


def keep(directory: str, directory_fd: int, *, base_fd: int) -> None:
    """Give the region in a container's *directory* its second name.

    Where the file system has no second names, nothing is kept.
    """
    kept = f"{directory}{KEPT_SUFFIX}"
    with suppress(OSError):
        os.link(
            REGION_FILE,
            kept,
            src_dir_fd=directory_fd,
            dst_dir_fd=base_fd,
            follow_symlinks=False,
        )


def forget(directory: str, base_fd: int) -> None:
    """Take the second name from the region of a container that starts with a new one."""
    with suppress(FileNotFoundError):
        os.unlink(f"{directory}{KEPT_SUFFIX}", dir_fd=base_fd)


def is_in_place(base: str, directory: str) -> bool:
    """Say whether a container has the region that is kept, or never had one."""
    try:
        found = os.lstat(f"{base}/{directory}/{REGION_FILE}")  # a Path costs more
    except OSError:
        return not os.path.lexists(f"{base}/{directory}{KEPT_SUFFIX}")
    try:
        kept = os.lstat(f"{base}/{directory}{KEPT_SUFFIX}")
    except OSError:
        return False
    return os.path.samestat(found, kept) and found.st_nlink <= safe_files.MOST_NAMES_OF_REGION


def put_back(directory: str, base_fd: int) -> str:
    """Put a container's region back in its place; return what was wrong, empty if nothing.

    A region without a second name is given one. Raises ``OSError``.
    """
    with safe_files.directory(directory, at=base_fd) as directory_fd:
        kept = _status(f"{directory}{KEPT_SUFFIX}", base_fd)
        found = _status(REGION_FILE, directory_fd)
        if kept is None:
            if found is not None and stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
                keep(directory, directory_fd, base_fd=base_fd)
            return ""
        if found is not None and os.path.samestat(found, kept):
            return "had another name" if _remove_other_names(directory_fd, kept) else ""
        for _ in range(_TRIES):
            _make_room(directory_fd, base_fd)
            with suppress(FileExistsError):  # a process of the container was faster
                os.link(
                    f"{directory}{KEPT_SUFFIX}",
                    REGION_FILE,
                    src_dir_fd=base_fd,
                    dst_dir_fd=directory_fd,
                    follow_symlinks=False,
                )
                break
        _remove_other_names(directory_fd, kept)
        return "was deleted" if found is None else "was replaced"


def _make_room(directory_fd: int, base_fd: int) -> None:
    """Rename what is in the region's place: a region there may be in use. Anything else goes."""
    found = _status(REGION_FILE, directory_fd)
    if found is None:
        return
    if not stat.S_ISREG(found.st_mode):
        safe_files.quarantine(REGION_FILE, at=directory_fd, quarantine_fd=base_fd)
        return
    safe_files.quarantine(REPLACED, at=directory_fd, quarantine_fd=base_fd)
    with suppress(FileNotFoundError):
        os.rename(REGION_FILE, REPLACED, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)


def _remove_other_names(directory_fd: int, kept: os.stat_result) -> bool:
    """Remove further names of a region from its directory; say whether there were any."""
    removed = False
    for name in safe_files.file_names(directory_fd, most=safe_files.MOST_NAMES):
        found = _status(name, directory_fd)
        if name != REGION_FILE and found is not None and os.path.samestat(found, kept):
            os.unlink(name, dir_fd=directory_fd)
            removed = True
    return removed


def _status(name: str, at: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
