"""A stand-in for ``nvidia-cuda-mps-control``: the documented commands over a socket in a folder.

``-f -M`` is the daemon, ``-S`` gives it partitions. Without arguments it is the client that reads
commands from its standard input. The daemon's servers are processes. A test gives it clients and
failures by the commands that begin with ``test_``. What NVIDIA's program does beyond its
documentation is not known here.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from agent.mps.commands import ServerState
from agent.mps.simulated import simulated_daemon
from agent.mps.simulated.simulated_daemon import SimulatedDaemon, SimulatedServer

MOST = 64 * 1024


def install(folder: Path) -> str:
    """Write an executable of this stand-in into *folder*; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "nvidia-cuda-mps-control"
    here = Path(__file__).resolve().parents[2]
    path.write_text(
        f'#!/bin/sh\ncd {here} && exec {sys.executable} -m tests.fakes.mps_control "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


class Daemon:
    """The daemon's state, with a process for its server."""

    def __init__(self) -> None:
        self.state = SimulatedDaemon(next_pid=1, static="-S" in sys.argv)
        self.process: subprocess.Popen[bytes] | None = None

    def answer(self, line: str) -> str:
        """Answer one command, after the server's process was looked at."""
        if self.process is not None and self.process.poll() is not None:
            self.process = None
            self.state = replace(self.state, server=None)
        words = line.split()
        if words[:1] == ["start_server"]:
            self.start_server()
            return ""
        if words[:1] == ["test_connect"]:
            partition = words.pop() if "/" in words[-1] else ""
            return self.connect(*map(int, words[1:]), partition=partition)
        if words[:1] == ["test_fault"]:
            self.state = simulated_daemon.fault(self.state)
            return ""
        if words[:1] == ["test_disconnect"]:
            self.state = simulated_daemon.disconnect(self.state, int(words[1]))
            return ""
        if words[:1] == ["test_hang"]:
            time.sleep(60)
        if words[:1] == ["test_flood"]:
            return "1" * (2 * MOST)
        self.state, text = simulated_daemon.answer(self.state, line)
        return text

    def connect(self, pid: int, memory: int, threads: int, *, partition: str) -> str:
        """Connect a client that asks for at most these amounts; return what it gets."""
        self.start_server()
        connected = simulated_daemon.connect(
            self.state, pid, memory=memory, threads=threads, partition=partition
        )
        if isinstance(connected, str):
            log = Path(os.environ["CUDA_MPS_LOG_DIRECTORY"]) / "server.log"
            with log.open("a") as file:
                file.write(f"[2026-01-01 00:00:00.000 Server 1] {connected} for pid {pid}\n")
            return connected
        self.state = connected
        assert connected.server is not None
        client = connected.server.clients[pid]
        return f"{client.memory} {client.threads}"

    def start_server(self) -> None:
        """Start the process of a server, with the limits that stand now."""
        if self.process is None:
            self.process = subprocess.Popen(["sleep", "300"])
            state = self.state
            server = SimulatedServer(
                pid=self.process.pid,
                memory=state.memory,
                threads=state.threads,
                state=ServerState.ACTIVE,
            )
            self.state = replace(state, server=server)

    def end(self) -> None:
        """End the server."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def serve(pipe: Path) -> None:
    """Serve commands until told to quit."""
    if (pipe.parent / "broken").exists():
        sys.exit("Cannot find MPS server executable")
    if len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) != 1:
        sys.exit("one GPU is expected")
    daemon = Daemon()
    path = pipe / "control"
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    path.chmod(0o666)
    listener.listen()
    while not daemon.state.ended:
        connection, _ = listener.accept()
        with connection:
            text = connection.recv(MOST).decode(errors="replace")
            answer = daemon.answer(text)
            connection.sendall((answer or "\n").encode())
    daemon.end()
    path.unlink(missing_ok=True)


def send(pipe: Path, text: str) -> int:
    """Send the commands of *text*, and print the answers; return the exit status."""
    for line in filter(str.strip, text.splitlines()):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with connection:
            try:
                connection.connect(str(pipe / "control"))
            except OSError:
                sys.stdout.write("Cannot find MPS control daemon process\n")
                return 1
            connection.sendall(line.encode())
            while part := connection.recv(4 * MOST):
                sys.stdout.write(part.decode())
                if part.endswith(b"\n") or len(part) < MOST:
                    break
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    if "-f" in sys.argv:
        serve(folder)
    else:
        sys.exit(send(folder, sys.stdin.read()))
