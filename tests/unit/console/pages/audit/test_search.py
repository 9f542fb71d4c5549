"""The search for decisions: addresses, the box, periods, and what is not understood."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.pages.audit.search import FIELDS, decision_search
from console.pages.parts.cell import stamp
from console.records.query import DecisionFilter
from tests.unit.console.sites import NOW

DAY = stamp(NOW - timedelta(hours=24))


def test_without_a_question_it_is_the_last_day() -> None:
    search = decision_search({}, NOW)

    assert search.filter == DecisionFilter(since=DAY)
    assert (search.period, search.text, search.problems) == ("24h", "", ())


def test_the_box_takes_every_filter_by_its_name() -> None:
    """So it does what the facets do, and both say the same."""
    box = "ns:team-nlp by:amy reason:GpuMemoryShort mode:mig verdict:refused state:waiting node:n1"
    search = decision_search({"q": box}, NOW)

    assert search.filter == DecisionFilter(
        namespace="team-nlp",
        requester="amy",
        reason="GpuMemoryShort",
        mode="mig",
        verdict="refused",
        state="waiting",
        node="n1",
        since=DAY,
    )
    assert decision_search({"q": search.text}, NOW) == search


@pytest.mark.parametrize(
    ("box", "values"),
    [
        ("k7q2m4x7tb", {"digest": "k7q2m4x7tb"}),
        ("train-0", {"pod": "train-0"}),
        ('owner:"a b"', {"owner": "a b"}),
        ("reason:CardInsufficientMemory", {"reason": "GpuMemoryShort"}),
    ],
)
def test_a_word_alone_is_a_digest_or_a_pod(box: str, values: dict[str, str]) -> None:
    """Names of HAMi's reasons are ours, too."""
    assert decision_search({"q": box}, NOW).values == values


@pytest.mark.parametrize("key", ["digest", "pod", "owner"])
def test_one_pod_is_looked_for_in_all_that_is_stored(key: str) -> None:
    """Whoever names one asks for what was a month ago, too."""
    assert decision_search({key: "x"}, NOW).filter.since == ""
    assert decision_search({key: "x", "since": "24h"}, NOW).filter.since == DAY


def test_a_period_may_be_two_times() -> None:
    """In any zone; they are UTC afterwards."""
    values = {"since": "2026-11-01T02:00:00+02:00", "until": "2026-12-01T00:00:00Z"}
    search = decision_search(values, NOW)

    assert search.filter.since == "2026-11-01T00:00:00.000Z"
    assert search.filter.until == "2026-12-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"q": "image:x"}, '"image:x" is no filter; accepted: ns:, pod:'),
        ({"since": "yesterday"}, 'since: "yesterday" is no time; accepted: RFC 3339'),
        ({"until": "2026-11-01"}, 'until: "2026-11-01" is no time'),
    ],
)
def test_what_is_not_understood_is_named(values: dict[str, str], problem: str) -> None:
    """With what would be; the rest of the question counts."""
    search = decision_search(values | {"ns": "a"}, NOW)

    assert search.problems[0].startswith(problem)
    assert search.filter.namespace == "a"


def test_nobody_tries_out_names_of_people() -> None:
    """Who may not see them cannot ask whether one of them is there."""
    search = decision_search({"by": "amy"}, NOW, people=False)

    assert search.filter.requester == ""
    assert search.problems == ("by: you may not see the names of people",)


@given(st.dictionaries(st.sampled_from([*FIELDS, "q", "since", "until"]), st.text(max_size=60)))
def test_any_text_is_a_question(values: dict[str, str]) -> None:
    """No text ends a page, and the box says again what was understood."""
    search = decision_search(values, NOW)

    assert set(search.values) <= set(FIELDS)
    assert len(decision_search({"q": search.text}, NOW).values) <= len(FIELDS)
