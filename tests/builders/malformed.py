"""Malformed bodies: documents with values replaced, doubled, renamed or cut off.

The text is changed, not the document: that takes microseconds, and yields what no encoder writes.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import orjson

NESTED: Final = 5000
LONG: Final = 70_000  # more than is answered past ASGI

MALFORMED_VALUES: Final = (
    b"null",
    b"true",
    b"0",
    b"-1",
    b"1.5",
    b"1e400",
    b"NaN",
    b"-Infinity",
    b"18446744073709551616",
    b"-9223372036854775809",
    b"9" * 400,
    b'""',
    b'"n0"',
    b'"../x"',
    b'"../../../../api/v1/namespaces/kube-system/pods?x=#"',
    b'"P_ \\u0000\\r\\n\xf0\x9f\x92\xa5"',
    b'"\\ud800"',
    b'"\xff\xfe"',
    b'"n0\\",\\"Score\\":10},{\\"Host\\":\\"n1"',
    b'"' + b"x" * 5000 + b'"',
    b'"' + b"x" * LONG + b'"',
    b"[]",
    b"{}",
    b"[null]",
    b'{"":null}',
    b'[{"name":"x"},7,"x",[{}]]',
    b"[" * 50 + b"]" * 50,
    b'{"a":' * 50 + b"1" + b"}" * 50,
    b"[" * NESTED + b"]" * NESTED,
    b'1,"uid":"another","kind":7',
    b"]",
    b"}",
    b"'x'",
)
NOTHING: Final = (
    b"",
    b" ",
    b"null",
    b"[]",
    b"{}",
    b"7",
    b'""',
    b"\x00" * 64,
    b"\xff\xfe{\x00}\x00",
)
WAYS: Final = ("replace",) * 5 + ("rename", "before", "behind")


@dataclass(frozen=True, slots=True)
class _Value:
    """The place of a value in a text, and its key if it is a member of an object."""

    start: int
    end: int
    key: bytes = b""


@dataclass(frozen=True, slots=True)
class Good:
    """A document as text, and where its values are."""

    text: bytes
    values: tuple[_Value, ...]


def good(document: object) -> Good:
    """Return *document* as text, with the places of its values."""
    parts: list[bytes] = []
    values: list[_Value] = []
    _spell(document, parts, values)
    return Good(b"".join(parts), tuple(values))


def _spell(
    found: object, parts: list[bytes], values: list[_Value], *, at: int = 0, key: bytes = b""
) -> int:
    """Append the text of *found*, which begins *at*, and return where it ends."""
    start = at
    if isinstance(found, dict | list):
        edges = b"{}" if isinstance(found, dict) else b"[]"
        parts.append(edges[:1])
        at += 1
        for number, (name, value) in enumerate(_items(found)):
            head = (b"," if number else b"") + name
            parts.append(head)
            at = _spell(value, parts, values, at=at + len(head), key=name)
        parts.append(edges[1:])
        at += 1
    else:
        parts.append(orjson.dumps(found))
        at += len(parts[-1])
    values.append(_Value(start, at, key))
    return at


def _items(found: object) -> Iterator[tuple[bytes, object]]:
    if isinstance(found, dict):
        yield from ((orjson.dumps(key) + b":", value) for key, value in found.items())
    elif isinstance(found, list):
        yield from ((b"", value) for value in found)


def malformed(found: Good, rng: random.Random) -> bytes:
    """Return *found* with up to three changes; one in four is not changed at all."""
    roll = rng.random()
    if roll < 0.25:
        return found.text
    if roll < 0.28:
        return rng.choice((*NOTHING, rng.randbytes(rng.randint(1, 40)), found.text * 2))
    text = found.text
    before = len(text)
    chosen = sorted(rng.sample(found.values, rng.choice((1, 1, 1, 2, 3))), key=lambda v: -v.start)
    for value in chosen:
        if value.end <= before:
            text = _with_malformed_value(text, value, rng)
            before = value.start - len(value.key)
    return _with_bytes_changed(text, rng) if roll > 0.9 else text


def _with_malformed_value(text: bytes, value: _Value, rng: random.Random) -> bytes:
    replacement, key = rng.choice(MALFORMED_VALUES), value.key
    match rng.choice(WAYS):
        case "rename" if key:
            return text[: value.start - len(key)] + b'"x":' + text[value.start :]
        case "before":
            at = value.start - len(key)
            return text[:at] + key + replacement + b"," + text[at:]
        case "behind":
            return text[: value.end] + b"," + key + replacement + text[value.end :]
        case _:
            return text[: value.start] + replacement + text[value.end :]


def _with_bytes_changed(text: bytes, rng: random.Random) -> bytes:
    """Return *text* with some bytes replaced, or without its end."""
    at = rng.randrange(len(text) + 1)
    if rng.random() < 0.3:
        return text[:at]
    return text[:at] + rng.randbytes(rng.randint(0, 3)) + text[at + rng.randint(0, 4) :]
