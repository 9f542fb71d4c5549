"""The driver behind the stand-in for libcuda: who holds how much of which GPU, on the whole node.

It is a thread of the tests. Processes connect to its socket; the kernel tells their pids on the
node, and their connections end when they do. What they hold is written into the machine that the
stand-in for NVML plays, so that both libraries, and an agent on the node, see the same.
"""

import socket
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from enum import IntEnum
from functools import partial
from types import TracebackType
from typing import Final, Self

from agent.driver.driver import Process
from allocator.model.units import MiB
from tests.fakes.nvml.machine import Machine

SOCKET: Final = "cuda"  # the name of its socket, beside the file of the machine
_REQUEST: Final = struct.Struct("<iiq")
_ANSWER: Final = struct.Struct("<qqq")
_PEER: Final = struct.Struct("<3i")
_MIB: Final = 1024 * 1024
_SUCCESS: Final = 0
_OUT_OF_MEMORY: Final = 2
_BUSY: Final = 40  # percent of compute that whoever has launched a kernel is said to use
_WINDOW: Final = 1.0  # seconds of kernels that make up a utilization, where kernels take time
_PUBLISH_INTERVAL: Final = 0.1  # seconds, at the least, between two such figures of a process


class _Call(IntEnum):
    """What a process asks; ``cuda.c`` has the same numbers."""

    COUNT = 0
    TAKE = 1
    GIVE = 2
    INFO = 3
    LAUNCH = 4


class CudaDriver:
    """Serves the processes on *machine* while it is entered."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.path = machine.path.with_name(SOCKET)
        found = machine.read()
        gpus = [found.gpus[index] for index in range(found.gpu_count)]
        self._uuids = [gpu.uuid.decode() for gpu in gpus]
        self._sizes = [int(gpu.memory) for gpu in gpus]
        self._lock = threading.Lock()
        self.gives = threading.Event()  # while it is not set, who asks for memory waits
        self.gives.set()
        # by pid on the node: bytes by the GPU's index
        self._held: dict[int, dict[int, int]] = {}
        self._launched: set[int] = set()
        # by pid: when its kernels ended and how many seconds they took, newest last
        self._kernels: dict[int, deque[tuple[float, float]]] = {}
        self._published: dict[int, float] = {}
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._threads: list[threading.Thread] = []
        self._connections: list[socket.socket] = []

    def held(self, gpu: str) -> dict[int, int]:
        """Return the bytes that processes hold on a GPU, with their contexts, by pid."""
        index = self._uuids.index(gpu)
        with self._lock:
            return {pid: held[index] for pid, held in self._held.items() if held.get(index)}

    def __enter__(self) -> Self:
        self._server.bind(str(self.path))
        self.path.chmod(0o666)
        self._server.listen()
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.gives.set()
        for each in (self._server, *self._connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for each in (self._server, *self._connections):
            each.close()

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._start(partial(self._serve, connection))

    def _serve(self, connection: socket.socket) -> None:
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        pid = _PEER.unpack(peer)[0]
        with suppress(OSError):
            while len(asked := connection.recv(_REQUEST.size, socket.MSG_WAITALL)) == _REQUEST.size:
                connection.sendall(_ANSWER.pack(*self._answer(pid, _REQUEST.unpack(asked))))
        with self._lock:
            self._held.pop(pid, None)
            self._launched.discard(pid)
            self._kernels.pop(pid, None)
            self._machine.end(pid)

    def _answer(self, pid: int, request: tuple[int, int, int]) -> tuple[int, int, int]:
        what, device, amount = request
        if what == _Call.TAKE:
            self.gives.wait()
        with self._lock:
            match what:
                case _Call.COUNT:
                    return _SUCCESS, len(self._uuids), 0
                case _Call.INFO:
                    return _SUCCESS, self._left(device), self._sizes[device]
                case _Call.TAKE if amount > self._left(device):
                    return _OUT_OF_MEMORY, 0, 0
                case _Call.LAUNCH if amount:
                    kernels = self._kernels.setdefault(pid, deque())
                    kernels.append((time.time(), amount / 1e6))
                    if kernels[-1][0] - self._published.get(pid, 0.0) < _PUBLISH_INTERVAL:
                        return _SUCCESS, 0, 0
                case _Call.LAUNCH:
                    self._launched.add(pid)
                case _:
                    held = self._held.setdefault(pid, defaultdict(int))
                    held[device] += amount if what == _Call.TAKE else -amount
            self._publish(pid)
            return _SUCCESS, 0, 0

    def _left(self, device: int) -> int:
        return self._sizes[device] - sum(held.get(device, 0) for held in self._held.values())

    def _publish(self, pid: int) -> None:
        """Let NVML list what a process holds."""
        self._machine.end(pid)
        for device, amount in self._held.get(pid, {}).items():
            if amount:
                use = _BUSY if pid in self._launched else 0
                uuid, memory = self._uuids[device], MiB(amount // _MIB)
                process = Process(pid=pid, gpu=uuid, memory=memory, utilization=use)
                if pid in self._kernels:
                    self._add_busy(process)
                else:
                    self._machine.add(process)

    def _add_busy(self, process: Process) -> None:
        """Let NVML list a process whose kernels take time, and what they took of a second."""
        now = self._published[process.pid] = time.time()
        kernels = self._kernels[process.pid]
        while kernels and kernels[0][0] < now - _WINDOW:
            kernels.popleft()
        use = min(100, round(100 * sum(seconds for _, seconds in kernels) / _WINDOW))
        self._machine.add(replace(process, utilization=use), seen=int(now * 1e6))
