"""What a stranger wrote cannot break out of a sentence of ours."""

import json

import pytest

from allocator.model.untrusted import (
    LONGEST,
    escaped,
    inert,
    inert_lines,
    is_plain,
    plain_json,
    quote,
)
from tests.builders.hostile_text import HOSTILE_TEXTS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("main", '"main"', id="plain"),
        pytest.param("a\nb", r'"a\nb"', id="newline"),
        pytest.param("\x1b[31m", r'"\x1b[31m"', id="terminal-escape"),
        pytest.param('a"b\\', r'"a\"b\\"', id="quote-and-backslash"),
        pytest.param("abc\u202e", r'"abc\u202e"', id="direction-override"),
        pytest.param("\ud800", r'"\ud800"', id="lone-surrogate"),
        pytest.param("显存", '"显存"', id="another-script"),
        pytest.param("", '""', id="empty"),
    ],
)
def test_only_printable_text_is_shown(text: str, expected: str) -> None:
    """Whatever is not printable is escaped."""
    assert quote(text) == expected


@pytest.mark.parametrize(
    "text", ["x" * 1000, "\n" * 1000, 10**500], ids=["long", "escapes", "number"]
)
def test_what_is_shown_is_short(text: str | int) -> None:
    """A megabyte in a name does not become a megabyte in a log."""
    assert len(escaped(text)) == LONGEST


HOSTILE = pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)


@HOSTILE
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    """As many characters, each of which a reader sees; what is plain stays."""
    shown = inert(f"a{text}显存")

    assert is_plain(shown)
    assert (len(shown), shown[0], shown[-2:]) == (len(text) + 3, "a", "显存")
    assert inert(shown) == shown
    assert is_plain(escaped(text))


@HOSTILE
def test_lines_stay_lines(text: str) -> None:
    """A message of several lines is not folded into one."""
    first, *_, last = inert_lines(f"first\n{text}\nlast").split("\n")

    assert (first, last) == ("first", "last")


@HOSTILE
@pytest.mark.parametrize("indent", [None, 2])
def test_escaped_json_means_the_same(text: str, indent: int | None) -> None:
    """Also in names, and for characters that JSON writes as two halves."""
    value = {text: [text, "显存 \U000e0001"]}
    written = json.dumps(value, ensure_ascii=False, indent=indent)
    shown = plain_json(written)

    assert all(map(is_plain, shown.split("\n")))
    assert json.loads(shown) == value


@pytest.mark.parametrize("character", ["\u034f", "\u115f", "\u2800", "\u3164", "\uffa0"])
def test_what_nobody_sees_is_shown(character: str) -> None:
    """Unicode calls fillers printable, and two names would look alike."""
    assert inert(f"a{character}b") == "a�b"
    assert quote(f"a{character}b") == f'"a\\u{ord(character):04x}b"'
