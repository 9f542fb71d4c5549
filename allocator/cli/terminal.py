"""Writes lines with tones: coloured on a terminal, plain everywhere else."""

import os
from collections.abc import Iterable, Mapping
from typing import Final, TextIO

from rich.console import Console
from rich.text import Text

from allocator.report.terminal_lines import Line, Tone

_STYLES: Final = {
    Tone.PLAIN: "",
    Tone.LABEL: "dim",
    Tone.STRONG: "bold",
    Tone.GOOD: "green",
    Tone.WARN: "yellow",
    Tone.BAD: "red",
}


def show(
    lines: Iterable[Line], stream: TextIO, environment: Mapping[str, str] = os.environ
) -> None:
    """Write *lines* to *stream* and flush it; coloured where :func:`use_colour` allows it."""
    if use_colour(stream, environment):
        console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)
        for line in lines:
            console.print(Text.assemble(*((span.text, _STYLES[span.tone]) for span in line)))
    else:
        stream.writelines(f"{''.join(span.text for span in line).rstrip()}\n" for line in lines)
    stream.flush()


def use_colour(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Say whether *stream* is a terminal and the user did not opt out (no-color.org)."""
    plain = environment.get("NO_COLOR") or environment.get("TERM") == "dumb"
    return stream.isatty() and not plain
