"""A machine of its own for a node under test, made of namespaces of this one.

It has its own processes, mounts, devices, control groups, and its own ``/var``, ``/run`` and
``/dev``; ``/usr`` and ``/etc`` are copies that it writes to as it likes. All of it goes when its
first process goes, which the kernel ends with the tests: a test that is killed leaves empty control
groups, and the next machine removes those. The network is shared unless it is asked for, and so is
the kernel: what a kubelet wants the kernel to be like is told to it, never set.
"""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cluster.api import wait_for
from tests.cluster.gate import missing, unable
from tests.cluster.process import ComponentError, Process

_SCRIPT = Path(__file__).with_name("host.sh")
_PREFIX = "vgpu-host-"  # of control groups; the rest is the pid of the tests and a number
_JOIN = 'for group in {groups}; do echo $$ >"$group/cgroup.procs"; done\n'
_ENTER = 'exec nsenter --target={pid} {namespaces} -- setpriv --pdeathsig KILL "$@"\n'
_NAMESPACES = ("--mount", "--pid", "--cgroup")
_OWN_NETWORK = ("--net", "--uts", "--ipc")
_BOOTED_WITHIN = 30.0
_GONE_WITHIN = 30.0
_NEEDS_CONTROLLERS = {"cpu", "cpuacct", "cpuset", "devices", "memory", "pids"}


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """One hierarchy of control groups, and where this process stands in it."""

    controllers: str
    place: Path


class Host:
    """One such machine, whose files lie in *folder* by the paths they have on it.

    ``folder/var``, ``run``, ``dev`` are those of the machine; of ``usr`` and ``etc`` there is what
    it has written. Entering it boots it. With a network of its own it has the loopback interface
    alone, and the boot id of this machine, which its containers read too.
    """

    def __init__(self, folder: Path, *, own_network: bool = False) -> None:
        self.folder = folder
        self.own_network = own_network
        self.boot_id = ""
        self._first: Process | None = None
        self._groups: list[Path] = []
        self._processes: list[Process] = []

    def __enter__(self) -> Self:
        require_node()
        _sweep()
        try:
            self.boot()
        except (ComponentError, OSError) as error:
            self.power_off()
            # A sandbox without the right to, or a kernel without overlays.
            (unable if "not permitted" in str(error) else missing)(f"no node: {error}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.power_off()

    @property
    def _namespaces(self) -> tuple[str, ...]:
        return _NAMESPACES + (_OWN_NETWORK if self.own_network else ())

    @property
    def _enter(self) -> Path:
        """What starts a process on the machine that is on now."""
        return self.folder / "enter"

    def boot(self) -> None:
        """Start it under a new boot id, with its disks as they were and all else empty."""
        for place in ("run", "dev"):
            shutil.rmtree(self.folder / place, ignore_errors=True)
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        self.boot_id = "" if self.own_network else str(uuid.uuid4())
        found = _hierarchies()
        name = f"{_PREFIX}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._groups = [hierarchy.place / name for hierarchy in found]
        for group in self._groups:
            _make_group(group)
        join = _JOIN.format(groups=" ".join(map(str, self._groups)))
        command: list[str | Path] = [
            *("/bin/sh", "-c", f'{join}exec "$@"', "join"),
            *("unshare", "--propagation", "private", *self._namespaces),
            *("--fork", "--kill-child=KILL", "/bin/sh", _SCRIPT),
            *(self.folder, self.boot_id, " ".join(h.controllers for h in found)),
        ]
        self._first = Process("host", command, self.folder / "host.log")
        self._first.start(ready.exists, within=_BOOTED_WITHIN)
        namespaces = " ".join(self._namespaces)
        enter = _ENTER.format(pid=_inner(self._first.pid), namespaces=namespaces)
        self._enter.write_text(join + enter)

    def power_off(self) -> None:
        """End all its processes at once, as a failing power supply does."""
        if self._first is not None:
            self._first.kill()
            self._first = None
        for process in self._processes:
            process.kill()  # the machine has ended it; what stood for it is to be waited for
        for group in self._groups:
            wait_for(lambda group=group: _remove_group(group), within=_GONE_WITHIN)  # type: ignore[misc]
        self._groups = []

    def process(self, name: str, command: Sequence[str | Path], **variables: str) -> Process:
        """Return a component that will run on it and log below its folder."""
        made = _Inside(name, self._entering(command, variables), self.folder / f"{name}.log")
        self._processes.append(made)
        return made

    def run(self, *command: str | Path) -> str:
        """Run a command on it and return what it prints."""
        answer = subprocess.run(
            self.entering(command),
            capture_output=True,
            check=False,
            text=True,
        )
        assert answer.returncode == 0, f"{' '.join(map(str, command))}: {answer.stderr}"
        return answer.stdout

    def entering(self, command: Sequence[str | Path]) -> list[str]:
        """Return a command of this machine that runs *command* on it."""
        return list(map(str, self._entering(command, {})))

    def pids(self) -> list[int]:
        """Return its processes by the numbers that they have on the real machine."""
        return sorted({pid for group in self._groups for pid in _members(group)})

    @staticmethod
    def number(pid: int) -> int:
        """Return the number on the host itself of a process, given the real machine's."""
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in status if line.startswith("NSpid:")).split()[2])

    def _entering(
        self, command: Sequence[str | Path], variables: dict[str, str]
    ) -> list[str | Path]:
        return [
            *("/bin/sh", self._enter, "env"),
            *(f"{name}={value}" for name, value in variables.items()),
            *command,
        ]


