"""Wording: how text that a stranger wrote is shown inside a sentence of ours."""

from typing import Final

LONGEST: Final = 64  # characters


def shown(value: str | int) -> str:
    """Return *value* cut to 64 characters, with whatever is not printable escaped.

    Quotes and backslashes are escaped too, so that the text may stand between quotes.
    """
    text = str(value)
    if len(text) <= LONGEST and text.isprintable() and not ('"' in text or "\\" in text):
        return text  # nearly always; names and paths are shown in every decision record
    escaped = "".join(map(_printable, text[: LONGEST + 1]))
    return escaped if len(escaped) <= LONGEST else f"{escaped[: LONGEST - 1]}…"


def quoted(value: str | int) -> str:
    """Return *value* as :func:`shown`, between double quotes."""
    return f'"{shown(value)}"'


def _printable(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else ascii(character)[1:-1]
