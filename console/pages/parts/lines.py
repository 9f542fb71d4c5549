"""Lines of the terminal as facts of a page: labels with what is said behind them."""

from collections.abc import Iterable
from typing import Final

from allocator.report.terminal_lines import (
    CutLine,
    HeadingLine,
    Line,
    ListLine,
    Tone,
    WrappedLine,
)
from console.languages.messages import message
from console.pages.parts.blocks import FactList
from console.pages.parts.cell import TableCell, word

# The labels and verdicts that lines of ours begin with; what is said behind them is English.
_LABELS: Final = {
    str(label): label
    for label in (
        message("admitted"),
        message("asked"),
        message("bound"),
        message("events"),
        message("given"),
        message("holds"),
        message("limits"),
        message("missing"),
        message("no entry"),
        message("nodes"),
        message("now"),
        message("or after"),
        message("pod"),
        message("pods"),
        message("refused"),
        message("reserved"),
        message("stale"),
        message("tried"),
        message("try"),
        message("waits"),
        message("warning"),
        message("why"),
        message("WAITING"),
        message("RESERVED"),
        message("BOUND"),
        message("FAILING"),
        message("RUNNING"),
        message("BYPASSED"),
        message("ENDED"),
        message("GONE"),
    )
}
_WORDS: Final = {
    str(word): word
    for word in (
        message("FITS NOW"),
        message("NO REQUEST"),
        message("NOT NOW"),
        message("NEVER FITS"),
        message("REFUSED"),
    )
}


def facts_of(title: str, lines: Iterable[Line], *, name: str = "") -> FactList:
    """Return *lines* as facts; a line without a label belongs to the label before it."""
    rows: list[tuple[str, list[TableCell]]] = []
    for line in lines:
        label, cell = _label_and_text(line)
        if label or not rows:
            rows.append((label, []))
        rows[-1][1].append(cell)
    return FactList(
        title=title, name=name, rows=tuple((label, tuple(cells)) for label, cells in rows)
    )


def _label_and_text(line: Line) -> tuple[str, TableCell]:
    match line:
        case HeadingLine(title=title, word=text, tone=tone):
            return title, word(_WORDS.get(text, text), tone)
        case WrappedLine(head=head, text=text, tone=tone):
            return _LABELS.get(head.strip(), head.strip()), word(text, tone)
        case ListLine(head=head, start=start, items=items, tone=tone):
            texts = ", ".join(dict.fromkeys(items))
            return "", word(f"{' '.join(head.split())}: {start}{texts}", tone)
        case CutLine(head=head, text=text, tone=tone, end=end):
            return head.strip(), word(f"{text}{end.text}", tone)
        case _:
            return "", word("".join(span.text for span in line).strip(), Tone.PLAIN)
