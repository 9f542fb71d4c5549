"""Questions in a URL: each parameter is understood, or named."""

import dataclasses

import pytest

from console.records.parameters import (
    KINDS,
    LONGEST,
    MOST,
    Pairs,
    ParameterError,
    Period,
    decision_filter,
    nothing_else,
    period,
    record_filter,
)
from console.records.query import DecisionFilter, PageRequest, RecordFilter


def test_every_field_of_a_filter_is_a_parameter() -> None:
    """So that nobody forgets one that is added."""
    values = {"verdict": "refused", "state": "waiting", "mode": "mig"}
    times = {"since": "2026-11-24T22:00:00.000Z", "until": "2026-11-24T23:00:00.000Z"}
    fields = [field.name for field in dataclasses.fields(DecisionFilter)]
    pairs = [(name, {**values, **times}.get(name, "x")) for name in fields]

    query, page = decision_filter(pairs)

    assert dataclasses.asdict(query) == dict(pairs)
    assert page == PageRequest()


def test_records_by_kind() -> None:
    """Kinds are repeated, or have commas."""
    pairs = [("kinds", "bind,released"), ("node", "n"), ("kinds", "health"), ("limit", "5")]

    assert record_filter(pairs) == (
        RecordFilter(kinds=frozenset({"bind", "released", "health"}), node="n"),
        PageRequest(size=5),
    )


def test_kinds_are_those_of_the_schema() -> None:
    """As records spell them."""
    assert {"admission", "bind", "late-commit", "start-refused", "snapshot"} <= KINDS


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-24T22:00:00Z", "2026-11-24T22:00:00.000Z"),
        ("2026-11-24T22:00:00.123456+00:00", "2026-11-24T22:00:00.123Z"),
        ("", ""),
    ],
)
def test_times_are_as_in_records(text: str, at: str) -> None:
    """However they are written."""
    assert period([("since", text)], "since", "until") == Period(since=at)


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ([("colour", "red")], 'unknown parameter "colour"; accepted: after, digest'),
        ([("kinds", "bind")], 'unknown parameter "kinds"'),
        ([("pod", "a"), ("pod", "b")], "pod is there twice"),
        ([("pod", "a" * (LONGEST + 1))], "accepted: 512 at most"),
        ([("pod", "a\0")], "pod has a NUL"),
        ([("verdict", "denied")], 'verdict="denied"; accepted: untouched, rewritten'),
        ([("state", "Running")], 'state="Running"; accepted: refused, admitted'),
        ([("mode", "soft")], 'mode="soft"; accepted: '),
        ([("since", "yesterday")], 'since="yesterday"; accepted: a time like'),
        ([("since", "2026-11-24T22:00:00")], "accepted: a time like"),
        ([("until", "2026-11-24T22:00:00+01:00")], "accepted: a time like"),
        ([("limit", "0")], 'limit="0"; accepted: 1 to 1000'),
        ([("limit", "1001")], "accepted: 1 to 1000"),
        ([("limit", "-1")], "accepted: 1 to 1000"),
        ([("limit", "٣")], "accepted: 1 to 1000"),
        ([("limit", "9" * 500)], "accepted: 1 to 1000"),
        ([(f"p{n}", "") for n in range(MOST + 1)], "65 parameters; accepted: 64 at most"),
        ([("\x1b[2J", "")], r'unknown parameter "\x1b[2J"'),
    ],
)
def test_what_is_not_understood_is_named(pairs: Pairs, why: str) -> None:
    """With what would be accepted."""
    with pytest.raises(ParameterError) as caught:
        decision_filter(pairs)
    assert why in str(caught.value)


@pytest.mark.parametrize("kinds", ["Bind", "bind;health", "bind,x"])
def test_a_kind_that_is_none_is_named(kinds: str) -> None:
    """Rather than finding nothing."""
    with pytest.raises(ParameterError, match="accepted: admission, allocated"):
        record_filter([("kinds", kinds)])


def test_where_there_are_no_parameters_none_is_taken() -> None:
    """Not even a good one."""
    nothing_else([])
    with pytest.raises(ParameterError, match="accepted: none here"):
        nothing_else([("pod", "a")])
