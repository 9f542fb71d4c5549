"""Writes lines with tones: laid out for the terminal, coloured on it, plain everywhere else."""

import codecs
import io
import os
from collections.abc import Iterable, Mapping
from typing import Final, TextIO

from allocator.report.terminal_lines import (
    NARROWEST,
    WIDEST,
    WIDTH,
    Line,
    PrintedLine,
    TextSpan,
    Tone,
    plain_text,
    printed_lines,
)

# SGR parameters of ECMA-48, the escape sequences that every terminal knows.
_SGR: Final = {
    Tone.PLAIN: "",
    Tone.LABEL: "2",
    Tone.STRONG: "1",
    Tone.GOOD: "32",
    Tone.WARN: "33",
    Tone.BAD: "31",
}
# What stands for a character that the encoding of a stream lacks, such as cp1252 on Windows.
_SUBSTITUTES: Final = {"─": "-", "…": "...", "≤": "<=", "≥": ">=", "→": "->"}
_SUBSTITUTE: Final = "vgpu-substitute"


def show(
    lines: Iterable[Line], stream: TextIO, environment: Mapping[str, str] = os.environ
) -> None:
    """Write *lines* to *stream*, as wide as :func:`terminal_width` says, and flush it.

    They are coloured where :func:`use_colour` allows it.
    """
    write_anything(stream)
    text = _coloured if use_colour(stream, environment) else plain_text
    printed = printed_lines(lines, terminal_width(stream, environment))
    stream.writelines(f"{text(line)}\n" for line in printed)
    stream.flush()


def terminal_width(stream: TextIO, environment: Mapping[str, str] = os.environ) -> int:
    """Return the columns to lay text out for: those of ``COLUMNS``, or of the terminal.

    It is :data:`WIDTH` where *stream* is no terminal, and always 40 to 200.
    """
    stated = environment.get("COLUMNS", "")
    if stated.isascii() and stated.isdigit() and 0 < len(stated.lstrip("0")) <= len("9999"):
        columns = int(stated)
    else:
        try:
            columns = os.get_terminal_size(stream.fileno()).columns or WIDTH
        except (OSError, ValueError):  # no terminal, or no file at all
            columns = WIDTH
    return min(max(columns, NARROWEST), WIDEST)


def write_anything(stream: TextIO) -> None:
    """Let *stream* take every character, whatever its encoding; those it lacks are replaced."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors=_SUBSTITUTE)


def _substitute(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_SUBSTITUTES.get(character, "?") for character in lacking), error.end


codecs.register_error(_SUBSTITUTE, _substitute)


def _coloured(line: PrintedLine) -> str:
    return "".join(map(_coloured_span, line)).rstrip()


def _coloured_span(span: TextSpan) -> str:
    parameter = _SGR[span.tone]
    return f"\x1b[{parameter}m{span.text}\x1b[0m" if parameter and span.text else span.text


def use_colour(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Say whether *stream* is a terminal and the user did not opt out (no-color.org)."""
    plain = environment.get("NO_COLOR") or environment.get("TERM") == "dumb"
    return stream.isatty() and not plain
