"""What a stranger wrote cannot break out of a sentence of ours."""

import pytest

from allocator.model.untrusted import LONGEST, escaped, quote


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
