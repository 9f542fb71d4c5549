"""Processes: who a process of this node belongs to, as ``/proc`` tells the node.

A process does not leave its container, and its start time tells it from a later one of the same
number; so each is read once, and afterwards only asked whether it still is the same. One outside
pods is read again for a while, because a container's first process begins its life outside.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.node.cgroup import PodCgroup, inner_pid_of, pod_cgroup_of, start_time_of

READ_SIZE: Final = 64 * 1024  # bytes of one file of /proc that are looked at, and
MOST_MAPS_BYTES: Final = 16 * 1024 * 1024  # of a process's list of mappings
MOST_REMEMBERED: Final = 16384  # processes remembered
SETTLED_AFTER: Final = 60.0  # seconds after which a process outside pods stays there


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """A living process: its number on the node and in its innermost namespace, and its cell.

    ``cgroup`` is ``None`` for one that runs outside pods, ``started`` in ticks since boot.
    """

    pid: int
    inner_pid: int | None
    started: int
    cgroup: PodCgroup | None


@dataclass(frozen=True, slots=True)
class _KnownProcess:
    """A process, since when it is known, and when it was read last."""

    resident: Resident
    since: float
    read: float

    @property
    def is_settled(self) -> bool:
        """Say whether it was where it stays."""
        cgroup = self.resident.cgroup
        return (
            cgroup is not None and cgroup.container is not None
        ) or self.read - self.since > SETTLED_AFTER


class Processes:
    """Reads ``proc`` below *root*; needs the node's own view of it (``hostPID``)."""

    def __init__(
        self, root: Path = Path("/"), *, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin with nobody known; *ticks* gives seconds that only grow."""
        self._proc = root / "proc"
        self._ticks = ticks
        self._known: dict[int, _KnownProcess] = {}

    def resident(self, pid: int) -> Resident | None:
        """Return the process of number *pid* on the node, ``None`` where there is none."""
        started = start_time_of(self._text(pid, "stat"))
        if started is None:
            self._known.pop(pid, None)
            return None
        known = self._known.get(pid)
        same = known is not None and known.resident.started == started
        if known is not None and same and known.is_settled:
            return known.resident
        now = self._ticks()
        resident = Resident(
            pid=pid,
            inner_pid=inner_pid_of(self._text(pid, "status")),
            started=started,
            cgroup=pod_cgroup_of(self._text(pid, "cgroup")),
        )
        if start_time_of(self._text(pid, "stat")) != started:
            return None  # it ended meanwhile, and what was read is of another
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        since = known.since if known is not None and same else now
        self._known[pid] = _KnownProcess(resident, since, now)
        return resident

    def pod_processes(self) -> tuple[Resident, ...]:
        """Return all processes that run in pods; reads one line for each process of the node."""
        pids = set(self._pids())
        for ended in frozenset(tuple(self._known)) - pids:  # copied at once: several threads ask
            self._known.pop(ended, None)
        residents = map(self.resident, pids)
        return tuple(one for one in residents if one is not None and one.cgroup is not None)

    def is_mapped(self, residents: Iterable[Resident], inode: int) -> bool:
        """Say whether one of *residents* has mapped the region whose file is *inode*."""
        wanted = re.compile(rf"(?m)^(?:\S+ +){{4}}{inode} .*\.cache")  # proc(5)
        return any(wanted.search(self._text(one.pid, "maps", MOST_MAPS_BYTES)) for one in residents)

    def _pids(self) -> Iterator[int]:
        with os.scandir(self._proc) as entries:
            yield from (int(entry.name) for entry in entries if entry.name.isdecimal())

    def _text(self, pid: int, name: str, most: int = READ_SIZE) -> str:
        """Return at most that much of a file about a process, empty where it has ended."""
        parts = []
        try:
            file = os.open(f"{self._proc}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            while most > 0 and (part := os.read(file, min(most, READ_SIZE))):
                parts.append(part)
                most -= len(part)
        except OSError:
            return ""
        finally:
            os.close(file)
        return b"".join(parts).decode(errors="replace")
