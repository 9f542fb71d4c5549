"""Processes: which pod a process of this node belongs to, from ``/proc``.

A process does not leave its container, and its start time distinguishes it from a later one with
the same pid. So each is read once, and afterwards only its start time is checked. A process outside
pods is read again for a while, because a container's first process starts outside.
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
    """A living process."""

    pid: int  # on the node
    inner_pid: int | None  # in its innermost namespace
    started: int  # ticks since boot
    cgroup: PodCgroup | None  # None: outside pods


@dataclass(frozen=True, slots=True)
class _KnownProcess:
    """A process that was read; times are in monotonic seconds."""

    resident: Resident
    since: float  # first reading
    read: float  # last reading

    @property
    def is_settled(self) -> bool:
        """Say whether its cgroup will not change any more."""
        cgroup = self.resident.cgroup
        return (
            cgroup is not None and cgroup.container is not None
        ) or self.read - self.since > SETTLED_AFTER


class Processes:
    """Reads ``proc`` below *root*; needs the node's own view of it (``hostPID``)."""

    def __init__(
        self, root: Path = Path("/"), *, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        """Start without known processes; *ticks* returns monotonic seconds."""
        self._proc = root / "proc"
        self._ticks = ticks
        self._known: dict[int, _KnownProcess] = {}

    def resident(self, pid: int) -> Resident | None:
        """Return the process with *pid* on the node, ``None`` if there is none."""
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
            return None  # it ended meanwhile, and its pid was reused
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        since = known.since if known is not None and same else now
        self._known[pid] = _KnownProcess(resident, since, now)
        return resident

    def pod_processes(self) -> tuple[Resident, ...]:
        """Return all processes that run in pods; reads one line for each process of the node."""
        pids = set(self._pids())
        for ended in (
            frozenset(tuple(self._known)) - pids
        ):  # copied at once: several threads call this
            self._known.pop(ended, None)
        residents = map(self.resident, pids)
        return tuple(r for r in residents if r is not None and r.cgroup is not None)

    def is_mapped(self, residents: Iterable[Resident], inode: int) -> bool:
        """Say whether one of *residents* has mapped the region whose file is *inode*."""
        wanted = re.compile(rf"(?m)^(?:\S+ +){{4}}{inode} .*\.cache")  # proc(5)
        return any(wanted.search(self._text(r.pid, "maps", MOST_MAPS_BYTES)) for r in residents)

    def root_id(self, residents: Iterable[Resident]) -> int:
        """Return the user id on the node of root in the pod that *residents* are of.

        The oldest tells: a later one may have made itself a user namespace. Without any it is 0.
        """
        for resident in sorted(residents, key=lambda one: one.started):
            lines = self._text(resident.pid, "uid_map").splitlines()
            for inner, outer, _ in (line.split() for line in lines):  # user_namespaces(7)
                if inner == "0":
                    return int(outer)
        return 0

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
