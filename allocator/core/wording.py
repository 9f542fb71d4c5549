"""Wording: how text that a stranger wrote is shown inside a sentence of ours."""

from collections.abc import Iterable, Sequence
from typing import Final

LONGEST: Final = 64  # characters


def escaped(value: str | int) -> str:
    """Return *value* cut to 64 characters, with whatever is not printable escaped.

    Quotes and backslashes are escaped too, so that the text may stand between quotes.
    """
    text = str(value)
    if len(text) <= LONGEST and text.isprintable() and not ('"' in text or "\\" in text):
        return text  # nearly always; names and paths are shown in every decision record
    escaped = "".join(map(_printable, text[: LONGEST + 1]))
    return escaped if len(escaped) <= LONGEST else f"{escaped[: LONGEST - 1]}…"


def all_shown(texts: Sequence[str]) -> Sequence[str]:
    """Return each of *texts* as :func:`shown`; nearly always they are that already."""
    plain = "".join(texts)
    if plain.isprintable() and not ('"' in plain or "\\" in plain) and _all_short(texts):
        return texts
    return [escaped(text) for text in texts]


def _all_short(texts: Iterable[str]) -> bool:
    for text in texts:  # noqa: SIM110 -- compiled, a loop costs less than a generator
        if len(text) > LONGEST:
            return False
    return True


def quote(value: str | int) -> str:
    """Return *value* as :func:`shown`, between double quotes."""
    return f'"{escaped(value)}"'


def _printable(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else ascii(character)[1:-1]
