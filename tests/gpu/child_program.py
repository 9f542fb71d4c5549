"""A program that tests and checks start, talk to by pipes, and kill.

It lies here because ``make gpu-bundle`` carries this folder of the tests alone.
"""

import subprocess
from types import TracebackType
from typing import IO, Any, AnyStr, Final, Generic, Self

KILLED_WITHIN: Final = 90.0  # seconds; a driver may have much to give back


class ChildProgram(Generic[AnyStr]):
    """A running program; leaving its context kills it, and closes what it was started with."""

    def __init__(self, process: "subprocess.Popen[AnyStr]", *files: IO[Any]) -> None:
        """Take charge of *process*, and of *files* that only it writes."""
        self._process: subprocess.Popen[AnyStr] = process
        self._files = files

    @property
    def pid(self) -> int:
        """Return its pid, in the pid namespace of this process."""
        return self._process.pid

    def kill(self) -> None:
        """End it as SIGKILL does, without a chance to tidy up."""
        self._process.kill()
        self._process.wait(KILLED_WITHIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        for file in (self._process.stdin, self._process.stdout, *self._files):
            if file is not None:
                file.close()
