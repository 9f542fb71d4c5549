"""Lines for people: text and its tone, laid out at last for the width of a terminal."""

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from allocator.model.untrusted import inert

WIDTH: Final = 80  # columns where nothing tells how wide the terminal is
NARROWEST, WIDEST = 40, 200  # columns that text is laid out for
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


PrintedLine = tuple[TextSpan, ...]  # one line of a terminal, whatever its width


@dataclass(frozen=True, slots=True)
class HeadingLine:
    """The line that begins a page: a title, and at its end a word."""

    title: str
    word: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class WrappedLine:
    """Text that is wrapped behind its head; the head stands on the first line only."""

    head: str
    text: str
    tone: Tone = Tone.PLAIN
    head_tone: Tone = Tone.LABEL


@dataclass(frozen=True, slots=True)
class ListLine:
    """Behind a head as many different items as fit on one line, but the first in any case."""

    head: str
    start: str  # of the text
    items: tuple[str, ...]
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class CutLine:
    """Text on one line, with an ellipsis where it is longer than the terminal is wide."""

    head: str
    text: str
    tone: Tone = Tone.PLAIN
    end: TextSpan = TextSpan("")


Line = PrintedLine | HeadingLine | WrappedLine | ListLine | CutLine


def heading(title: str, word: str, tone: Tone) -> Line:
    """Return the line that begins a page: *title*, and at its end a *word* said in *tone*."""
    return HeadingLine(title, word, tone)


def row(label: str, text: str, tone: Tone = Tone.PLAIN) -> Iterator[Line]:
    """Yield *text* behind its *label*."""
    yield WrappedLine(f"{label:<{INDENT}}", text, tone)


def printed_lines(lines: Iterable[Line], width: int = WIDTH) -> Iterator[PrintedLine]:
    """Yield *lines* as they are printed on a terminal of *width* columns.

    What a terminal would obey is taken out of every part of every line.
    """
    for line in lines:
        for printed in _laid_out(line, width):
            yield tuple([TextSpan(inert(span.text), span.tone) for span in printed])


def _laid_out(line: Line, width: int) -> Iterator[PrintedLine]:
    match line:
        case HeadingLine():
            yield _printed_heading(line, width)
        case WrappedLine():
            yield from _wrapped(line, width)
        case ListLine(head=head, tone=tone):
            text = _joined(line, width - len(head))
            yield from _wrapped(WrappedLine(head, text, tone, Tone.PLAIN), width)
        case CutLine(head=head, tone=tone, end=end):
            text = cut(line.text, width - len(head) - len(end.text))
            yield TextSpan(head), TextSpan(text, tone), end
        case _:
            yield line


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def plain_text(line: PrintedLine) -> str:
    """Return a printed line without tones and trailing blanks."""
    return "".join(span.text for span in line).rstrip()


def _printed_heading(line: HeadingLine, width: int) -> PrintedLine:
    shown = cut(line.title, width - len(line.word) - 4)
    rule = "─" * (width - len(shown) - len(line.word) - 2)
    return (
        TextSpan(shown, Tone.STRONG),
        TextSpan(f" {rule} ", Tone.LABEL),
        TextSpan(line.word, line.tone),
    )


def _wrapped(line: WrappedLine, width: int) -> Iterator[PrintedLine]:
    indent = len(line.head)
    parts = textwrap.wrap(inert(line.text), width - indent, break_on_hyphens=False)
    for number, part in enumerate(parts):
        head = " " * indent if number else line.head
        yield TextSpan(head, line.head_tone), TextSpan(part, line.tone)


def _joined(line: ListLine, width: int) -> str:
    first, *more = dict.fromkeys(line.items)
    text = line.start + first
    for item in more:
        if len(text) + len(item) + len(", , …") > width:
            return f"{text}, …"
        text += f", {item}"
    return text


def cut(text: str, width: int) -> str:
    """Return *text*, with an ellipsis where it was longer than *width*."""
    return text if len(text) <= width else f"{text[: width - 1]}…"
