"""Lines: sentences for people in at most 80 columns, each part with the tone it is said in."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

WIDTH: Final = 80
INDENT: Final = 10  # columns of the labels


class Tone(StrEnum):
    """How something is said; a terminal may colour it, and nothing is said by colour alone."""

    PLAIN = "plain"
    LABEL = "label"
    STRONG = "strong"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class TextSpan:
    """A piece of a line."""

    text: str
    tone: Tone = Tone.PLAIN


Line = tuple[TextSpan, ...]


def heading(title: str, word: str, tone: Tone) -> Line:
    """Return the line that begins a page: *title*, and at its end a *word* said in *tone*."""
    shown = cut(inert(title), WIDTH - len(word) - 4)
    rule = "─" * (WIDTH - len(shown) - len(word) - 2)
    return TextSpan(shown, Tone.STRONG), TextSpan(f" {rule} ", Tone.LABEL), TextSpan(word, tone)


def row(label: str, text: str, tone: Tone = Tone.PLAIN) -> Iterator[Line]:
    """Yield *text*, wrapped, behind its *label*; what a terminal would obey is taken out."""
    wrapped = textwrap.wrap(inert(text), WIDTH - INDENT, break_on_hyphens=False)
    for number, part in enumerate(wrapped):
        head = "" if number else label
        yield TextSpan(f"{head:<{INDENT}}", Tone.LABEL), TextSpan(part, tone)


def inert(text: str) -> str:
    """Return *text* with nothing in it that a terminal would obey."""
    return "".join(c if c.isprintable() else "�" for c in text)


def cut(text: str, width: int) -> str:
    """Return *text*, with an ellipsis where it was longer than *width*."""
    return text if len(text) <= width else f"{text[: width - 1]}…"
