"""What a person reads about a decision: refusals, warnings and one-line summaries."""

from collections.abc import Iterable
from typing import Final, assert_never

from allocator.model.decision import Findings, Reason
from webhook.admission.outcome import GpusHidden, Outcome, Refused, Rewritten, Untouched
from webhook.review.admission_review import Refusal

LONGEST_WARNING: Final = 120  # characters; the API server cuts long ones when they add up
MOST_WARNINGS: Final = 16
# Wrong in itself, whatever the cluster looks like; everything else is policy or capacity.
_MALFORMED: Final = frozenset({Reason.MALFORMED, Reason.CONFLICTING, Reason.UNREADABLE})


def refusal(outcome: Refused) -> Refusal:
    """Return the status of a refused pod: stable facts only, so that repeats fold into one."""
    first, more = outcome.findings.first, more_text(outcome.findings)
    code = f"{first.reason} {outcome.digest}".rstrip()
    malformed = first.reason in _MALFORMED
    return Refusal(
        code=422 if malformed else 403,
        message=f"{first}{more} [{code}]",
        reason="Invalid" if malformed else "Forbidden",
    )


def more_text(findings: Findings) -> str:
    """Return how a refusal, which has the first of *findings* only, counts the others."""
    return f" (+{len(findings.rest)} more)" if findings.rest else ""


def warnings(texts: Iterable[str]) -> list[str]:
    """Return what the user's terminal shows: short, printable, without repetition."""
    return list(dict.fromkeys(_cut(text) for text in texts))[:MOST_WARNINGS]


def _cut(text: str) -> str:
    line = "vgpu: " + "".join(c if c.isprintable() else " " for c in text)
    return line if len(line) <= LONGEST_WARNING else f"{line[: LONGEST_WARNING - 1]}…"


def word(outcome: Outcome) -> str:
    """Return the outcome's name in records, audit annotations and metrics."""
    match outcome:
        case Rewritten() | GpusHidden():
            return "rewritten"
        case Untouched():
            return "untouched"
        case Refused():
            return "refused"
        case _:
            assert_never(outcome)
