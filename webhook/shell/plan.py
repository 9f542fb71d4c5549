"""The plan command: reads manifests and a fleet file, prints what would become of each pod."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final, TextIO

import orjson

from allocator.core.deviceconfig import DeviceConfig
from allocator.core.document import MAX_BYTES
from allocator.core.fleet import snapshot_of
from allocator.core.fleetfile import load_fleet
from allocator.core.settings import DEFAULTS, Settings, SettingsError, settings_of
from allocator.core.spoken import spoken
from allocator.model.problem import Problem, Rejected
from webhook.core.manifest import Made, pods_in
from webhook.core.mutate import Surroundings
from webhook.core.plan import Plan, exit_code, plan
from webhook.core.plandocument import document
from webhook.core.plantext import lines
from webhook.shell.terminal import show

STANDARD_INPUT: Final = "-"
MOST_PROBLEMS: Final = 20  # shown of one file
ERROR: Final = 1  # the question could not be answered


class Output(StrEnum):
    """How plans are printed."""

    TEXT = "text"
    JSON = "json"


class UnusableError(Exception):
    """A file that cannot be used; the text names it, the place in it, and what would do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Where a command reads and writes."""

    input: BinaryIO
    output: TextIO
    errors: TextIO

    @classmethod
    def standard(cls) -> "Streams":
        """Return those of this process."""
        return cls(input=sys.stdin.buffer, output=sys.stdout, errors=sys.stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked: *files* may name standard input as ``-``."""

    files: Sequence[str]
    fleet: str
    settings: str | None = None
    output: Output = Output.TEXT


def answer(question: Question, streams: Streams) -> int:
    """Print a plan for each pod and return the exit code that docs/plan.md describes.

    Where one file cannot be used, nothing is planned: half an answer would be mistaken for one.
    """
    try:
        around = surroundings(
            fleet=read(question.fleet, streams.input),
            name=question.fleet,
            settings=_settings(question.settings, streams.input),
        )
        pods = [
            (name, made)
            for name in question.files
            for made in pods_of(name, read(name, streams.input), streams.errors)
        ]
    except UnusableError as error:
        streams.errors.write(f"error: {error}\n")
        return ERROR
    plans = [(named(name), plan(made, around)) for name, made in pods]
    _print(plans, question.output, streams.output)
    return exit_code(found.verdict for _, found in plans)


def pods_of(name: str, text: str, errors: TextIO) -> tuple[Made, ...]:
    """Return the pods in the *text* of the file *name*; *errors* hears what was passed over.

    Raises :class:`UnusableError`.
    """
    found = pods_in(text)
    if isinstance(found, Rejected):
        raise UnusableError(_listed(name, found.problems))
    errors.writelines(
        f"{named(name)}: {warning.path}: {warning.what}; skipped\n"
        for warning in found.warnings[:MOST_PROBLEMS]
    )
    return found.value


def surroundings(*, fleet: str, name: str, settings: Settings) -> Surroundings:
    """Return what decisions rest on, from the text of the fleet file *name*.

    The namespace is taken for one that admits hostPath volumes, as one without Pod Security
    labels does. Raises :class:`UnusableError`.
    """
    loaded = load_fleet(fleet)
    if isinstance(loaded, Rejected):
        raise UnusableError(_listed(name, loaded.problems))
    return Surroundings(
        settings=settings,
        snapshot=snapshot_of(loaded.value, version="file", complete=True),
        vocabularies=spoken(settings, DeviceConfig()),
        host_paths=True,
    )


def read(name: str, standard_input: BinaryIO) -> str:
    """Return the text of a file, or of standard input; raises :class:`UnusableError`.

    No more is read than a document may have, so that a device or a pipe without end does no harm.
    """
    try:
        if name == STANDARD_INPUT:
            data = standard_input.read(MAX_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UnusableError(f"{named(name)}: too large; accepted: at most {MAX_BYTES} bytes")
        return data.decode("utf-8-sig")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UnusableError(f"{named(name)}: {why}; accepted: a file, or - to read one") from error
    except UnicodeDecodeError as error:
        at = f"byte {error.start} is no UTF-8"
        raise UnusableError(f"{named(name)}: {at}; accepted: YAML or JSON in UTF-8") from error


def _settings(name: str | None, standard_input: BinaryIO) -> Settings:
    if name is None:
        return DEFAULTS
    try:
        return settings_of(read(name, standard_input))
    except SettingsError as error:
        raise UnusableError(f"{named(name)}: {error}") from error


def _listed(name: str, problems: Sequence[Problem]) -> str:
    found = [f"{named(name)}: {problem}" for problem in problems[:MOST_PROBLEMS]]
    more = len(problems) - len(found)
    return "\n       ".join([*found, f"and {more} more"] if more else found)


def named(name: str) -> str:
    """Return what the file *name* is called in messages, with nothing that a terminal obeys."""
    if name == STANDARD_INPUT:
        return "standard input"
    return "".join(c if c.isprintable() else "�" for c in name)


def _print(plans: Sequence[tuple[str, Plan]], output: Output, stream: TextIO) -> None:
    if output is Output.JSON:
        text = orjson.dumps(document(plans), option=orjson.OPT_INDENT_2)
        stream.write(f"{text.decode()}\n")
        return
    for number, (name, found) in enumerate(plans):
        if number:
            stream.write("\n")
        show(lines(found, name), stream)
