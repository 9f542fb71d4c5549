"""Questions to Prometheus, and what is made of its answers."""

import pytest

from console.pages.fleet.usage import (
    PROMISED,
    USED,
    UsageSeries,
    amounts_by_namespace,
    by_namespace,
    idle_since,
    idle_slices,
    over_time,
    selector,
    series_of,
    usage_blocks,
)
from console.records.query import EVERYTHING, Scope
from tests.unit.console.sites import NOW

TEAM = Scope(namespaces=frozenset({"team-a", "b"}))
NOBODY = Scope(namespaces=frozenset())


def test_a_question_is_only_about_what_may_be_seen() -> None:
    """The namespaces of the viewer are part of it; nobody's are a name that none can have."""
    assert by_namespace(USED, EVERYTHING) == f"sum by (namespace) ({USED})"
    assert over_time(PROMISED, TEAM) == f'sum({PROMISED}{{namespace=~"b|team-a"}})[24h:12m]'
    assert selector(NOBODY) == '{namespace=~"-"}'
    assert "b|team-a" in idle_since(TEAM)


def test_a_name_cannot_leave_the_question() -> None:
    """What is no name of a namespace is left out, and a dot means a dot."""
    scope = Scope(namespaces=frozenset({'x"} or vector(1) #', ".*", "a.b"}))

    assert selector(scope) == '{namespace=~"a[.]b"}'


@pytest.mark.parametrize(
    "answer",
    [
        None,
        7,
        "x",
        [],
        {"data": None},
        {"data": {"result": {}}},
        {"data": {"result": [None, 7, {"metric": 7, "value": [1, "2"]}, {"value": 7}]}},
    ],
)
def test_what_is_malformed_is_left_out(answer: object) -> None:
    assert series_of(answer) == ()


@pytest.mark.parametrize("value", [["x", "y"], [1], [1, "NaN"], [1, "+Inf"], None, "12", [[], {}]])
def test_a_value_that_is_no_number_is_no_sample(value: object) -> None:
    """It is not shown as 0 either."""
    [one] = series_of({"result": [{"metric": {"namespace": "a"}, "value": value}]})

    assert one.points == ()
    assert amounts_by_namespace([one]) == {}
    assert idle_slices([one]) == ()


def test_an_answer_is_bounded() -> None:
    many = [{"metric": {}, "values": [[n, "1"] for n in range(10_000)]}] * 3000
    found = series_of({"result": many})

    assert (len(found), len(found[0].points)) == (2000, 240)


def test_a_chart_stays_within_its_bounds() -> None:
    """Times and amounts are scaled to it, whatever they are."""
    points = tuple((1e9 + 720.0 * n, float(n**3)) for n in range(121))
    chart, table = usage_blocks([UsageSeries(labels={}, points=points)], [], NOW)

    pairs = [tuple(map(float, p.split(","))) for p in chart.lines[0].points.split()]  # type: ignore[union-attr]
    assert all(0 <= x <= 400 and 14 <= y <= 132 for x, y in pairs)
    assert len(table.rows) == 120  # type: ignore[union-attr]
    assert table.rows[0][2].exact is None  # type: ignore[union-attr]


def test_without_a_sample_there_is_no_chart() -> None:
    assert list(usage_blocks([], [], NOW)) == []
