"""Daemons of simulated GPUs: values in memory, and folders on disk for containers to mount."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agent.mps.daemon import MPS_FOLDER, DaemonError, folders_of, is_gpu
from agent.mps.simulated import simulated_daemon
from agent.mps.simulated.simulated_daemon import SimulatedDaemon

_FIRST_PID: Final = 4_000_001  # of servers; no process of a node that we simulate on has it


class SimulatedDaemons:
    """The daemons of GPUs that do not exist, with their folders in *folder*."""

    def __init__(self, folder: Path) -> None:
        """Touch nothing yet."""
        self._folder = folder
        self._daemons: dict[str, SimulatedDaemon] = {}
        self._started = 0
        self._refused = Counter[str]()  # clients too many, by GPU
        self.silent: set[str] = set()  # daemons that live and do not answer
        self.broken: set[str] = set()  # GPUs whose daemon cannot be started
        self.starts = 0
        self.commands: list[str] = []  # that were answered

    async def prepare(self, gpu: str) -> None:
        """Create the folders of a daemon; raises DaemonError."""
        folders = folders_of(str(self._folder), gpu)
        try:
            await asyncio.to_thread(
                _make_folders, (folders.pipe, folders.log, folders.shared_memory)
            )
        except OSError as error:
            raise DaemonError(f"the folders of its MPS daemon cannot be made: {error}") from error

    async def start(self, gpu: str, *, static: bool = False) -> None:
        """Start a daemon, with partitions if *static*; raises DaemonError where it is broken."""
        self.starts += 1
        if gpu in self.broken:
            raise DaemonError("its MPS daemon ended at once")
        self._started += 1
        self._daemons[gpu] = SimulatedDaemon(
            next_pid=_FIRST_PID + 1000 * self._started, static=static
        )

    async def is_alive(self, gpu: str) -> bool:
        """Say whether the daemon runs."""
        return gpu in self._daemons

    def is_static(self, gpu: str) -> bool:
        """Say whether the daemon has partitions."""
        return gpu in self._daemons and self._daemons[gpu].static

    async def ask(self, gpu: str, command: str) -> str:
        """Return the daemon's answer to one command; raises DaemonError."""
        daemon = self._daemons.get(gpu)
        if daemon is None or gpu in self.silent:
            raise DaemonError("no answer within 5 s")
        daemon, text = simulated_daemon.answer(daemon, command)
        self.commands.append(command)
        if text in simulated_daemon.REFUSALS:
            raise DaemonError(f"its MPS daemon refused {command}: {text}")
        self._daemons[gpu] = daemon
        if daemon.ended:
            del self._daemons[gpu]
        return text

    async def server_pids(self, gpu: str) -> frozenset[int]:
        """Return the pid of the daemon's server."""
        daemon = self._daemons.get(gpu)
        server = None if daemon is None else daemon.server
        return frozenset() if server is None else frozenset((server.pid,))

    async def last_refusal(self, gpu: str) -> str:
        """Return what the server last logged of a client for whom it had no room, else ""."""
        number = self._refused[gpu]
        return f"client {number}: {simulated_daemon.NO_ROOM}" if number else ""

    async def kill(self, gpu: str) -> None:
        """End the daemon and its server."""
        self._daemons.pop(gpu, None)
        self.silent.discard(gpu)

    def known(self) -> frozenset[str]:
        """Return the GPUs for whose daemon there are folders, from an earlier agent too."""
        return known_folders(self._folder)

    async def remove(self, gpu: str) -> None:
        """Remove the folders of a daemon that has ended."""
        root = folders_of(str(self._folder), gpu).root
        await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)

    def daemon(self, gpu: str) -> SimulatedDaemon:
        """Return the daemon as it is; raises KeyError where none runs."""
        return self._daemons[gpu]

    def change(self, gpu: str, act: Callable[[SimulatedDaemon], SimulatedDaemon | str]) -> str:
        """Change the daemon from outside, as a client does; return the client's error, or ""."""
        changed = act(self._daemons[gpu])
        if isinstance(changed, str):
            self._refused[gpu] += changed == simulated_daemon.NO_ROOM
            return changed
        self._daemons[gpu] = changed
        return ""


def known_folders(folder: Path) -> frozenset[str]:
    """Return the GPUs whose daemon has folders in *folder*; none where it cannot be listed."""
    try:
        names = [path.name for path in (folder / MPS_FOLDER).iterdir()]
    except OSError:
        return frozenset()
    return frozenset(filter(is_gpu, names))


def _make_folders(paths: tuple[str, ...]) -> None:
    for path in paths:
        Path(path).mkdir(mode=0o755, parents=True, exist_ok=True)
    Path(paths[-1]).chmod(0o1777)
