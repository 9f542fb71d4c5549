"""Input files of a command: read within bounds, and named safely in messages."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TextIO

from allocator.config.document import MAX_BYTES
from allocator.config.manifest import DEFAULT_NAMESPACE, ManifestPod, P, pods_in
from allocator.model.problem import Problem, Rejected
from allocator.report.terminal_lines import inert

STANDARD_INPUT: Final = "-"
MOST_PROBLEMS: Final = 20  # shown of one file


class UnusableError(Exception):
    """A file that cannot be used; the text names the file, the place and the accepted values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Where a command reads and writes."""

    input: BinaryIO
    output: TextIO
    errors: TextIO

    @classmethod
    def standard(cls) -> "Streams":
        """Return the streams of this process."""
        return cls(input=sys.stdin.buffer, output=sys.stdout, errors=sys.stderr)


def read(name: str, standard_input: BinaryIO) -> str:
    """Return the text of a file, or of standard input for ``-``; raises :class:`UnusableError`.

    At most ``MAX_BYTES`` + 1 bytes are read, so that an endless device or pipe does no harm.
    """
    try:
        if name == STANDARD_INPUT:
            data = standard_input.read(MAX_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UnusableError(
                f"{display_name(name)}: too large; accepted: at most {MAX_BYTES} bytes"
            )
        return data.decode("utf-8-sig")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UnusableError(
            f"{display_name(name)}: {why}; accepted: a file, or - to read one"
        ) from error
    except UnicodeDecodeError as error:
        defect = f"byte {error.start} is not UTF-8"
        raise UnusableError(
            f"{display_name(name)}: {defect}; accepted: YAML or JSON in UTF-8"
        ) from error


def pods_of(
    name: str, text: str, kind: type[P], *, namespace: str = "", errors: TextIO
) -> tuple[ManifestPod[P], ...]:
    """Return the pods in the *text* of the file *name*; raises :class:`UnusableError`.

    A line on *errors* names each skipped document.
    """
    pods = pods_in(text, kind, namespace=namespace or DEFAULT_NAMESPACE)
    if isinstance(pods, Rejected):
        raise UnusableError(problems_text(name, pods.problems))
    errors.writelines(
        f"{display_name(name)}: {warning.path}: {warning.what}; skipped\n"
        for warning in pods.warnings[:MOST_PROBLEMS]
    )
    return pods.value


def problems_text(name: str, problems: Sequence[Problem]) -> str:
    """Return a line for each of the first ``MOST_PROBLEMS`` problems of the file *name*."""
    lines = [f"{display_name(name)}: {problem}" for problem in problems[:MOST_PROBLEMS]]
    more = len(problems) - len(lines)
    return "\n       ".join([*lines, f"and {more} more"] if more else lines)


def display_name(name: str) -> str:
    """Return the name of the file in messages, without control characters."""
    if name == STANDARD_INPUT:
        return "standard input"
    return inert(name)
