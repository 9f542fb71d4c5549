"""The real daemons: starts, asks and kills ``nvidia-cuda-mps-control``.

A daemon is known by a file beside its folders, which no client has mounted. The file that the
daemon writes itself lies where tenants may change it: it must not make the agent kill a process.
"""

import asyncio
import os
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import structlog

from agent.mps.commands import MOST_ANSWER_BYTES, SERVER_LIST, MpsAnswerError, pids_of, refusal_in
from agent.mps.daemon import (
    CONTROL,
    MPS_FOLDER,
    DaemonError,
    DaemonFolders,
    check_sockets,
    folders_of,
)
from agent.mps.launch import (
    OPEN_FILES,
    LaunchPlan,
    MpsLauncher,
    child_command,
    environment,
    main_pid_command,
    systemd_command,
)
from agent.mps.simulated.simulated_files import known_folders
from agent.node.cgroup import start_time_of
from allocator.model.units import MiB
from allocator.model.untrusted import quote

ANSWER_TIMEOUT: Final = 5.0  # seconds; the control program hangs where the daemon does
START_TIMEOUT: Final = 10.0  # seconds until a daemon answers
KILL_TIMEOUT: Final = 5.0  # seconds until killed processes are gone
POLL_INTERVAL: Final = 0.05
_RECORD: Final = "daemon.json"
_LOG: Final = "agent.log"  # what the daemon writes to its standard streams
_SERVER_LOG: Final = "server.log"  # of NVIDIA's server
_ORDERS: Final = ("set_", "start_", "sm_")  # whose answer may be a refusal
_REFUSAL: Final = re.compile(r"(?i)\b(unknown|invalid|error|fail\w*|cannot|can't)\b")
log = structlog.get_logger(__name__)


class _Record(msgspec.Struct, frozen=True):
    """A daemon that was started: its pid, and when it started in ticks since the node's boot."""

    pid: int
    started: int
    static: bool = False  # with partitions; a daemon of an earlier release has none


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonOptions:
    """How the daemons of a node are run."""

    host_root: str  # on the node
    program: str = CONTROL
    launcher: MpsLauncher = MpsLauncher.CHILD
    shared_memory: MiB | None = None  # of each daemon's /dev/shm; None: nothing is mounted
    patience: float = ANSWER_TIMEOUT  # seconds for one answer


