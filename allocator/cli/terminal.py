"""Terminal: lines with tones, in colour where a person reads them and plain everywhere else."""

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
    """Write *lines* to *stream* at once, plain unless it is a terminal that may be coloured."""
    if use_colour(stream, environment):
        console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)
        for line in lines:
            console.print(Text.assemble(*((span.text, _STYLES[span.tone]) for span in line)))
    else:
        stream.writelines(f"{''.join(span.text for span in line).rstrip()}\n" for line in lines)
    stream.flush()


def use_colour(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Say whether colour is welcome: a terminal, and nobody asked for none (no-color.org)."""
    plain = environment.get("NO_COLOR") or environment.get("TERM") == "dumb"
    return stream.isatty() and not plain
