"""Text from strangers: showing it, using it as a name, parsing it as a time or bounded JSON."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

LONGEST: Final = 64  # characters
LONGEST_NAME: Final = 253  # characters of an object's name
_LONG: Final = 100  # characters; to look each of more up would take three times as long
_PLAIN_ASCII: Final = bytes(range(0x20, 0x7F))
_SHOWN_ASCII: Final = _PLAIN_ASCII.translate(None, b'"\\')
# What Unicode calls printable and nobody sees: fillers, joiners and selectors without a glyph.
_INVISIBLE: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
)


def is_plain(text: str) -> bool:
    """Say whether a reader sees each character of *text*, and a terminal obeys none."""
    if len(text) > _LONG and text.isascii():
        return not text.encode().translate(None, _PLAIN_ASCII)
    return text.isprintable() and (text.isascii() or _INVISIBLE.isdisjoint(text))


def inert(text: str) -> str:
    """Return *text* with a sign for each character that is not plain (:func:`is_plain`).

    Those are control and format characters, such as escape sequences and what turns text round,
    separators of lines, and half characters.
    """
    return text if is_plain(text) else "".join([c if is_plain(c) else "\ufffd" for c in text])


def inert_lines(text: str) -> str:
    """Return *text* of several lines with :func:`inert` applied to each."""
    return "\n".join(map(inert, text.split("\n")))


def plain_json(text: str) -> str:
    """Return the JSON *text* with an escape for each character that is not plain.

    It means the same: such characters stand only between quotes, except the line breaks of an
    indented text, which stay.
    """
    return "\n".join(
        line if is_plain(line) else "".join([c if is_plain(c) else _json_escape(c) for c in line])
        for line in text.split("\n")
    )


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join([f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4)])


def escaped(value: str | int, longest: int = LONGEST) -> str:
    """Return *value* cut to *longest* characters, with unprintable characters escaped.

    Quotes and backslashes are escaped too, so that the text may stand between quotes.
    """
    text = str(value)
    if is_shown(text, longest):
        return text  # nearly always; names and paths are shown in every decision record
    escaped = "".join(map(_printable, text[: longest + 1]))
    return escaped if len(escaped) <= longest else f"{escaped[: longest - 1]}…"


def is_shown(text: str, longest: int = LONGEST) -> bool:
    """Say whether :func:`escaped` returns *text* as it is."""
    return len(text) <= longest and _needs_no_escape(text)


def all_shown(texts: Sequence[str], longest: int = LONGEST) -> Sequence[str]:
    """Return *texts* with :func:`escaped` applied to each; most need no change."""
    if _all_short(texts, longest) and _needs_no_escape("".join(texts)):
        return texts
    return [escaped(text, longest) for text in texts]


def _needs_no_escape(text: str) -> bool:
    if len(text) > _LONG and text.isascii():
        return not text.encode().translate(None, _SHOWN_ASCII)
    return is_plain(text) and not ('"' in text or "\\" in text)


def _all_short(texts: Iterable[str], longest: int) -> bool:
    for text in texts:  # noqa: SIM110 -- compiled, a loop costs less than a generator
        if len(text) > longest:
            return False
    return True


def quote(value: str | int) -> str:
    """Return *value* as :func:`escaped` does, in double quotes."""
    return f'"{escaped(value)}"'


def _printable(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if is_plain(character) else ascii(character)[1:-1]


_LONGEST: Final = 253
_ALLOWED: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")


def is_safe_name(name: str) -> bool:
    """Say whether *name*, which may be hostile, can be part of a path.

    The API server checks names only after the webhooks ran.
    """
    return 0 < len(name) <= _LONGEST and name[0] != "." and _ALLOWED.issuperset(name)


def zoned_time(text: str | None) -> datetime | None:
    """Return the time that *text* states by ISO 8601; ``None`` where it states none, or no zone.

    A time beyond the year 9999, at which the longest of grace periods ends, is none either.
    """
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


DEEPEST: Final = 16  # levels; an assignment has four


def parse_untrusted_json(text: str) -> object:
    """Return the JSON value of *text*; ``None`` where it is malformed or deeper than DEEPEST.

    The limit on depth lets callers walk through the value recursively.
    """
    try:
        value: object = msgspec.json.decode(text) if text else None
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return value if _is_shallow(value, DEEPEST) else None


def _is_shallow(value: object, levels: int) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_shallow(part, levels - 1) for part in parts)
