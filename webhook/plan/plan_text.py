"""A plan as lines, each part with its tone (see terminal_lines)."""

from collections.abc import Iterator
from typing import Final, assert_never

from allocator.catalog.vocabularies import CATALOGUE
from allocator.model.request import Mode
from allocator.model.untrusted import escaped
from allocator.report import feasibility_text
from allocator.report.feasibility import FeasibilityVerdict
from allocator.report.mode_rows import mode_row_lines
from allocator.report.terminal_lines import INDENT, CutLine, Line, Tone, heading, row
from allocator.request.quantity import in_digits
from allocator.request.resource_names import resource_names
from webhook.admission.messages import more_text
from webhook.admission.outcome import GpusHidden, Refused, Rewritten, Untouched
from webhook.plan.patch_diff import sections
from webhook.plan.plan import Plan
from webhook.review.pod_schema import Pod


def lines(plan: Plan, file: str, *, tried: bool = True) -> Iterator[Line]:
    """Yield the verdict, what was asked and given, why, where, and what it would take.

    *file* is where the pod comes from; *tried* also shows what every GPU answered.
    """
    yield _heading(plan)
    yield from row("from", f"{file}, {plan.made.place}")
    yield from row("asked", _asked_text(plan))
    yield from _answer_lines(plan)
    yield from mode_row_lines(plan.modes)
    if plan.outlook is not None:
        message, mode = plan.answer.message, _admitted_mode(plan)
        yield from feasibility_text.placement_lines(plan.outlook, given=mode, refusal=message)
        yield from feasibility_text.remedy_lines(plan.outlook, refusal=message)
        if tried and plan.verdict is not FeasibilityVerdict.REFUSED:
            yield from feasibility_text.candidate_lines(plan.outlook.choice)
    yield from _change_lines(plan)


def _admitted_mode(plan: Plan) -> Mode | None:
    return plan.outcome.choice.mode if isinstance(plan.outcome, Rewritten) else None


def _heading(plan: Plan) -> Line:
    """Return the line that names the pod, with the verdict at its end."""
    word, tone = feasibility_text.WORDS[plan.verdict]
    made = plan.made
    whose = "" if made.kind == "Pod" else f"{made.kind} "
    return heading(f"{whose}{made.namespace}/{made.name}", word, tone)


def _asked_text(plan: Plan) -> str:
    if plan.request is None:
        return "; ".join(_literally(plan.made.pod)) or "no vGPU resources"
    return feasibility_text.request_text(plan.request)


def _literally(pod: Pod) -> Iterator[str]:
    """Yield the resources of a request that could not be read, as they stand there."""
    known = resource_names(CATALOGUE)
    for container in (*(pod.spec.init_containers or ()), *pod.spec.containers):
        resources = container.resources
        if resources is not None and (
            stated := known.own_amounts(resources.requests, resources.limits)
        ):
            amounts = (
                f"{escaped(name)} {escaped(in_digits(amount))}" for name, amount in stated.items()
            )
            yield f"{escaped(container.name)}: {', '.join(amounts)}"


def _answer_lines(plan: Plan) -> Iterator[Line]:
    match plan.outcome:
        case Refused(findings=findings):
            message = plan.answer.message.replace(more_text(findings), "", 1)
            yield from row("refused", message, Tone.BAD)
            for finding in findings.rest:
                yield from row("", f"{finding} [{finding.reason}]", Tone.BAD)
        case Rewritten(choice=choice):
            yield from feasibility_text.mode_lines(choice)
        case GpusHidden():
            yield from row("given", "nothing: GPUs are hidden from its containers")
        case Untouched():
            yield from row("given", "nothing: the pod is admitted unchanged")
        case _:
            assert_never(plan.outcome)
    for warning in plan.answer.warnings:
        yield from row("warning", warning, Tone.WARN)


def _change_lines(plan: Plan) -> Iterator[Line]:
    label = "changed"
    for section, parts in sections(plan.made.sent, plan.answer.operations):
        yield from row(label, section)
        label = ""
        for part in parts:
            yield CutLine(" " * INDENT, part, _SIGNS[part[0]])


_SIGNS: Final = {"+": Tone.GOOD, "-": Tone.BAD}
