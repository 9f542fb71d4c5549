"""What a person reads about a decision: refusals, warnings and one-line summaries."""

from collections.abc import Iterable
from typing import Final, assert_never

from allocator.model.decision import Findings, Reason
from webhook.admission.outcome import GpusHidden, Outcome, Refused, Rewritten, Untouched
from webhook.review.admission_review import Refusal

# The API server cuts each warning to 256 characters where all together have more than 4,096
# (apiserver pkg/endpoints/filters/warning.go), so we stay below.
ALL_WARNINGS: Final = 4096  # characters
LONGEST_WARNING: Final = 1000  # characters; our sentences quote at most 64 of a tenant's at once
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
    shown: list[str] = []
    left = ALL_WARNINGS
    for line in dict.fromkeys(_line(text) for text in texts):
        left -= len(line.encode())
        if left < 0 or len(shown) == MOST_WARNINGS:
            break
        shown.append(line)
    return shown


def _line(text: str) -> str:
    """Return *text* as one line; of one that is too long its remedy stays, as far as it fits."""
    line = "vgpu: " + "".join(c if c.isprintable() else " " for c in text)
    if len(line) <= LONGEST_WARNING:
        return line
    head, semicolon, remedy = line.partition("; ")
    left = LONGEST_WARNING - len(semicolon) - len(remedy) - 1
    return f"{head[:left]}…{semicolon}{remedy}" if left > 0 else f"{line[: LONGEST_WARNING - 1]}…"


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
