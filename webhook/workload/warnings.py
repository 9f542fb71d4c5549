"""What the person who applies a workload reads about the pods that it will create."""

from collections.abc import Iterator, Sequence
from typing import Final

from allocator.config.manifest import ManifestPod, first_pods
from allocator.model.decision import Finding
from allocator.report.terminal_lines import cut
from webhook.admission.context import AdmissionContext
from webhook.admission.decide import decide
from webhook.admission.outcome import Outcome, Refused, Rewritten
from webhook.review.pod_schema import Pod

LONGEST: Final = 256  # characters; the API server cuts to this where warnings add up
MOST: Final = 4  # warnings of one workload
# Judged of one workload, because other reviews wait meanwhile.
MOST_TEMPLATES: Final = 32
LARGEST: Final = 128 * 1024  # characters
_PREFIX: Final = "vgpu: "
_REFUSED: Final = "its pods will be refused: "
_SHORTEST: Final = 24  # characters of what is wrong; with fewer it is left out
_ELSEWHERE: Final = "its pods get no GPU; kubectl vgpu fit -f FILE says why"


def workload_warnings(text: str, namespace: str, context: AdmissionContext) -> list[str]:
    """Return what admission will say to the pods of the workload *text*, at most ``MOST`` lines.

    Nothing is said of an object that cannot be read or has more than ``LARGEST`` characters, or
    whose pods nothing is said to.
    """
    if len(text) > LARGEST:
        return []
    pods = first_pods(text, Pod, namespace=namespace, most=MOST_TEMPLATES)
    lines = list(dict.fromkeys(_all_lines(pods, context)))
    if len(lines) <= MOST:
        return lines
    more = len(lines) - MOST + 1
    return [*lines[: MOST - 1], f"{_PREFIX}and {more} more; kubectl vgpu fit -f FILE shows all"]


def _all_lines(pods: Sequence[ManifestPod[Pod]], context: AdmissionContext) -> Iterator[str]:
    """Yield refusals before everything else, because the others do not matter then."""
    outcomes = [
        (f"{_inside(made)}: " if len(pods) > 1 else "", decide(made.pod, context)) for made in pods
    ]
    for where, outcome in outcomes:
        if isinstance(outcome, Refused):
            for finding in outcome.findings.all:
                yield warning_line(finding, f"{_REFUSED}{where}")
    for where, outcome in outcomes:
        yield from _warning_lines(outcome, where)


def _warning_lines(outcome: Outcome, where: str) -> Iterator[str]:
    findings = outcome.choice.warnings if isinstance(outcome, Rewritten) else ()
    for finding in findings:
        yield warning_line(finding, where)
    told = set(map(str, findings))
    for text in outcome.warnings:
        if text not in told:
            yield _whole_remedy(f"{_PREFIX}{where}{_printable(text)}")


def _whole_remedy(line: str) -> str:
    """Return *line*, cut to ``LONGEST`` characters before its remedy where that leaves enough."""
    head, semicolon, remedy = line.partition("; ")
    room = LONGEST - len(semicolon) - len(remedy)
    if len(line) <= LONGEST or room < _SHORTEST:
        return cut(line, LONGEST)
    return f"{cut(head, room)}{semicolon}{remedy}"


def _inside(made: ManifestPod[Pod]) -> str:
    """Return the place of a template in its object, without the only document there is."""
    return made.place.removeprefix(f"{made.object}: ")


def warning_line(finding: Finding, before: str) -> str:
    """Return a finding as one line of at most ``LONGEST`` characters, after the words *before*.

    What is too long is cut from what is wrong, never from the remedy, which people paste.
    """
    start, place = f"{_PREFIX}{_printable(before)}", _printable(finding.place)
    what, remedy = _printable(finding.what), _printable(finding.remedy)
    end = f"; {remedy} [{finding.reason}]"
    room = LONGEST - len(f"{start}{place}: {end}")
    if room >= min(_SHORTEST, len(what)):
        return f"{start}{place}: {cut(what, room)}{end}"
    without = f"{start}{remedy} [{finding.reason}]"
    return without if len(without) <= LONGEST else f"{_PREFIX}{_ELSEWHERE} [{finding.reason}]"


def _printable(text: str) -> str:
    """Return *text* as a header may have it; the API server drops a warning with a line break."""
    return "".join(c if c.isprintable() else " " for c in text)
