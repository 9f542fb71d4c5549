"""Opening, reading, writing and removing files that tenants own.

Links and files of another type are refused before they are opened. Directories to be removed are
renamed into a quarantine first, and emptied there level by level.
"""

import itertools
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from typing import Final

import structlog

from agent.region.decode import (
    IDENTIFYING_BYTES,
    Region,
    RegionBytes,
    Unreadable,
    layout_of,
    region_of,
    slots_taken,
)
from agent.region.layout import LAYOUTS, SEEDED, Layout
from agent.region.seed import Seed, Write
from allocator.catalog.injection import REGION_FILE

SUFFIX: Final = ".cache"
MOST_NAMES_OF_REGION: Final = 2  # of the agent's: its own, and one that the agent keeps
MOST_NAMES: Final = 64  # names looked at in one directory, and
MOST_OTHER_REGIONS: Final = 2  # further regions read
LARGEST_REGION: Final = max(layout.size for layout in LAYOUTS)  # bytes of a file, and
MOST_ON_DISK: Final = 4 * 1024 * 1024  # of its blocks, in whatever units a file system has them
_BLOCK: Final = 512  # bytes; the unit of st_blocks (stat(2))
_LONGEST_HEADER: Final = max(layout.slots for layout in LAYOUTS)
_READ_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_AMEND_FLAGS: Final = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class RefusedError(OSError):
    """The name is not that of a regular file without further names."""


