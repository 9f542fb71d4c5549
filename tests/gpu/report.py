"""What the checks on a GPU found: a table for a person, one JSON document for the record."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

Figure = str | int | float | bool | None | list[str] | dict[str, int]
Figures = dict[str, Figure]
SCHEMA: Final = 1  # of the JSON document; docs/hardware.md describes it
# Exit codes; 2 is a command line that argparse refuses.
NOTHING_FAILED, SOMETHING_FAILED, NO_GPU = 0, 1, 3
_NAME_WIDTH: Final = 17  # columns of the longest name of a check


class Outcome(StrEnum):
    """How a check ended."""

    PASSED = "pass"
    FAILED = "fail"
    SKIPPED = "skip"


class FailedError(Exception):
    """Something does not hold; the text says what was found and what was expected."""


class SkippedError(Exception):
    """The check cannot be made here; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check of one subject."""

    name: str
    subject: str  # the GPU or the build of the library
    outcome: Outcome
    reason: str  # why it failed or was skipped; empty otherwise
    figures: Mapping[str, Figure]
    seconds: float


@dataclass(slots=True, kw_only=True)
class Report:
    """Everything that one run found; filled while it runs."""

    date: str  # UTC, RFC 3339
    machine: Mapping[str, Figure]
    driver: Mapping[str, Figure] | None = None  # None: it does not answer
    no_gpu: str = ""  # why there is no GPU
    gpus: tuple[Mapping[str, Figure], ...] = ()
    libraries: tuple[Mapping[str, Figure], ...] = ()
    checks: list[CheckResult] = field(default_factory=list)
    complete: bool = False

    def counts(self) -> Counter[Outcome]:
        """Return how many checks ended how."""
        return Counter(check.outcome for check in self.checks)

    def document(self) -> str:
        """Return the report as JSON text."""
        counts = self.counts()
        content = {
            "schema": SCHEMA,
            "complete": self.complete,
            "date": self.date,
            "machine": self.machine,
            "driver": self.driver,
            "no_gpu": self.no_gpu,
            "gpus": self.gpus,
            "libraries": self.libraries,
            "counts": {outcome.value: counts[outcome] for outcome in Outcome},
            "checks": [
                {
                    "name": check.name,
                    "subject": check.subject,
                    "outcome": check.outcome.value,
                    "reason": check.reason,
                    "figures": check.figures,
                    "seconds": round(check.seconds, 3),
                }
                for check in self.checks
            ],
        }
        return json.dumps(content, indent=2) + "\n"

    def exit_code(self) -> int:
        """Return 0 only if something was seen to hold and nothing not to."""
        counts = self.counts()
        if counts[Outcome.FAILED]:
            return SOMETHING_FAILED
        return NOTHING_FAILED if counts[Outcome.PASSED] else NO_GPU


def run_check(name: str, subject: str, body: Callable[[Figures], None]) -> CheckResult:
    """Run *body*, which fills in figures and returns if all holds.

    An exception that it does not mean to raise counts as a failure too: one check must not keep
    the next from running on a machine that is lent for minutes.
    """
    figures: Figures = {}
    outcome, reason, began = Outcome.PASSED, "", time.monotonic()
    try:
        body(figures)
    except SkippedError as error:
        outcome, reason = Outcome.SKIPPED, str(error)
    except FailedError as error:
        outcome, reason = Outcome.FAILED, str(error)
    except Exception as error:  # noqa: BLE001 -- see above
        outcome, reason = Outcome.FAILED, f"{type(error).__name__}: {error}"
    return CheckResult(
        name=name,
        subject=subject,
        outcome=outcome,
        reason=reason,
        figures=figures,
        seconds=time.monotonic() - began,
    )


def check_lines(check: CheckResult) -> Iterator[str]:
    """Yield a check as lines of the table: outcome, name and subject, then reason and figures."""
    yield f"{check.outcome.value:5}{check.name:{_NAME_WIDTH}} {check.subject}".rstrip()
    if check.reason:
        yield f"     {check.reason}"
    if check.figures:
        yield f"     {_figures_text(check.figures.items())}"


def summary_line(report: Report) -> str:
    """Return the last line of the table."""
    counts = report.counts()
    return ", ".join(f"{counts[outcome]} {outcome.value}" for outcome in Outcome)


def _figures_text(figures: Iterable[tuple[str, Figure]]) -> str:
    return ", ".join(f"{name} {_figure_text(figure)}" for name, figure in figures)


def _figure_text(figure: Figure) -> str:
    match figure:
        case None:
            return "unknown"
        case list():
            return "; ".join(figure) or "none"
        case dict():
            return "; ".join(f"{key} {value}" for key, value in figure.items()) or "none"
        case float():
            return f"{figure:.3g}"
        case _:
            return str(figure)
