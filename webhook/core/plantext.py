"""Plan text: a plan as lines of at most 80 columns, each part with the tone it is said in."""

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from allocator.catalog.boards import bare_name
from allocator.catalog.vocabularies import VOCABULARIES
from allocator.core.lexicon import lexicon
from allocator.core.wording import shown
from allocator.model.decision import Candidate, Source
from allocator.model.request import ContainerRequest, PodRequest, Stage
from webhook.core.diff import sections
from webhook.core.options import OptionKind
from webhook.core.outcome import Hidden, Refused, Rewritten, Untouched
from webhook.core.plan import Device, Plan, Verdict
from webhook.core.review import Pod

WIDTH: Final = 80
_INDENT: Final = 10  # columns of the labels
_MOST_GROUPS: Final = 16  # of GPUs that answered alike


class Tone(StrEnum):
    """How something is said; a terminal may colour it, and nothing is said by colour alone."""

    PLAIN = "plain"
    LABEL = "label"
    STRONG = "strong"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line."""

    text: str
    tone: Tone = Tone.PLAIN


Line = tuple[Span, ...]

_WORDS: Final = {
    Verdict.FITS: ("FITS NOW", Tone.GOOD),
    Verdict.NO_REQUEST: ("NO REQUEST", Tone.GOOD),
    Verdict.NOT_NOW: ("NOT NOW", Tone.WARN),
    Verdict.NEVER: ("NEVER FITS", Tone.BAD),
    Verdict.REFUSED: ("REFUSED", Tone.BAD),
}


def lines(plan: Plan, file: str, *, tried: bool = True) -> Iterator[Line]:
    """Yield the verdict, what was asked and given, why, where, and what it would take.

    *file* is where the pod comes from; *tried* also shows what every GPU answered.
    """
    yield _heading(plan)
    yield from row("from", f"{file}, {plan.made.place}")
    yield from row("asked", _asked(plan))
    yield from _answered(plan)
    yield from _placed(plan)
    for option in plan.options:
        if not (option.kind is OptionKind.SHRINK and _said(plan)):
            yield from row("try", option.text, Tone.STRONG)
    if tried:
        yield from _tried(plan)
    yield from _changed(plan)


def row(label: str, text: str, tone: Tone = Tone.PLAIN) -> Iterator[Line]:
    """Yield *text*, wrapped, behind its *label*; what a terminal would obey is taken out."""
    wrapped = textwrap.wrap(_inert(text), WIDTH - _INDENT, break_on_hyphens=False)
    for number, part in enumerate(wrapped):
        head = "" if number else label
        yield Span(f"{head:<{_INDENT}}", Tone.LABEL), Span(part, tone)


def _inert(text: str) -> str:
    return "".join(c if c.isprintable() else "�" for c in text)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _heading(plan: Plan) -> Line:
    """Return the line that names the pod, with the verdict at its end."""
    word, tone = _WORDS[plan.verdict]
    made = plan.made
    whose = "" if made.kind == "Pod" else f"{made.kind} "
    title = f"{whose}{made.namespace}/{made.name}"
    title = _cut(_inert(title), WIDTH - len(word) - 4)
    rule = "─" * (WIDTH - len(title) - len(word) - 2)
    return Span(title, Tone.STRONG), Span(f" {rule} ", Tone.LABEL), Span(word, tone)


def _asked(plan: Plan) -> str:
    request = plan.request
    if request is None:
        return "; ".join(_literally(plan.made.pod)) or "no share of a GPU"
    parts = [_amounts(ask, request.profile) for ask in request.containers]
    return "; ".join([*parts, *_wishes(request)])


def _literally(pod: Pod) -> Iterator[str]:
    """Yield the resources of a request that could not be read, as they stand there."""
    known = lexicon(VOCABULARIES)
    for container in (*(pod.spec.init_containers or ()), *pod.spec.containers):
        resources = container.resources
        if resources is not None and (told := known.told(resources.requests, resources.limits)):
            amounts = (f"{shown(name)} {shown(amount)}" for name, amount in told.items())
            yield f"{shown(container.name)}: {', '.join(amounts)}"


def _amounts(ask: ContainerRequest, profile: str | None) -> str:
    if ask.memory is not None:
        memory = f"{ask.memory} MiB"
    elif ask.percent is not None:
        memory = f"{ask.percent} % of its memory"
    else:
        memory = "all its memory" if profile is None else f"a {shown(profile)}"
    amounts = f"{memory} and {ask.cores} % of its compute" if ask.cores else memory
    stage = "" if ask.stage is Stage.APP else f" ({ask.stage})"
    gpus = "1 GPU" if ask.count == 1 else f"{ask.count} GPUs, each"
    return f"{shown(ask.name)}{stage}: {gpus} with {amounts}"


def _wishes(request: PodRequest) -> Iterator[str]:
    if request.mode is not None:
        yield f"mode {request.mode}"
    filters = request.filters
    for word, items in (
        ("only", (*filters.models, *filters.uuids)),
        ("not", (*filters.not_models, *filters.not_uuids)),
    ):
        if items:
            yield f"{word} {' or '.join(map(shown, items))}"


def _answered(plan: Plan) -> Iterator[Line]:
    match plan.outcome:
        case Refused():
            yield from row("refused", plan.answer.message, Tone.BAD)
        case Rewritten(choice=choice):
            yield from row("given", f"mode {choice.mode}, {_SOURCES[choice.source]}", Tone.STRONG)
            yield from row("why", choice.rule)
        case Hidden():
            yield from row("given", "nothing: GPUs are hidden from its containers")
        case Untouched():
            yield from row("given", "nothing: the pod passes as it is")
        case _:
            assert_never(plan.outcome)
    for warning in plan.answer.warnings:
        yield from row("warning", warning, Tone.WARN)


_SOURCES: Final = {
    Source.NAMED: "as the pod names it",
    Source.ONLY: "the only one that serves it",
    Source.BEST: "which may still be revised when it is bound",
}


def _placed(plan: Plan) -> Iterator[Line]:
    choice = plan.choice
    if choice is None or plan.verdict is Verdict.REFUSED:
        return
    for number, device in enumerate(plan.devices):
        yield from row("" if number else "now", _seat(device), Tone.GOOD)
    if choice.rule and isinstance(plan.outcome, Rewritten):
        given = plan.outcome.choice.mode
        if choice.assignment is not None and choice.assignment.mode is not given:
            yield from row("", f"because {choice.rule}")
    for finding in () if _said(plan) else choice.findings:
        yield from row("short of", f"{finding.place}: {finding.what}", Tone.WARN)


def _said(plan: Plan) -> bool:
    """Say whether the refusal already tells what is short."""
    found = () if plan.choice is None else plan.choice.findings
    return any(str(finding) in plan.answer.message for finding in found)


def _seat(device: Device) -> str:
    grant, gpu = device.grant, device.gpu
    where = f"{device.node} GPU {gpu.index}, {bare_name(gpu.model)}"
    if grant.placed is not None:
        what = f"{grant.placed.profile} at slot {grant.placed.start} ({grant.memory} MiB)"
    else:
        cores = f" and {grant.cores} % of its compute" if grant.cores else ""
        what = f"{grant.memory} MiB{cores}"
    return f"{device.container}: {grant.mode}, {what} on {where}"


def _tried(plan: Plan) -> Iterator[Line]:
    """Yield what the GPUs answered, those that would do first, alike ones together."""
    choice = plan.choice
    if choice is None or plan.verdict is Verdict.REFUSED:
        return
    names = dict.fromkeys(candidate.container for candidate in choice.candidates)
    for name in names:
        found = [one for one in choice.candidates if one.container == name]
        able = sum(one.reason is None for one in found)
        whose = f" for {shown(name)}" if len(names) > 1 else ""
        yield from row("tried", f"{len(found)} GPUs{whose}, {able} would do")
        yield from _table(found)


def _table(found: Iterable[Candidate]) -> Iterator[Line]:
    groups: dict[tuple[str, str, bool], list[str]] = {}
    for one in sorted(found, key=lambda one: one.reason is not None):
        key = (bare_name(one.model), str(one.mode), one.reason is None)
        groups.setdefault(key, []).append(one.detail.removeprefix(f"{key[0]} is "))
    wide = max((len(model) for model, _, _ in groups), default=0)
    for (model, mode, able), details in list(groups.items())[:_MOST_GROUPS]:
        head = f"{len(details):>6}  {model:<{wide}}  {mode:<11}  "
        text = _joined("fits: " if able else "", details, WIDTH - len(head))
        for number, part in enumerate(textwrap.wrap(_inert(text), WIDTH - len(head))):
            first = " " * len(head) if number else head
            yield Span(first), Span(part, Tone.GOOD if able else Tone.PLAIN)
    if len(groups) > _MOST_GROUPS:
        yield (Span(f"{'':>6}  and {len(groups) - _MOST_GROUPS} kinds more"),)


def _joined(start: str, details: Iterable[str], width: int) -> str:
    """Return as many different *details* as fit on a line, but the first in any case."""
    first, *more = dict.fromkeys(details)
    text = start + first
    for detail in more:
        if len(text) + len(detail) + len(", , …") > width:
            return f"{text}, …"
        text += f", {detail}"
    return text


def _changed(plan: Plan) -> Iterator[Line]:
    label = "changed"
    for section, parts in sections(plan.made.sent, plan.answer.operations):
        yield from row(label, section)
        label = ""
        for part in parts:
            text = _cut(_inert(part), WIDTH - _INDENT)
            yield Span(" " * _INDENT), Span(text, _SIGNS[part[0]])


_SIGNS: Final = {"+": Tone.GOOD, "-": Tone.BAD}
