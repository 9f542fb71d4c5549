"""What every benchmark ends with."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.report import Bar, conclude, p99, parser, table


@pytest.mark.parametrize(
    ("value", "at_most", "holds"),
    [
        pytest.param(0.5, False, True, id="at-least-reached"),
        pytest.param(0.4, False, False, id="at-least-missed"),
        pytest.param(0.5, True, True, id="at-most-reached"),
        pytest.param(0.6, True, False, id="at-most-missed"),
    ],
)
def test_a_bar_holds_at_its_limit_and_beyond(*, value: float, at_most: bool, holds: bool) -> None:
    """A bar of 0.5 is a floor, or a ceiling where it says so."""
    assert Bar(name="b", value=value, limit=0.5, at_most=at_most).holds is holds


def test_a_missed_bar_fails_the_run_and_is_written_down(tmp_path: Path) -> None:
    """The file holds every bar with its verdict beside the figures; the exit code says no."""
    file = tmp_path / "bars.json"
    good, bad = Bar(name="good", value=2, limit=1), Bar(name="bad", value=0, limit=1)

    code = conclude([good, bad], {"seeds": [0]}, file)

    assert code == 1
    assert json.loads(file.read_text()) == {
        "bars": [
            {"name": "good", "value": 2, "limit": 1, "holds": True},
            {"name": "bad", "value": 0, "limit": 1, "holds": False},
        ],
        "seeds": [0],
    }


def test_a_run_that_keeps_its_bars_succeeds() -> None:
    """Without a file nothing is written and the exit code is 0."""
    assert conclude([Bar(name="good", value=2, limit=1)], {}, None) == 0


def test_a_bar_reads_as_a_sentence() -> None:
    """A missed bar stands out among those that hold."""
    assert (
        str(Bar(name="p99_ratio", value=5.25, limit=4, at_most=True))
        == "p99_ratio: 5.25 ≤ 4 MISSED"
    )


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=300))
def test_no_percentile_is_beyond_what_was_measured(figures: list[int]) -> None:
    """Of less than a hundred figures the 99th is the largest of them."""
    assert min(figures) <= p99(figures) <= max(figures)
    assert len(figures) >= 99 or p99(figures) == max(figures)


def test_columns_line_up() -> None:
    """Names stand to the left and numbers to the right."""
    assert table(("policy", "jobs"), [("ours", 91.5), ("x", 7)]) == (
        "policy  jobs\nours    91.5\nx          7"
    )


def test_every_benchmark_takes_a_file() -> None:
    """``--json FILE`` is part of each command line."""
    assert parser("b").parse_args(["--json", "out.json"]).json == Path("out.json")
