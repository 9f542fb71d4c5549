"""The journal: a file that records each change of a MIG instance before it is made.

A line counts once it is on disk. A truncated or damaged file is read as far as possible. Instances
that it no longer lists as ours are left alone, not destroyed.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from agent.durable_files import (
    CREATE_FLAGS,
    FILE_MODE,
    durable_content,
    replace_durably,
    write_durably,
)
from agent.mig.journal import (
    JournalAct,
    JournalRecord,
    Marks,
    PlacementKey,
    apply_record,
    line_of,
    parse_journal,
    records_of,
)

_MOST_APPENDED: Final = 512  # appended before the file is written anew
_APPEND_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class JournalInUseError(Exception):
    """Another process has the journal open: two agents must not reconfigure the same GPUs."""


class Journal:
    """The record in *path* of what this agent did to MIG instances since *boot*.

    One process at a time can open it. ``marks`` are the places that are ours, replaced with each
    line; ``damage`` has a sentence for each line that could not be read when it was opened.
    """

    def __init__(self, path: Path, *, boot: str, sync: Callable[[int], object] = os.fsync) -> None:
        """Open or create the file, whose folder must exist; *sync* forces a descriptor to disk.

        Raises ``JournalInUseError`` if another process has it, ``OSError`` if it cannot be read
        or written.
        """
        self._path = path
        self._boot = boot
        self._sync = sync
        self._lock = _open_locked(path.with_name(f"{path.name}.lock"))
        history = parse_journal(durable_content(path), boot)
        self.marks: Marks = history.marks
        self.damage = history.damage
        self._lines = 0  # since the file was written anew
        self._file = self._rewrite()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mig-journal")

    async def write(self, act: JournalAct, place: PlacementKey, uuid: str | None = None) -> None:
        """Put a record on disk; raises ``OSError``, and then the change must not be made."""
        record = JournalRecord(boot=self._boot, act=act, place=place, uuid=uuid)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._append, record)

    def close(self) -> None:
        """Finish writing and release the journal to other processes."""
        self._thread.shutdown()
        os.close(self._file)
        os.close(self._lock)

    def _append(self, record: JournalRecord) -> None:
        if self._lines >= _MOST_APPENDED:
            file = self._rewrite()
            os.close(self._file)
            self._file, self._lines = file, 0
        try:
            write_durably(self._file, line_of(record), path=self._path, sync=self._sync)
        except OSError:
            # The line may be on disk in part: the next record starts a new file.
            self._lines = _MOST_APPENDED
            raise
        self._lines += 1
        self.marks = apply_record(self.marks, record)

    def _rewrite(self) -> int:
        """Replace the file by the fewest lines that say the same; return it open at its end."""
        lines = b"".join(line_of(record) for record in records_of(self.marks, self._boot))
        replace_durably(self._path, lines, sync=self._sync)
        return os.open(self._path, _APPEND_FLAGS)


def _open_locked(path: Path) -> int:
    """Return a descriptor of *path* that holds a lock; the kernel releases it with the process."""
    file = os.open(path, CREATE_FLAGS, FILE_MODE)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise JournalInUseError(
            f"{path} is locked: another agent is running on this node"
        ) from None
    return file