@contextmanager
def directory(path: str, *, at: int | None = None) -> Iterator[int]:
    """Open a directory that is not a link; raises ``OSError``."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, dir_fd=at)
    try:
        yield fd
    finally:
        os.close(fd)


def amendable_file(name: str, at: int) -> AbstractContextManager[int]:
    """Open the region called *name* in directory *at* for reading and writing."""
    return _regular_file(name, at, _AMEND_FLAGS)


@contextmanager
def _regular_file(name: str, at: int, flags: int) -> Iterator[int]:
    fd = _open_regular(name, at, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def _open_regular(name: str, at: int | None, flags: int) -> int:
    """Open a regular file; its type and names are checked before it is opened for use."""
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        _check_regular(name, os.fstat(handle))
        return os.open(f"/proc/self/fd/{handle}", flags)
    finally:
        os.close(handle)


def _check_regular(name: str, status: os.stat_result) -> None:
    """Raise RefusedError if it is not a regular file, or has more names than it should."""
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(f"not a regular file: type {stat.filemode(status.st_mode)[0]!r}")
    most = MOST_NAMES_OF_REGION if name.rpartition("/")[2] == REGION_FILE else 1
    if not 0 < status.st_nlink <= most:
        raise RefusedError(f"the file has {status.st_nlink} names, expected at most {most}")


def file_names(at: int, *, most: int | None = None) -> tuple[str, ...]:
    """Return at *most* so many names in a directory, unordered."""
    with os.scandir(at) as entries:
        return tuple(entry.name for entry in islice(entries, most))


def region_names(at: int, first: str) -> tuple[str, ...]:
    """Return the names of regions in a directory: *first*, there or not, then some others."""
    names = sorted(file_names(at, most=MOST_NAMES))
    others = (name for name in names if name.endswith(SUFFIX) and name != first)
    return (first, *islice(others, MOST_OTHER_REGIONS))


class RegionReader:
    """A region file that is read repeatedly; opened anew when another file has its name."""

    def __init__(self) -> None:
        """Open nothing yet."""
        self.excess = 0  # bytes that the file had too many at the last reading
        self._fd: int | None = None
        self._file = (0, 0)
        self._windows: RegionBytes | None = None
        self._region: Region | Unreadable | None = None

    def read(self, path: str) -> Region | Unreadable:
        """Return the region in the file at *path*; the same object while it does not change.

        Of a file that has grown, what no region needs is cut off first.
        """
        self.excess = 0
        try:
            status = os.stat(path, follow_symlinks=False)  # noqa: PTH116 -- a Path costs more
            _check_regular(path, status)
            self.excess = excess_of(status)
            if self.excess:
                _cut(path)
            if self._fd is None or self._file != (status.st_dev, status.st_ino):
                self.close()
                self._fd = _open_regular(path, None, _READ_FLAGS)
                self._file = status.st_dev, status.st_ino
            return self._decode(self._fd, os.fstat(self._fd).st_size)
        except FileNotFoundError:
            self.close()
            return Unreadable("no file", missing=True)
        except OSError as error:
            self.close()
            return Unreadable(str(error.args[0] if error.errno is None else error.strerror))

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd = self._windows = self._region = None

    def _decode(self, fd: int, size: int) -> Region | Unreadable:
        content = _read_windows(fd, size)
        if isinstance(content, Unreadable):
            return content
        layout, windows = content
        if self._region is None or windows != self._windows:
            self._windows, self._region = windows, region_of(layout, windows)
        return self._region


def excess_of(status: os.stat_result) -> int:
    """Return the bytes that a file has, or takes of the disk, beyond what any region needs.

    A process of any user may append to a region, leave holes in it, and reserve blocks behind it.
    """
    return max(0, status.st_size - LARGEST_REGION, status.st_blocks * _BLOCK - MOST_ON_DISK)


def _cut(path: str) -> None:
    """Cut a file to what its layout needs; no process has more of it in memory.

    That also frees blocks that were reserved behind its end (fallocate(2)).
    """
    fd = _open_regular(path, None, _AMEND_FLAGS)
    try:
        head = os.pread(fd, IDENTIFYING_BYTES, 0)
        seeded = isinstance(layout_of(SEEDED.size, head), Layout)
        os.ftruncate(fd, SEEDED.size if seeded else LARGEST_REGION)
    finally:
        os.close(fd)


def read(name: str, at: int) -> Region | Unreadable:
    """Read the region called *name* in directory *at* once."""
    try:
        with _regular_file(name, at, _READ_FLAGS) as fd:
            content = _read_windows(fd, os.fstat(fd).st_size)
    except OSError as error:
        return Unreadable(str(error))
    return content if isinstance(content, Unreadable) else region_of(*content)


def _read_windows(fd: int, size: int) -> tuple[Layout, RegionBytes] | Unreadable:
    """Read the parts of an open file that its layout needs; beginning and size identify it."""
    header = os.pread(fd, _LONGEST_HEADER, 0)
    layout = layout_of(size, header[:IDENTIFYING_BYTES])
    if isinstance(layout, Unreadable):
        return layout
    tail = os.pread(fd, layout.size - layout.process_count, layout.process_count)
    taken = slots_taken(layout, tail)
    if isinstance(taken, Unreadable):
        return taken
    slots = os.pread(fd, taken * layout.slot.size, layout.slots) if taken else b""
    return layout, RegionBytes(header=header[: layout.slots], slots=slots, tail=tail)


def amend(name: str, at: int, *, layout: Layout, writes: Sequence[Write]) -> bool:
    """Write into the region called *name*, if it still is one of *layout*; say whether it was."""
    try:
        with amendable_file(name, at) as fd:
            if layout_of(os.fstat(fd).st_size, os.pread(fd, IDENTIFYING_BYTES, 0)) is not layout:
                return False
            for write in writes:
                before = os.pread(fd, len(write.after), write.at - len(write.after))
                if before == write.after:
                    os.pwrite(fd, write.data, write.at)
    except OSError:
        return False
    return True


def create(name: str, at: int, seed: Seed, *, mode: int) -> None:
    """Write *seed* into a new file; raises ``OSError``, ``FileExistsError`` where there is one."""
    fd = os.open(name, _CREATE_FLAGS, 0o600, dir_fd=at)
    try:
        os.ftruncate(fd, seed.size)
        for offset, data in seed.parts:
            os.pwrite(fd, data, offset)
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


MOST_REMOVED: Final = 10_000  # names removed at a time; a tenant may leave any number
_QUARANTINE_PREFIX: Final = ".buried-"
log = structlog.get_logger(__name__)


def quarantine(name: str, *, at: int, quarantine_fd: int) -> None:
    """Move a directory of *at* into the quarantine, to be emptied; remove a file."""
    with suppress(FileNotFoundError):
        try:
            os.rename(
                name,
                f"{_QUARANTINE_PREFIX}{secrets.token_hex(8)}/",
                src_dir_fd=at,
                dst_dir_fd=quarantine_fd,
            )
        except NotADirectoryError:
            os.unlink(name, dir_fd=at)


def purge_quarantine(quarantine_fd: int) -> None:
    """Empty the quarantine level by level: a tree may be deeper than any stack."""
    budget = itertools.count()
    stuck: set[str] = set()
    while folders := [
        n for n in file_names(quarantine_fd) if n.startswith(_QUARANTINE_PREFIX) and n not in stuck
    ]:
        for folder in folders:
            try:
                with directory(folder, at=quarantine_fd) as folder_fd:
                    for name in file_names(folder_fd, most=MOST_REMOVED):
                        if next(budget) >= MOST_REMOVED:
                            return
                        quarantine(name, at=folder_fd, quarantine_fd=quarantine_fd)
                os.rmdir(folder, dir_fd=quarantine_fd)
            except OSError as error:
                stuck.add(folder)
                log.warning("directory not removed", name=folder, why=str(error))
