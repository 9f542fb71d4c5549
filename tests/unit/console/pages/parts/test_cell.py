"""Cells: what is unknown is a dash, and a time is told twice."""

from datetime import timedelta

import pytest

from console.pages.parts.cell import DASH, ago, at, mib, number, percent, plain, promised, stamp
from tests.unit.console.sites import NOW


def test_unknown_is_a_dash_and_zero_is_zero() -> None:
    """In JSON the one is null, the other a number."""
    assert (mib(None, why="x").text, mib(None).exact, mib(None, why="x").title) == (DASH, None, "x")
    assert (mib(0).text, mib(0).exact) == ("0 MiB", 0)
    assert (number(None).exact, number(0).exact, plain("").exact) == (None, 0, None)
    assert percent(1, 0).exact is None
    assert (percent(0, 8).text, percent(3, 8).text) == ("0 %", "38 %")


def test_numbers_have_separators() -> None:
    assert number(1234567).text == "1,234,567"
    assert promised(20480, 40960).text == "20,480 MiB (50 %)"
    assert promised(20480, 0).text == "20,480 MiB"


@pytest.mark.parametrize(
    ("passed", "text"),
    [
        (timedelta(seconds=5), "5s ago"),
        (timedelta(minutes=22), "22m ago"),
        (timedelta(minutes=-5), "in 5m"),
        (timedelta(seconds=-1), "0s ago"),
    ],
)
def test_a_time_is_relative_and_exact(passed: timedelta, text: str) -> None:
    """Clocks of machines differ by a second."""
    moment = stamp(NOW - passed)
    cell = ago(moment, NOW)

    assert (cell.text, cell.at, cell.exact) == (text, moment, moment)
    assert at(moment, NOW).note == text
    assert at(moment, NOW).text.endswith("Z")


@pytest.mark.parametrize("text", ["soon", "2026-11-21", "9999-99-99T00:00:00Z", "1\ud800"])
def test_what_is_no_time_is_text(text: str) -> None:
    cell = ago(text, NOW)

    assert (cell.text, cell.at) == (text, "")
    assert ago("", NOW, why="never").exact is None
