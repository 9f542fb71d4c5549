"""Colour is for people at terminals, lines are as wide as those, and any encoding will do."""

import io
import os
import pty
import subprocess
import sys
from collections.abc import Mapping

import pytest

from allocator.cli.terminal import show, terminal_width, use_colour
from allocator.report.terminal_lines import (
    CutLine,
    HeadingLine,
    Line,
    ListLine,
    TextSpan,
    Tone,
    WrappedLine,
)

LINES: list[Line] = [(TextSpan("a", Tone.LABEL), TextSpan("[b] ", Tone.BAD)), ()]
WORDS = " ".join(["wide"] * 100)
PAGE: list[Line] = [
    HeadingLine("team-a/" + "x" * 300, "NEVER FITS", Tone.BAD),
    WrappedLine("label     ", WORDS),
    ListLine("head  ", "fits: ", tuple(f"GPU {number}" for number in range(99))),
    CutLine("  ", WORDS, Tone.PLAIN, TextSpan(" end")),
]


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

    assert stream.getvalue() == "\x1b[2ma\x1b[0m\x1b[31m[b] \x1b[0m\n\n"


@pytest.mark.parametrize(
    ("stated", "columns"),
    [
        ("40", 40),
        ("132", 132),
        ("200", 200),
        ("1", 40),
        ("9999", 200),
        ("10000000000000000000000", 80),
        ("0", 80),
        ("-5", 80),
        ("wide", 80),
        ("٨٠", 80),
        ("", 80),
    ],
)
def test_lines_are_as_wide_as_the_terminal(stated: str, columns: int) -> None:
    """Never wider, and as wide where there is something to say."""
    stream = io.StringIO()

    show(PAGE, stream, {"COLUMNS": stated})

    widths = [len(line) for line in stream.getvalue().splitlines()]
    assert terminal_width(stream, {"COLUMNS": stated}) == columns
    assert max(widths) == columns


def test_the_width_of_a_real_terminal_is_found() -> None:
    """The kernel says how wide it is."""
    controller, terminal = pty.openpty()
    try:
        subprocess.run(["stty", "cols", "97"], stdin=terminal, check=True)
        with os.fdopen(terminal, "w", closefd=False) as stream:
            assert terminal_width(stream, {}) == 97
    finally:
        os.close(controller)
        os.close(terminal)


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "latin-1", "utf-8"])
def test_any_encoding_will_do(encoding: str) -> None:
    """A pipe on Windows has no box drawing; a name that it lacks is no reason to fail either."""
    bytes_written = io.BytesIO()
    stream = io.TextIOWrapper(bytes_written, encoding=encoding)

    show(
        [HeadingLine("team-a/p", "WAITING", Tone.WARN), *PAGE, WrappedLine("", "模型 ≤ …")], stream
    )

    first, *_, last = bytes_written.getvalue().decode(encoding).splitlines()
    assert first.startswith("team-a/p ──" if encoding == "utf-8" else "team-a/p --")
    assert last == {
        "utf-8": "模型 ≤ …",
        "cp1252": "?? <= …",
    }.get(encoding, "?? <= ...")


def test_a_program_with_a_narrow_pipe_ends_well() -> None:
    """As a whole process, with the encoding that Windows gives a pipe."""
    program = (
        "import sys; from allocator.cli.terminal import show;"
        "from allocator.report.terminal_lines import heading, Tone;"
        "show([heading('a', 'b', Tone.BAD)], sys.stdout)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"},
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"a ---")
