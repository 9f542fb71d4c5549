"""A program that uses GPUs through the CUDA driver, run by tests under the real library."""

import os
import select
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.fakes.native import built
from tests.gpu.child_program import ChildProgram

_SOURCE: Final = Path(__file__).parent / "source"
_FLAGS: Final = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-ldl")
OUT_OF_MEMORY: Final = "error 2"
ANSWERS_WITHIN: Final = 40.0  # seconds: a library waits up to 10 for a lock of a killed process


class ProgramError(Exception):
    """The program ended or is silent; the text has what it wrote to standard error."""


def program() -> Path:
    """Return the program; ``program.c`` lists its commands."""
    return built(_SOURCE, "cuda-program", _FLAGS)


class CudaProgram(ChildProgram[bytes]):
    """One running program, the only child of the process that entered its container."""

    def __init__(self, process: "subprocess.Popen[bytes]", errors: Path) -> None:
        """Command a process that was started with pipes, and its errors going to a file."""
        super().__init__(process)
        self._errors = errors

    def tell(self, command: str, *, within: float = ANSWERS_WITHIN) -> str:
        """Return the answer to one command; raises ProgramError, as when it does not come."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{command}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ProgramError(f"ended before {command!r}: {self.errors()}") from None
        return self._answer(command, until=time.monotonic() + within)

    def fits(self, device: int, size: int) -> bool:
        """Say whether *size* bytes can be had on a device; they are kept."""
        answer = self.tell(f"alloc {device} {size}")
        assert answer == OUT_OF_MEMORY or answer.isdigit(), f"{answer}: {self.errors()}"
        return answer != OUT_OF_MEMORY

    @property
    def pid(self) -> int:
        """Return the pid of the program itself on the node."""
        own = self._process.pid
        children = Path(f"/proc/{own}/task/{own}/children")
        until = time.monotonic() + ANSWERS_WITHIN
        while not (found := children.read_text().split()):
            if self._process.poll() is not None or time.monotonic() > until:
                raise ProgramError(f"not running: {self.errors()}")
            time.sleep(0.01)
        return int(found[0])

    def errors(self) -> str:
        """Return what it has written to standard error."""
        return self._errors.read_text(errors="replace")

    def kill(self) -> None:
        """End it without a chance to tidy up."""
        with suppress(ProgramError, FileNotFoundError, ProcessLookupError):
            os.kill(self.pid, 9)
        self._process.wait(10)

    def exit(self) -> int:
        """Let it end as a program does; return its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(20)

    def _answer(self, command: str, *, until: float) -> str:
        assert self._process.stdout is not None
        read, answer = self._process.stdout.fileno(), b""
        while not answer.endswith(b"\n"):
            if not select.select([read], [], [], max(0.0, until - time.monotonic()))[0]:
                raise ProgramError(f"no answer to {command!r}: {self.errors()}")
            part = os.read(read, 1)
            if not part:
                raise ProgramError(f"ended at {command!r}: {self.errors()}")
            answer += part
        return answer.decode().strip()
