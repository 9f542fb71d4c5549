"""Input files of a command: read within bounds, and named safely in messages."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final, TextIO

from allocator.config.document import MAX_BYTES
from allocator.config.manifest import DEFAULT_NAMESPACE, ManifestPod, P, pods_in
from allocator.config.pod_templates import ACCEPTED
from allocator.config.settings import DEFAULTS, Settings, SettingsError, load_settings
from allocator.model.problem import Loaded, Problem, Rejected
from allocator.model.untrusted import inert
from allocator.report.together import PodOfFile

STANDARD_INPUT: Final = "-"
MANIFESTS: Final = (".json", ".yaml", ".yml")  # how the manifests of a folder end
MOST_FILES: Final = 1000  # of one folder
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


def read(name: str, standard_input: BinaryIO, *, most: int = MAX_BYTES) -> str:
    """Return the text of a file, or of standard input for ``-``; raises :class:`UnusableError`.

    At most *most* + 1 bytes are read, so that an endless device or pipe does no harm.
    """
    try:
        if name == STANDARD_INPUT:
            data = standard_input.read(most + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(most + 1)
        if len(data) > most:
            raise UnusableError(f"{display_name(name)}: too large; accepted: at most {most} bytes")
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


def manifest_files(name: str) -> tuple[str, ...]:
    """Return the manifests that *name* stands for: itself, or those of a folder in name order.

    As for kubectl, these are the files whose names end in .json, .yaml or .yml, not those of inner
    folders. Raises :class:`UnusableError` for a folder without any, or with too many.
    """
    folder = Path(name)
    try:
        if name == STANDARD_INPUT or not folder.is_dir():
            return (name,)
        files = sorted(
            str(file) for file in folder.iterdir() if file.suffix in MANIFESTS and file.is_file()
        )
    except (OSError, ValueError) as error:
        why = str(getattr(error, "strerror", None) or error).lower()
        raise UnusableError(
            f"{display_name(name)}: {why}; accepted: a folder that can be read"
        ) from error
    if not 0 < len(files) <= MOST_FILES:
        what = f"{len(files)} files with a name that ends in {', '.join(MANIFESTS)}"
        raise UnusableError(f"{display_name(name)}: {what}; accepted: 1 to {MOST_FILES}")
    return tuple(files)


def pods_of_all(
    names: Iterable[str], kind: type[P], streams: Streams, *, namespace: str = ""
) -> list[PodOfFile[P]]:
    """Return the pods of all manifests and folders; raises :class:`UnusableError`.

    A file of a folder may hold no pod, as long as another one does.
    """
    pods: list[PodOfFile[P]] = []
    numbers = count()
    for given in names:
        files, before = manifest_files(given), len(pods)
        for name in files:
            number, text = next(numbers), read(name, streams.input)
            parsed = pods_in(
                text, kind, namespace=namespace or DEFAULT_NAMESPACE, needed=files == (given,)
            )
            pods += [
                PodOfFile(file=display_name(name), number=number, made=made)
                for made in _usable_pods(name, parsed, errors=streams.errors)
            ]
        if len(pods) == before:
            raise UnusableError(f"{display_name(given)}: no pod found; accepted: {ACCEPTED}")
    return pods


def settings_of(name: str | None, streams: Streams) -> Settings:
    """Return the settings in the file *name*, the defaults for none.

    A line on the errors of *streams* names each setting that is not known. Raises
    :class:`UnusableError`.
    """
    if name is None:
        return DEFAULTS
    try:
        loaded = load_settings(read(name, streams.input))
    except SettingsError as error:
        raise UnusableError(f"{display_name(name)}: {error}") from error
    streams.errors.writelines(
        f"{display_name(name)}: {inert(str(warning))}\n" for warning in loaded.warnings
    )
    return loaded.value


def pods_of(name: str, text: str, kind: type[P], *, errors: TextIO) -> tuple[ManifestPod[P], ...]:
    """Return the pods in the *text* of the file *name*; raises :class:`UnusableError`.

    A line on *errors* names each skipped document.
    """
    return _usable_pods(name, pods_in(text, kind), errors=errors)


def _usable_pods(
    name: str, parsed: Loaded[tuple[ManifestPod[P], ...]] | Rejected, *, errors: TextIO
) -> tuple[ManifestPod[P], ...]:
    if isinstance(parsed, Rejected):
        raise UnusableError(problems_text(name, parsed.problems))
    errors.writelines(
        f"{display_name(name)}: {inert(f'{warning.path}: {warning.what}')}; skipped\n"
        for warning in parsed.warnings[:MOST_PROBLEMS]
    )
    return parsed.value


def problems_text(name: str, problems: Sequence[Problem]) -> str:
    """Return a line for each of the first ``MOST_PROBLEMS`` problems of the file *name*."""
    lines = [f"{display_name(name)}: {inert(str(problem))}" for problem in problems[:MOST_PROBLEMS]]
    more = len(problems) - len(lines)
    return "\n       ".join([*lines, f"and {more} more"] if more else lines)


def display_name(name: str) -> str:
    """Return the name of the file in messages, without control characters."""
    if name == STANDARD_INPUT:
        return "standard input"
    return inert(name)
