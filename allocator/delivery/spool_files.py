"""The spool: batches of records that wait on disk for the console, one file each.

A file is written under another name and then renamed, so a killed writer leaves none that is half
there. The first line says how many bytes follow, and their CRC-32; a file that does not agree with
it is removed. Names begin with the time, so they are in order. They end with the number of records,
so that what has to go is counted without being read.
"""

import errno
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

SPOOL_LIMIT: Final = 64 * 1024 * 1024  # bytes of all segments
LARGEST_SEGMENT: Final = 5 * 1024 * 1024  # bytes; whatever is larger is none of ours
_BLOCK: Final = 4096  # bytes; a file takes whole ones
_LONGEST_HEADER: Final = 64  # bytes
_NAME: Final = re.compile(r"([0-9]{20})-[0-9a-f]{8}-([0-9]{1,6})[.]segment")
_HEADER: Final = re.compile(rb"([0-9]{1,8}) ([0-9a-f]{8})\n")
_GONE: Final = frozenset((errno.ENOENT, errno.ELOOP, errno.EISDIR, errno.ENOTDIR))
_UNFINISHED: Final = ".unfinished"


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of the spool."""

    name: str
    records: int
    size: int  # bytes that it takes on the disk


class Spool:
    """The segments in one folder, which belongs to one program at a time."""

    def __init__(self, folder: Path, *, limit: int = SPOOL_LIMIT) -> None:
        """Keep at most *limit* bytes in *folder*; nothing is read before :meth:`open`."""
        self._folder = folder
        self._limit = limit
        self._last = 0  # nanoseconds in the name of the latest segment

    def open(self) -> tuple[Segment, ...]:
        """Return what an earlier run left, the oldest first; raises ``OSError``."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        segments = sorted(self._existing(), key=lambda segment: segment.name)
        if segments:
            self._last = int(segments[-1].name.partition("-")[0])
        return tuple(segments)

    def has_room(self, used: int, data: bytes) -> bool:
        """Say whether *data* fits beside *used* bytes."""
        needed = _disk_space(len(data) + _LONGEST_HEADER) if data else 0
        return used + needed <= self._limit

    def store(self, data: bytes, *, records: int, durable: bool) -> Segment:
        """Write one segment; raises ``OSError``, and then leaves nothing.

        A killed program loses nothing that was written. What is *durable* outlives the machine's
        sudden end, too.
        """
        self._last = max(self._last + 1, time.time_ns())
        name = f"{self._last:020d}-{secrets.token_hex(4)}-{records}.segment"
        header = b"%d %08x\n" % (len(data), crc32(data))
        unfinished = self._folder / f"{name}{_UNFINISHED}"
        try:
            _write(unfinished, (header, data), durable=durable)
            unfinished.rename(self._folder / name)
            if durable:
                _synchronize(self._folder)
        except OSError:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise
        return Segment(name, records, _disk_space(len(header) + len(data)))

    def load(self, segment: Segment) -> bytes | None:
        """Return what is stored in *segment*; ``None`` where it is damaged or gone.

        Raises ``OSError`` where it cannot be read now, as without a free descriptor.
        """
        try:
            descriptor = os.open(self._folder / segment.name, os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "rb") as file:
                header = _HEADER.fullmatch(file.readline(_LONGEST_HEADER))
                data = file.read(LARGEST_SEGMENT)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise
        if header is None:
            return None
        agrees = len(data) == int(header[1]) and crc32(data) == int(header[2], 16)
        return data if agrees else None

    def remove(self, segment: Segment) -> None:
        """Remove *segment*; one that cannot be removed is sent again by the next run."""
        with suppress(OSError):
            (self._folder / segment.name).unlink(missing_ok=True)

    def _existing(self) -> Iterator[Segment]:
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(_UNFINISHED):
                    with suppress(OSError):
                        Path(entry.path).unlink()
                elif name := _NAME.fullmatch(entry.name):
                    size = entry.stat(follow_symlinks=False).st_size
                    yield Segment(entry.name, int(name[2]), _disk_space(size))


def _disk_space(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _write(path: Path, parts: tuple[bytes, ...], *, durable: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.writelines(parts)
        file.flush()
        if durable:
            os.fsync(file.fileno())


def _synchronize(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