class DaemonClient:
    """The daemons whose folders are in *folder*, as this process sees the node's ``hostRoot``.

    *proc* is the node's ``/proc``; daemons must share our pid namespace.
    """

    def __init__(self, folder: Path, options: DaemonOptions, *, proc: Path = Path("/proc")) -> None:
        """Touch nothing yet."""
        self._folder = folder
        self._options = options
        self._proc = proc
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        # servers that were seen, which may outlive their daemon and hold the GPU
        self._servers: dict[str, frozenset[_Record]] = {}

    async def prepare(self, gpu: str) -> None:
        """Create the folders of a daemon, and mount what it shares; raises DaemonError."""
        try:
            check_sockets(self._folders(gpu))
            await asyncio.to_thread(self._prepare, self._folders(gpu))
        except OSError as error:
            raise DaemonError(f"the folders of its MPS daemon cannot be made: {error}") from error

    async def start(self, gpu: str, *, static: bool = False) -> None:
        """Start a daemon, with partitions if *static*; returns once it answers.

        Raises DaemonError. Servers of an earlier daemon are killed first: they would hold the GPU.
        """
        self._kill_all(self._servers.pop(gpu, frozenset()))
        try:
            record = await asyncio.to_thread(self._start, gpu, static)
            try:
                self._write_record(gpu, msgspec.structs.replace(record, static=static))
            except OSError:  # nobody would know it, and the next could not start beside it
                self._kill_all({record})
                raise
        except OSError as error:
            raise DaemonError(f"{self._options.program} cannot be started: {error}") from error
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_TIMEOUT
        why = "no answer"
        while loop.time() < deadline:
            if not await self.is_alive(gpu):
                raise DaemonError(f"its MPS daemon ended at once{self._last_line(gpu)}")
            try:
                pids_of(await self.ask(gpu, SERVER_LIST))
            except (DaemonError, MpsAnswerError) as error:
                why = str(error)
                await asyncio.sleep(POLL_INTERVAL)
            else:
                return
        raise DaemonError(f"its MPS daemon does not answer: {why}")

    async def is_alive(self, gpu: str) -> bool:
        """Say whether the daemon's process exists, whoever started it."""
        record = self._record(gpu)
        alive = record is not None and self._lives(record)
        # Afterwards, or one that ends in between is told as dead and never reaped.
        child = self._children.get(gpu)
        if child is not None and child.poll() is not None:  # reaps it
            del self._children[gpu]
        return alive

    def is_static(self, gpu: str) -> bool:
        """Say whether the daemon that was started last has partitions."""
        record = self._record(gpu)
        return record is not None and record.static

    async def ask(self, gpu: str, command: str) -> str:
        """Return the daemon's answer to one command; raises DaemonError."""
        folders = self._folders(gpu)
        variables = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": folders.pipe}
        variables.pop("CUDA_VISIBLE_DEVICES", None)
        answer = await _output(
            [self._options.program], variables, text=f"{command}\n", within=self._options.patience
        )
        if command.startswith(_ORDERS) and _REFUSAL.search(answer):
            raise DaemonError(f"its MPS daemon refused {command}: {quote(answer.strip())}")
        return answer

    async def server_pids(self, gpu: str) -> frozenset[int]:
        """Return the pids of the daemon's children, its servers."""
        record = self._record(gpu)
        if record is None or not self._lives(record):
            return frozenset()
        path = self._proc / str(record.pid) / "task" / str(record.pid) / "children"
        try:
            pids = pids_of(path.read_text(encoding="ascii"))
        except (OSError, ValueError, MpsAnswerError):
            return frozenset()
        started = {pid: start_time_of(self._stat(pid)) for pid in pids}
        self._servers[gpu] = frozenset(
            _Record(pid=pid, started=ticks) for pid, ticks in started.items() if ticks is not None
        )
        return frozenset(pids)

    async def last_refusal(self, gpu: str) -> str:
        """Return what the server last logged of a client for whom it had no room, else ""."""
        path = Path(self._folders(gpu).log) / _SERVER_LOG
        return refusal_in(await asyncio.to_thread(_end_of, path))

    async def kill(self, gpu: str) -> None:
        """Kill the daemon and its servers, whatever they do; raises DaemonError."""
        await self.server_pids(gpu)
        record = self._record(gpu)
        self._kill_all({record} if record is not None else frozenset())
        self._kill_all(self._servers.pop(gpu, frozenset()))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + KILL_TIMEOUT
        while await self.is_alive(gpu):
            if loop.time() > deadline:
                raise DaemonError("its MPS daemon was killed, and does not end")
            await asyncio.sleep(POLL_INTERVAL)

    def _kill_all(self, records: Collection[_Record]) -> None:
        """Kill those of the processes that still live."""
        for record in records:
            if self._lives(record):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(record.pid, signal.SIGKILL)

    def known(self) -> frozenset[str]:
        """Return the GPUs for whose daemon there are folders, from an earlier agent too."""
        return known_folders(self._folder)

    async def remove(self, gpu: str) -> None:
        """Remove the folders of a daemon that has ended; raises DaemonError."""
        folders = self._folders(gpu)
        try:
            if await asyncio.to_thread(os.path.ismount, folders.shared_memory):
                await _output(["umount", "--lazy", folders.shared_memory], dict(os.environ))
            await asyncio.to_thread(shutil.rmtree, folders.root)
        except FileNotFoundError:
            return
        except OSError as error:
            raise DaemonError(f"the folders of its MPS daemon stay: {error}") from error

    def _folders(self, gpu: str) -> DaemonFolders:
        return folders_of(str(self._folder), gpu)

    def _prepare(self, folders: DaemonFolders) -> None:
        # A server runs as root, its clients as anyone: all parents let others pass.
        (self._folder / MPS_FOLDER).mkdir(mode=0o755, parents=True, exist_ok=True)
        for path in (folders.root, folders.pipe, folders.log):
            Path(path).mkdir(mode=0o755, exist_ok=True)
        shared = Path(folders.shared_memory)
        shared.mkdir(exist_ok=True)
        size = self._options.shared_memory
        if size is None or os.path.ismount(shared):
            shared.chmod(0o1777)
            return
        options = f"size={size}m,mode=1777,nosuid,nodev,noexec"
        command = ["mount", "-t", "tmpfs", "-o", options, "vgpu-mps", str(shared)]
        done = _run(command, within=self._options.patience)
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip()
            raise OSError(f"{' '.join(command)}: {why}")

    def _start(self, gpu: str, static: bool) -> _Record:  # noqa: FBT001 -- to_thread
        """Start the program and return its record; raises OSError or DaemonError."""
        folders = self._folders(gpu)
        if self._options.launcher is MpsLauncher.SYSTEMD:
            return self._start_by_systemd(gpu, static=static)
        plan = LaunchPlan(
            gpu=gpu,
            folders=folders,
            program=self._options.program,
            mounts=self._options.shared_memory is not None,
            static=static,
        )
        with (Path(folders.log) / _LOG).open("wb") as output:
            child = subprocess.Popen(  # noqa: S603 - our own command line
                child_command(plan),
                env={**os.environ, **environment(plan)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._children[gpu] = child
        _raise_open_files(child.pid)
        return self._record_of(child.pid)

    def _start_by_systemd(self, gpu: str, *, static: bool) -> _Record:
        plan = LaunchPlan(
            gpu=gpu,
            folders=folders_of(self._options.host_root, gpu),
            program=self._options.program,
            static=static,
        )
        answer = ""
        for command in (systemd_command(plan), main_pid_command(gpu)):
            done = _run(command, within=START_TIMEOUT)
            if done.returncode:
                why = done.stderr.decode(errors="replace")
                raise DaemonError(f"systemd does not start its MPS daemon: {quote(why.strip())}")
            answer = done.stdout.decode(errors="replace")
        try:
            (pid,) = pids_of(answer)
        except (MpsAnswerError, ValueError) as error:
            raise DaemonError(f"systemd names no pid of its MPS daemon: {quote(answer)}") from error
        return self._record_of(pid)

    def _record_of(self, pid: int) -> _Record:
        started = start_time_of(self._stat(pid))
        if started is None:
            raise DaemonError("its MPS daemon ended at once")
        return _Record(pid=pid, started=started)

    def _record(self, gpu: str) -> _Record | None:
        path = Path(self._folders(gpu).root) / _RECORD
        try:
            return msgspec.json.decode(path.read_bytes(), type=_Record)
        except (OSError, ValueError):
            return None

    def _write_record(self, gpu: str, record: _Record) -> None:
        path = Path(self._folders(gpu).root) / _RECORD
        path.write_bytes(msgspec.json.encode(record))

    def _lives(self, record: _Record) -> bool:
        stat = self._stat(record.pid)
        ended = stat.rpartition(")")[2].split()[:1] in (["Z"], ["X"])
        return not ended and start_time_of(stat) == record.started

    def _stat(self, pid: int) -> str:
        try:
            return (self._proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def _last_line(self, gpu: str) -> str:
        """Return what the daemon wrote last, as the end of a sentence."""
        lines = _end_of(Path(self._folders(gpu).log) / _LOG).strip().splitlines()
        return f": {quote(lines[-1])}" if lines else ""


def _run(command: Sequence[str], *, within: float) -> subprocess.CompletedProcess[bytes]:
    """Run *command* to its end; raises OSError, and DaemonError where it hangs."""
    try:
        return subprocess.run(  # noqa: S603 - our own command line
            command, capture_output=True, timeout=within, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DaemonError(f"{command[0]} does not end within {within:g} s") from error


def _end_of(path: Path) -> str:
    """Return the end of a log, "" where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_ANSWER_BYTES))
            return file.read(MOST_ANSWER_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _raise_open_files(pid: int) -> None:
    """Raise the limit of open files of a daemon, whose servers inherit it, as far as it may go."""
    with suppress(OSError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (wanted, hard))


async def _output(
    command: Sequence[str],
    variables: dict[str, str],
    *,
    text: str = "",
    within: float = ANSWER_TIMEOUT,
) -> str:
    """Return what *command* writes, given *text*; raises DaemonError if it fails or hangs.

    A thread runs it, because uvloop forks: then gRPC's handlers run in the child, which sometimes
    ends with a signal before it is another program.
    """
    try:
        done = await asyncio.to_thread(
            subprocess.run,
            command,
            env=variables,
            input=text.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=within,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DaemonError(f"no answer within {within:g} s") from None
    except OSError as error:
        raise DaemonError(f"{command[0]} cannot be started: {error}") from error
    answer = done.stdout
    written = answer[:MOST_ANSWER_BYTES].decode(errors="replace")
    if done.returncode:
        raise DaemonError(f"{command[0]} failed with {done.returncode}: {quote(written.strip())}")
    if len(answer) > MOST_ANSWER_BYTES:
        raise DaemonError(f"an answer of more than {MOST_ANSWER_BYTES} bytes")
    return written
