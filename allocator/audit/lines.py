"""Records as lines of JSON, none of them longer than a reader expects.

A record of usual size is encoded once and costs nothing else. One that is too large, or holds what
JSON cannot, is cut; then ``cut`` is true in it.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from allocator.model.untrusted import inert

LARGEST: Final = 16 * 1024  # bytes of a line
# Settings and snapshots are kept whole, because decisions are replayed on them.
LARGEST_CONTENT: Final = 1024 * 1024  # bytes of a line
_WHOLE: Final = frozenset({"settings", "snapshot"})
_EXPENDABLE: Final = ("asked", "changes")  # what goes first of a record that is too large
# Bytes of a text and items of a list that are kept, at each further attempt.
_ATTEMPTS: Final = ((256, 16), (128, 4), (64, 1))
_DEEPEST: Final = 5
_MOST_FIELDS: Final = 64
_LARGEST_NUMBER: Final = 2**53


def line_of(record: Mapping[str, Any]) -> bytes | None:
    """Return *record* as a line of at most ``LARGEST`` bytes, ``None`` where that cannot be.

    Settings and snapshots have at most ``LARGEST_CONTENT`` bytes and are never cut.
    """
    whole = record.get("kind") in _WHOLE
    line = _encoded(record)
    if line is not None and len(line) <= (LARGEST_CONTENT if whole else LARGEST):
        return line
    return None if whole else _cut_line(record)


def fields_of(record: Mapping[str, Any]) -> bytes:
    """Return the JSON of the fields of *record*, without its braces; empty if that cannot be."""
    line = _encoded(record)
    return b"" if line is None else line[1:-2]


def _encoded(record: Mapping[str, Any]) -> bytes | None:
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # such as half a character, or a number that is too large
        return None


def _cut_line(record: Mapping[str, Any]) -> bytes | None:
    left = dict(record)
    for name in _EXPENDABLE:
        if left.pop(name, None):
            line = _encoded({**left, "cut": True})
            if line is not None and len(line) <= LARGEST:
                return line
    for longest, most in _ATTEMPTS:
        smaller = {name: _cut(value, longest, most, depth=1) for name, value in left.items()}
        line = _encoded({**smaller, "cut": True})
        if line is not None and len(line) <= LARGEST:
            return line
    return None


def _cut(value: Any, longest: int, most: int, *, depth: int) -> Any:  # noqa: ANN401 -- JSON
    """Return *value* with texts of *longest* bytes and lists of *most* items."""
    match value:
        case str():
            return _cut_text(value, longest)
        case bool() | None:
            return value
        case int() | float():
            return value if abs(value) <= _LARGEST_NUMBER else None
        case Mapping() if depth < _DEEPEST:
            fields = list(value.items())[: _MOST_FIELDS if depth == 0 else max(most, 8)]
            return {
                _cut_text(str(key), longest): _cut(item, longest, most, depth=depth + 1)
                for key, item in fields
            }
        case list() | tuple() if depth < _DEEPEST:
            return [_cut(item, longest, most, depth=depth + 1) for item in value[:most]]
        case _:
            return None


def _cut_text(text: str, longest: int) -> str:
    plain = inert(text[:longest])
    return plain.encode()[:longest].decode(errors="ignore")
