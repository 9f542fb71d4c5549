"""Colour is for people at terminals."""

import io
from collections.abc import Mapping

import pytest

from allocator.cli.terminal import show, use_colour
from allocator.report.terminal_lines import TextSpan, Tone

LINES = [(TextSpan("a", Tone.LABEL), TextSpan("[b] ", Tone.BAD)), ()]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({}, True, id="terminal"),
        pytest.param({"NO_COLOR": "1"}, False, id="no-color"),
        pytest.param({"NO_COLOR": ""}, True, id="empty-is-unset"),
        pytest.param({"TERM": "dumb"}, False, id="dumb"),
    ],
)
def test_colour_can_be_declined(environment: Mapping[str, str], *, expected: bool) -> None:
    """NO_COLOR counts if it is not empty."""
    assert use_colour(Terminal(), environment) is expected


def test_a_pipe_gets_plain_text() -> None:
    """No escape sequence and no blank at the end of a line reaches a file."""
    stream = io.StringIO()

    show(LINES, stream, {})

    assert stream.getvalue() == "a[b]\n\n"


def test_a_terminal_gets_the_same_words() -> None:
    """Brackets are text, never markup."""
    stream = Terminal()

    show(LINES, stream, {"TERM": "xterm"})

    assert "\x1b[" in stream.getvalue()
    assert "[b]" in stream.getvalue()
