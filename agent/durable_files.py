"""Files that outlast a crash: what was written is on disk before the caller goes on."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600
CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
Sync = Callable[[int], object]  # forces a descriptor to disk, as os.fsync does


def durable_content(path: Path) -> bytes:
    """Return the content of the file *path*, empty where there is none; raises OSError."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def replace_durably(path: Path, data: bytes, *, sync: Sync = os.fsync) -> None:
    """Make *data* the content of the file *path*; raises OSError, and then the old content stands.

    The folder is forced to disk too, because a new name in it is lost otherwise.
    """
    unfinished = path.with_name(f"{path.name}.new")
    file = os.open(unfinished, CREATE_FLAGS, FILE_MODE)
    try:
        write_durably(file, data, path=path, sync=sync)
    finally:
        os.close(file)
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(folder)
    finally:
        os.close(folder)


def write_durably(file: int, data: bytes, *, path: Path, sync: Sync = os.fsync) -> None:
    """Write *data* to the descriptor *file* of *path*; raises OSError where it is cut short."""
    if os.write(file, data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    sync(file)
