"""How a component of the control plane runs: a child that logs to a file and ends with us."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

# Runs before the component. The kernel ends it with us even when we are killed ourselves; it is
# not a preexec_fn because forking with Python code to run is unsafe once the tests have threads.
_LAUNCH = """
import ctypes, os, signal, sys
parent, *command = sys.argv[1:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() == int(parent):
    os.execv(command[0], command)
"""

_STOP_WITHIN = 5.0


class ComponentError(Exception):
    """A component did not become ready, or is not running when it should be."""


class Process:
    """One component, which can be stopped or killed and started again with the same command.

    It lives at most as long as the *thread* that starts it, so start it from the main thread.
    """

    def __init__(self, name: str, command: Sequence[str | Path], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = [str(part) for part in command]
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        """The process that runs now."""
        if self._child is None:
            raise ComponentError(f"{self.name} is not running")
        return self._child.pid

    def start(self, ready: Callable[[], bool], *, within: float) -> None:
        """Start the component and return once it is ready."""
        if self.running:
            raise ComponentError(f"{self.name} is running already")
        with self.log.open("ab") as sink:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *self._command],
                cwd=self.log.parent,
                start_new_session=True,  # Ctrl-C goes to the tests, which stop us in order
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + within
        while not ready():
            if not self.running:
                raise self._error(f"ended with status {self._child.returncode}")
            if time.monotonic() > deadline:
                raise self._error(f"was not ready within {within:.0f} s")
            time.sleep(0.02)

    def stop(self, within: float = _STOP_WITHIN) -> None:
        """End the component, politely at first."""
        self._end(signal.SIGTERM, within)

    def kill(self) -> None:
        """End the component as a crash would."""
        self._end(signal.SIGKILL, _STOP_WITHIN)

    def pause(self) -> None:
        """Let the component stand still with its sockets open, as on a machine without memory."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def tail(self, lines: int = 40) -> str:
        """Return the last lines of the log."""
        with contextlib.suppress(FileNotFoundError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""

    def _end(self, number: signal.Signals, within: float) -> None:
        if self._child is None:
            return
        self._send(number)
        try:
            self._child.wait(within)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child = None

    def _signal(self, number: signal.Signals) -> None:
        if self._child is None:
            raise ComponentError(f"{self.name} is not running")
        self._send(number)

    def _send(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.send_signal(number)  # does nothing to one that has been waited for

    def _error(self, what: str) -> ComponentError:
        return ComponentError(f"{self.name} {what}; the end of {self.log}:\n{self.tail()}")
