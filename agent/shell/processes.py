"""Processes: who a process of this node belongs to, as ``/proc`` tells the node.

A process never changes its container, and its start time tells it from a later one of the same
number; so each is read once, and afterwards only asked whether it still is the same.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.core.cgroup import Cell, cell_of, inner_pid_of, start_of

LARGEST: Final = 64 * 1024  # bytes of one file of /proc, and
LONGEST: Final = 16 * 1024 * 1024  # bytes of a process's list of mappings
KEPT: Final = 16384  # processes remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """A living process: its number on the node and in its innermost namespace, and its cell.

    ``cell`` is ``None`` for one that runs outside pods, ``started`` in ticks since boot.
    """

    pid: int
    inner: int | None
    started: int
    cell: Cell | None


class Processes:
    """Reads ``proc`` below *root*; needs the node's own view of it (``hostPID``)."""

    def __init__(self, root: Path = Path("/")) -> None:
        """Begin with nobody known."""
        self._proc = root / "proc"
        self._known: dict[int, Resident] = {}

    def resident(self, pid: int) -> Resident | None:
        """Return the process of number *pid* on the node, ``None`` where there is none."""
        started = start_of(self._text(pid, "stat"))
        if started is None:
            self._known.pop(pid, None)
            return None
        known = self._known.get(pid)
        if known is not None and known.started == started:
            return known
        found = Resident(
            pid=pid,
            inner=inner_pid_of(self._text(pid, "status")),
            started=started,
            cell=cell_of(self._text(pid, "cgroup")),
        )
        if start_of(self._text(pid, "stat")) != started:
            return None  # it ended meanwhile, and what was read is of another
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known[pid] = found
        return found

    def everyone(self) -> tuple[Resident, ...]:
        """Return all processes that run in pods; reads one line for each process of the node."""
        pids = set(self._pids())
        for gone in frozenset(tuple(self._known)) - pids:  # copied at once: several threads ask
            self._known.pop(gone, None)
        found = map(self.resident, pids)
        return tuple(one for one in found if one is not None and one.cell is not None)

    def mapped(self, among: Iterable[Resident], inode: int) -> bool:
        """Say whether one of *among* has a file of number *inode* in its memory."""
        return any(
            len(fields) > 4 and fields[4] == str(inode)  # noqa: PLR2004 -- proc(5): its column
            for one in among
            for fields in map(str.split, self._text(one.pid, "maps", LONGEST).splitlines())
        )

    def _pids(self) -> Iterator[int]:
        with os.scandir(self._proc) as entries:
            yield from (int(entry.name) for entry in entries if entry.name.isdecimal())

    def _text(self, pid: int, name: str, most: int = LARGEST) -> str:
        """Return a file about a process, empty where it has ended."""
        try:
            with (self._proc / str(pid) / name).open("rb") as file:
                return file.read(most).decode(errors="replace")
        except OSError:
            return ""
