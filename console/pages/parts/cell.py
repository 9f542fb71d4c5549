"""Cells of pages: text with its exact value, its link, its time and its tone."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from allocator.report.terminal_lines import Tone
from console.languages.messages import PageMessage, message
from console.pages.parts.durations import duration

DASH: Final = "\N{EN DASH}"  # unknown, or nothing; never shown as 0
MARKS: Final = {
    Tone.GOOD: "✓",
    Tone.BAD: "✕",
    Tone.WARN: "!",
}  # a tone is never told by colour alone


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """What stands in one place of a page."""

    text: str
    value: object = None  # in JSON and CSV; None: the text, or null where that is a dash
    href: str = ""
    at: str = ""  # RFC 3339, where the text is a time
    tone: Tone = Tone.PLAIN
    mark: str = ""  # the shape that goes with the tone
    code: bool = False  # a name or a number of a machine, which is not translated
    note: str = ""  # a second line
    title: str = ""  # why it is a dash, or the whole of what the text abridges

    @property
    def exact(self) -> object:
        """Return the value for programs; ``None`` where it is unknown."""
        if self.value is not None:
            return self.value
        return None if self.text == DASH else str(self.text)  # English, without its template


def unknown(title: str = "") -> TableCell:
    """Return a dash, and why it is one."""
    return TableCell(text=DASH, title=title)


def plain(text: str, *, href: str = "", note: str = "", why: str = "") -> TableCell:
    """Return *text*; a dash with the reason *why* where it is empty."""
    return TableCell(text=text, href=href, note=note) if text else replace(unknown(why), note=note)


def code(text: str, *, href: str = "", note: str = "", why: str = "") -> TableCell:
    """Return the name of something in a cluster; a dash where it is empty."""
    return replace(plain(text, href=href, note=note, why=why), code=bool(text))


def word(text: str, tone: Tone, *, mark: str = "", note: str = "") -> TableCell:
    """Return a word with its tone, and the shape that tells it without colour."""
    return TableCell(text=text, tone=tone, mark=mark or MARKS.get(tone, ""), note=note)


def number(value: int | None, *, why: str = "", href: str = "") -> TableCell:
    """Return a number with separators of thousands."""
    if value is None:
        return unknown(why)
    return TableCell(text=f"{value:,}", value=value, href=href)


def mib(value: int | None, *, why: str = "") -> TableCell:
    """Return an amount of memory in MiB."""
    return unknown(why) if value is None else TableCell(text=f"{value:,} MiB", value=value)


def percent(part: float, whole: float) -> TableCell:
    """Return a share without decimals; a dash where there is no whole."""
    if not whole:
        return unknown(message("there is nothing that it could be a share of"))
    share = round(100 * part / whole)
    return TableCell(text=f"{share} %", value=share)


def promised(part: int, whole: int) -> TableCell:
    """Return MiB of a whole, with their share."""
    share = f" ({percent(part, whole).text})" if whole else ""
    return TableCell(text=f"{part:,} MiB{share}", value=part)


def hours(value: float) -> TableCell:
    """Return an amount times hours, with one decimal."""
    return TableCell(text=f"{value:,.1f}", value=round(value, 3))


def time_of(text: str) -> datetime | None:
    """Read RFC 3339; ``None`` where it is malformed, or names no zone."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def stamp(moment: datetime) -> str:
    """Return *moment* in RFC 3339 in UTC, with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def absolute(moment: datetime) -> str:
    """Return *moment* for people, in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def ago(text: str, now: datetime, *, why: str = "") -> TableCell:
    """Return how long ago the time *text* is; what cannot be read stands as it is."""
    if not text:
        return unknown(why)
    moment = time_of(text)
    if moment is None:
        return TableCell(text=text)
    when = absolute(moment)
    return TableCell(text=_relative(now - moment), value=text, at=stamp(moment), title=when)


def at(text: str, now: datetime, *, why: str = "") -> TableCell:
    """Return the time *text* in UTC, and below it how long ago that is."""
    cell = ago(text, now, why=why)
    return replace(cell, text=cell.title, note=cell.text, title="") if cell.at else cell


def _relative(passed: timedelta) -> PageMessage:
    ahead = passed < timedelta(seconds=-1)
    if ahead:
        return message("in {duration}", duration=duration(-passed))
    return message("{duration} ago", duration=duration(passed))