class _Inside(Process):
    """A process of a host; a child of ours stands for it and waits for its end."""

    @property
    def pid(self) -> int:
        """The process by the number it has on the real machine."""
        return _inner(super().pid)

    def pause(self) -> None:
        """Return once both stand still: one that stops after it was to go on stays so for ever."""
        super().pause()
        if (standing := self._child) is not None:
            wait_for(lambda: _stopped(standing.pid))

    def resume(self) -> None:
        """Return once both go on, before somebody lets them stand still again."""
        super().resume()
        wait_for(lambda: not _stopped(self.pid))

    def _send(self, number: signal.Signals) -> None:
        """Signal the process itself; the one that stands for it stops when it stops."""
        if number == signal.SIGCONT:
            super()._send(number)
            return
        with contextlib.suppress(ProcessLookupError, ComponentError):
            os.kill(self.pid, number)


def _inner(pid: int) -> int:
    """Return the only child of a process that waits for it."""
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    except (OSError, IndexError):
        raise ComponentError(f"process {pid} has no child") from None


def _stopped(pid: int) -> bool:
    """Tell whether a process stands still by a signal."""
    return "(stopped)" in Path(f"/proc/{pid}/status").read_text()


def require_node() -> None:
    """Skip or fail, with the reason, where this machine cannot run a node."""
    if os.geteuid() != 0:
        unable("no node: a kubelet needs root")
    found = {name for h in _hierarchies() for name in h.controllers.split(",")}
    if lacking := _NEEDS_CONTROLLERS - found:
        unable(f"no node: no control groups, version 1, of {', '.join(sorted(lacking))}")
    for program in ("unshare", "nsenter", "setpriv", "mount", "cc"):
        if shutil.which(program) is None:
            missing(f"no node: {program} is not installed")


def _hierarchies() -> list[_Hierarchy]:
    """Return the hierarchies of version 1 that are mounted."""
    mine = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        mine[controllers] = path
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split()
        if kind != "cgroup":
            continue
        names = frozenset(options.split(","))
        for controllers, path in mine.items():
            if controllers and frozenset(controllers.split(",")) <= names:
                place = Path(before.split()[4], path.lstrip("/"))
                found.append(_Hierarchy(controllers, place))
    return found


def _make_group(group: Path) -> None:
    group.mkdir()
    for name in ("cpuset.cpus", "cpuset.mems"):  # empty in a new group, which then holds nothing
        if (group / name).exists():
            (group / name).write_text((group.parent / name).read_text())


def _members(group: Path) -> Iterator[int]:
    for folder, _, names in os.walk(group):
        if "cgroup.procs" in names:
            yield from _processes(Path(folder, "cgroup.procs"))


def _processes(file: Path) -> Sequence[int]:
    """Return the processes of a group; none where it is gone, or goes while it is read."""
    try:
        return [int(pid) for pid in file.read_text().split()]
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENODEV}:
            return []
        raise


def _remove_group(group: Path) -> bool:
    """Remove a group and those below it; say whether it is gone."""
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):  # somebody is still dying in it
            Path(folder).rmdir()
    return not group.exists()


def groups_of(tests: int | str) -> list[Path]:
    """Return the control groups of all machines that the process *tests* has made."""
    return [
        group
        for hierarchy in _hierarchies()
        for group in hierarchy.place.glob(f"{_PREFIX}{tests}-*")
    ]


def _sweep() -> None:
    """Remove what machines of tests that were killed have left."""
    for group in groups_of("*"):
        owner = group.name.removeprefix(_PREFIX).split("-")[0]
        if not Path("/proc", owner).exists():
            _remove_group(group)
