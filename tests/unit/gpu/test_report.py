"""The record and the exit code: only what was seen to hold counts as held."""

import json

import pytest

from tests.gpu.report import (
    CheckResult,
    FailedError,
    Figures,
    Outcome,
    Report,
    SkippedError,
    check_lines,
    run_check,
    summary_line,
)


def result(outcome: Outcome) -> CheckResult:
    return CheckResult(
        name="kill", subject="x.so", outcome=outcome, reason="", figures={}, seconds=0.1
    )


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ((), 3),
        ((Outcome.SKIPPED,), 3),
        ((Outcome.SKIPPED, Outcome.PASSED), 0),
        ((Outcome.PASSED, Outcome.FAILED), 1),
        ((Outcome.SKIPPED, Outcome.FAILED), 1),
    ],
)
def test_the_exit_code_tells_three_things_apart(outcomes: tuple[Outcome, ...], code: int) -> None:
    """Something failed; something held and nothing failed; nothing could be checked."""
    report = Report(date="", machine={}, checks=[result(outcome) for outcome in outcomes])

    assert report.exit_code() == code


def test_a_check_that_breaks_is_a_failure_and_keeps_its_figures() -> None:
    """The checks after it still run."""

    def broken(figures: Figures) -> None:
        figures["read_mib"] = 5
        raise ZeroDivisionError("by nothing")

    found = run_check("monitor", "x.so", broken)

    assert (found.outcome, found.reason) == (Outcome.FAILED, "ZeroDivisionError: by nothing")
    assert found.figures == {"read_mib": 5}


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(SkippedError, Outcome.SKIPPED), (FailedError, Outcome.FAILED)],
)
def test_a_check_says_why(error: type[Exception], outcome: Outcome) -> None:
    """In the table too."""

    def body(_: Figures) -> None:
        raise error("for a reason")

    found = run_check("kill", "", body)

    assert (found.outcome, found.reason) == (outcome, "for a reason")
    assert list(check_lines(found)) == [f"{outcome.value:5}kill", "     for a reason"]


def test_the_table_shows_every_kind_of_figure() -> None:
    """As a person reads it."""

    def body(figures: Figures) -> None:
        figures |= {"a": 1, "b": 2.3456, "c": None, "d": ["x", "y"], "e": {"m": 3}, "f": []}

    assert list(check_lines(run_check("kill", "x.so", body))) == [
        "pass kill              x.so",
        "     a 1, b 2.35, c unknown, d x; y, e m 3, f none",
    ]


def test_the_record_counts_its_checks() -> None:
    """So that a reader of the JSON needs no program."""
    checks = [result(Outcome.PASSED), result(Outcome.SKIPPED)]
    report = Report(date="2026-11-24T00:00:00Z", machine={"root": True}, checks=checks)
    document = json.loads(report.document())

    assert document["counts"] == {"pass": 1, "fail": 0, "skip": 1}
    assert summary_line(report) == "1 pass, 0 fail, 1 skip"
    assert (document["schema"], document["complete"]) == (1, False)
    assert document["checks"][0]["name"] == "kill"
