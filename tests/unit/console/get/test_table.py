"""Tables: ages as kubectl writes them, and words that stay words."""

import csv
from datetime import timedelta

import msgspec
import pytest

from allocator.model.untrusted import inert, is_plain
from console.get.listing import Listing, OutputFormat, listing_lines
from console.get.table import NONE, UNKNOWN, age, csv_line, sort_key, span, table, word
from tests.builders.hostile_text import HOSTILE_TEXTS
from tests.unit.console.sites import NOW


@pytest.mark.parametrize(
    ("passed", "text"),
    [
        pytest.param(timedelta(seconds=-5), "0s", id="clocks-disagree"),
        pytest.param(timedelta(seconds=119), "119s", id="seconds"),
        pytest.param(timedelta(seconds=120), "2m", id="whole-minutes"),
        pytest.param(timedelta(minutes=5, seconds=30), "5m30s", id="minutes"),
        pytest.param(timedelta(minutes=179, seconds=59), "179m", id="many-minutes"),
        pytest.param(timedelta(hours=5, minutes=40), "5h40m", id="hours"),
        pytest.param(timedelta(hours=47), "47h", id="many-hours"),
        pytest.param(timedelta(days=3, hours=4), "3d4h", id="days"),
        pytest.param(timedelta(days=31, hours=4), "31d", id="many-days"),
    ],
)
def test_ages_are_those_of_kubectl(passed: timedelta, text: str) -> None:
    """Two units at most, the smaller one only while it matters."""
    assert span(passed) == age(NOW - passed, NOW) == text


def test_an_age_that_is_not_known_is_not_young() -> None:
    """Absent is not 0."""
    assert age(None, NOW) == "<unknown>"


def test_a_cell_is_one_word() -> None:
    """Scripts split lines at blanks; a terminal obeys nothing that a stranger wrote."""
    assert word("Tesla  V100-SXM2 32GB") == "Tesla-V100-SXM2-32GB"
    assert word("") == "<none>"
    assert word("a\x1b[31m\n") == "a\\x1b[31m\\n"


def test_columns_are_aligned_and_lines_end_where_their_text_does() -> None:
    """As wide as the widest cell, and nothing behind the last."""
    lines = list(table(("A", "LONG"), [("wider", ""), ("x", "y")]))

    assert lines == ["A       LONG", "wider", "x       y"]


def test_cells_sort_as_people_read_them() -> None:
    """Numbers by their value, however long; what is not there comes last."""
    cells = ["9Mi", "010Mi", "11Mi", "1g.5gb", "1g.10gb", "7" * 5000, "a2", "a10", NONE, UNKNOWN]

    assert sorted(cells, key=sort_key) == [
        "1g.5gb",
        "1g.10gb",
        "9Mi",
        "010Mi",
        "11Mi",
        "7" * 5000,
        "a2",
        "a10",
        NONE,
        UNKNOWN,
    ]


def test_values_are_separated_as_spreadsheets_read_them() -> None:
    """By RFC 4180; a line never ends within a value."""
    assert csv_line(["a", "", 'say "b", c', "d\ne"]) == 'a,,"say ""b"", c",d�e'


class _Row(msgspec.Struct, frozen=True):
    name: str
    count: int
    models: tuple[str, ...]


def listing(text: str) -> Listing:
    """Build a list with *text* in every cell and every field."""
    return Listing(
        kind="List",
        row=_Row,
        columns=("NAME", "COUNT"),
        wide=("MODELS",),
        rows=[_Row(name=text, count=-1, models=(text,))],
        cells=[(text, "-1", text)],
    )


@pytest.mark.parametrize("output", OutputFormat)
@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_no_list_steers_a_terminal(text: str, output: OutputFormat) -> None:
    """As a table, as a document, and as what a spreadsheet reads."""
    shown = "\n".join(listing_lines(listing(text), output))

    assert all(map(is_plain, shown.split("\n")))
    if output in {OutputFormat.TABLE, OutputFormat.WIDE, OutputFormat.CSV}:
        assert len(shown.split("\n")) == 2


@pytest.mark.parametrize(
    "text", ["=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", '=HYPERLINK("x")']
)
def test_no_value_is_a_formula(text: str) -> None:
    """A spreadsheet would run it; numbers of ours stay numbers."""
    _, line = listing_lines(listing(text), OutputFormat.CSV)
    (name, count, models), *_ = csv.reader([line])

    assert name == inert(f"'{text}")
    assert count == "-1"
    assert models.startswith("[")
