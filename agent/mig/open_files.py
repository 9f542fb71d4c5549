"""Open files: the processes that keep a device file open and so block a MIG change."""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MOST_HOLDERS: Final = 8  # more would make no message clearer
_LONGEST_NAME: Final = 32  # characters of a process's name, which the process chooses


@dataclass(frozen=True, slots=True)
class FileHolder:
    """A process by its pid on the host and its name."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.name})"


class OpenFiles:
    """Looks through the open files of all processes below *root*, the host's ``/``.

    The agent needs the host's pids, and CAP_SYS_PTRACE to see other users' files.
    """

    def __init__(self, root: Path) -> None:
        """Touch nothing yet."""
        self._proc = root / "proc"

    def holders_of(self, paths: Collection[str]) -> tuple[FileHolder, ...]:
        """Return the first processes that have one of *paths* open, eight at most.

        *paths* are compared with the paths as the processes see them. This walks all of /proc,
        which takes a tenth of a second on a busy node. Processes that end meanwhile or may not be
        inspected are left out.
        """
        file_holders: list[FileHolder] = []
        for process in self._processes():
            if any(path in paths for path in _open_files(process)):
                file_holders.append(FileHolder(int(process.name), _name(process)))
            if len(file_holders) == _MOST_HOLDERS:
                break
        return tuple(file_holders)

    def _processes(self) -> Iterator[Path]:
        try:
            names = [entry.name for entry in os.scandir(self._proc) if entry.name.isdecimal()]
        except OSError:
            return
        for name in sorted(names, key=int):
            yield self._proc / name


def _open_files(process: Path) -> Iterator[str]:
    try:
        links = list(os.scandir(process / "fd"))
    except OSError:
        return
    for link in links:
        try:
            yield str(Path(link.path).readlink())
        except OSError:
            continue


def _name(process: Path) -> str:
    try:
        text = (process / "comm").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "?"
    return "".join(c if c.isprintable() else "?" for c in text.strip()[:_LONGEST_NAME])
