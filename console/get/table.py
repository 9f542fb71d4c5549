"""Tables as kubectl prints them, and the text of amounts and ages in their cells."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from allocator.catalog.boards import bare_name
from allocator.model.units import MiB
from allocator.model.untrusted import escaped, inert

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"
GAP: Final = "   "
_NUMBERS: Final = re.compile("([0-9]+)")
_QUOTED: Final = re.compile('[",]')


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, headed: bool = True
) -> Iterator[str]:
    """Yield lines with aligned columns and without trailing blanks.

    Control characters in cells are made harmless.
    """
    cells = [[inert(cell) for cell in row] for row in rows]
    lines = [columns, *cells] if headed else cells
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for row in lines:
        yield GAP.join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip()


def sort_key(cell: str) -> tuple[bool, Sequence[tuple[int, str]]]:
    """Return a sort key: numbers by value, missing values last.

    Numbers are compared by their digits, since a tenant may have written more of them than
    Python converts.
    """
    parts = (part.lstrip("0") if part.isdecimal() else part for part in _NUMBERS.split(cell))
    # Texts and numbers alternate, so that neither is ever compared with the other.
    key = [(len(part) if number % 2 else 0, part) for number, part in enumerate(parts)]
    return cell in (NONE, UNKNOWN), key


def csv_line(cells: Sequence[str]) -> str:
    """Return one line of comma-separated values (RFC 4180)."""
    plain = (inert(cell) for cell in cells)
    return ",".join('"' + c.replace('"', '""') + '"' if _QUOTED.search(c) else c for c in plain)


def word(text: str) -> str:
    """Return *text* as one printable word, so that a line can be split at its blanks."""
    return "-".join(escaped(text).split()) or NONE


def model(product: str) -> str:
    """Return a product's name as one word."""
    return word(bare_name(product))


def amount(memory: MiB | None) -> str:
    """Return memory with its unit, as Kubernetes writes it."""
    return NONE if memory is None else f"{memory}Mi"


def share(part: int, whole: int) -> str:
    """Return a share as whole percent."""
    return f"{100 * part // whole}%" if whole else NONE


def age(since: datetime | None, now: datetime) -> str:
    """Return the time since *since* as kubectl prints it: 40s, 5m30s, 5h40m, 3d4h, 31d."""
    return UNKNOWN if since is None else span(now - since)


def span(passed: timedelta) -> str:
    """Return a duration with two units at most, as kubectl cuts it; clocks may disagree."""
    seconds = max(0, int(passed.total_seconds()))
    for limit, unit, lower, small in _SPANS:
        if seconds < limit:
            rest = seconds % unit[0] // lower if small else 0
            return f"{seconds // unit[0]}{unit[1]}" + (f"{rest}{small}" if rest else "")
    return f"{seconds // _DAY}d"


_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
# Up to the limit: the unit in seconds with its letter, then the smaller one, if it is shown.
_SPANS: Final = (
    (2 * _MINUTE, (1, "s"), 1, ""),
    (10 * _MINUTE, (_MINUTE, "m"), 1, "s"),
    (3 * _HOUR, (_MINUTE, "m"), 1, ""),
    (8 * _HOUR, (_HOUR, "h"), _MINUTE, "m"),
    (2 * _DAY, (_HOUR, "h"), 1, ""),
    (8 * _DAY, (_DAY, "d"), _HOUR, "h"),
)
