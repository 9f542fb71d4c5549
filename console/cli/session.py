"""A session: one command on one cluster, and its error messages."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Final, TextIO

from allocator.cli.files import UnusableError
from allocator.model.untrusted import inert_lines
from console.cluster.cluster_client import GROUP, PLURAL, ClusterTarget, connect
from console.cluster.reader_client import FORBIDDEN, ClusterReader
from console.cluster.snapshot import READER_ROLE
from kube.errors import ApiError, KubeError, NotFoundError, UnreachableError

ERROR: Final = 1
INTERRUPTED: Final = 130  # as of a shell, for SIGINT
UNAUTHORIZED: Final = 401
_INSTALLED: Final = "vgpu-admission is not installed in this cluster, or its CRD is missing"


class QuestionError(Exception):
    """The command cannot be carried out as given; the text says what would be accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSession:
    """The cluster that a command reads, and the streams that it writes."""

    target: ClusterTarget
    system: str  # the namespace that vgpu-admission is installed in
    namespace: str | None = None  # None: that of the context
    output: TextIO  # data
    errors: TextIO  # everything else

    def run(self, view: Callable[[ClusterReader], Awaitable[int]]) -> int:
        """Run :meth:`answer` in a new event loop and return the exit code."""
        return self.run_to_end(self.answer(view))

    def run_to_end(self, work: Coroutine[object, object, int]) -> int:
        """Run *work* in a new event loop and return the exit code."""
        try:
            return asyncio.run(work)
        except KeyboardInterrupt:
            return INTERRUPTED

    async def answer(self, view: Callable[[ClusterReader], Awaitable[int]]) -> int:
        """Let *view* read the cluster and return its exit code; print errors and return 1."""

        async def work() -> int:
            async with connect(self.target) as cluster:
                reader = ClusterReader(cluster, self.system, self.warn)
                code = await view(reader)
                reader.warn_of_missing_rights()
                return code

        return await self.guard(work())

    async def guard(self, work: Awaitable[int]) -> int:
        """Return the exit code of *work*; print what it raises and return 1."""
        try:
            return await work
        except (QuestionError, UnusableError, KubeError) as error:
            self.note(error_message(error))
            return ERROR

    def warn(self, text: str) -> None:
        """Write a warning to the error stream."""
        self.note(f"Warning: {text}")

    def note(self, text: str) -> None:
        """Write *text* to the error stream, without what a terminal would obey."""
        self.errors.write(f"{inert_lines(text)}\n")

    def print(self, lines: Iterable[str]) -> None:
        """Write *lines* to the output, without what a terminal would obey."""
        self.output.writelines(f"{inert_lines(line)}\n" for line in lines)
        self.output.flush()


def error_message(  # noqa: PLR0911 -- one for each kind
    error: QuestionError | UnusableError | KubeError,
) -> str:
    """Return what a user of kubectl expects to read; a refusal names verb and resource."""
    match error:
        case ApiError(reason="Console", status=status):  # ConsoleRefusalError, slow to import
            return f"Error from the console ({status}): {error.message}"
        case ApiError(status=status) if status == UNAUTHORIZED:
            return "error: You must be logged in to the server (Unauthorized)"
        case NotFoundError(reason="Unknown"):  # a path that the API server does not know
            kind = f'the server doesn\'t have a resource type "{PLURAL}.{GROUP}"'
            return f"error: {kind}: {_INSTALLED}"
        case ApiError(status=status) if status == FORBIDDEN and PLURAL in error.message:
            role = f"the ClusterRole {READER_ROLE} grants it"
            return f"Error from server ({error.reason}): {error.message}; {role}"
        case ApiError():
            return f"Error from server ({error.reason}): {error.message}"
        case UnreachableError():
            return f"Unable to connect to the server: {error}"
        case _:
            return f"error: {error}"
