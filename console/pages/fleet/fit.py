"""The page of Fit: whether a pod would fit now, and what it would take; nothing is reserved."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from allocator.catalog.vocabularies import VOLCANO
from allocator.model.decision import ModeSource
from allocator.model.problem import Problem
from allocator.model.request import (
    MOST_CONTAINERS,
    ContainerRequest,
    Mode,
    PodRequest,
    Stage,
)
from allocator.model.units import WHOLE_GPU, CorePercent, MiB
from allocator.model.untrusted import quote
from allocator.report import feasibility_text
from allocator.report.feasibility import OptionKind
from allocator.report.mode_rows import mode_row_lines
from allocator.report.terminal_lines import Line, Tone, heading, row
from console.explain.fit import Fit, fit_document
from console.explain.fit import lines as fit_lines
from console.explain.pod_amounts import ACCEPTED_MEMORY, ContainerAmounts, memory_of
from console.languages.messages import PageMessage, joined_text, message
from console.pages.parts.blocks import (
    FormField,
    PageBlock,
    PageForm,
    PageNote,
    PageQuestion,
    PageView,
)
from console.pages.parts.lines import facts_of
from console.records.rows import DecisionRow

MOST_COUNT: Final = 64  # GPUs of one container
_LONGEST_MODEL: Final = 64  # characters
_MODES: Final = {str(mode): mode for mode in (Mode.MIG, Mode.HAMI_CORE, Mode.MPS)}
_STAGES: Final = {str(stage): stage for stage in Stage}
_KEYS: Final = ("memory", "cores", "count", "mode", "model")
_NOTE: Final = message(
    "The answer is the one that admission and the bind would give on the GPUs as "
    "they are now. Nothing is reserved. Quota, selectors and what a namespace says "
    "of modes are not looked at."
)
_LIMITED: Final = message(
    "You may not read GPUNodes, so neither nodes nor what is on them are named here."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitForm:
    """The values of the form; ``amounts`` is ``None`` where one is malformed or none is given."""

    values: Mapping[str, str]
    problems: Mapping[str, str]
    amounts: ContainerAmounts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastedManifest:
    """The text that was pasted, and what is wrong with it."""

    text: str = ""
    problems: Sequence[Problem] = ()


NOTHING_PASTED: Final = PastedManifest()


def fit_form(values: Mapping[str, str]) -> FitForm:
    """Read the values of an address."""
    wanted = {key: values.get(key, "").strip() for key in (*_KEYS, "ns")}
    problems: dict[str, str] = {}
    memory = memory_of(wanted["memory"]) if wanted["memory"] else None
    if wanted["memory"] and memory is None:
        problems["memory"] = _problem(wanted["memory"], ACCEPTED_MEMORY)
    cores = _whole(wanted["cores"], 0, WHOLE_GPU)
    if cores is None:
        problems["cores"] = _problem(wanted["cores"], _whole_number(0, WHOLE_GPU))
    count = _whole(wanted["count"] or "1", 1, MOST_COUNT)
    if count is None:
        problems["count"] = _problem(wanted["count"], _whole_number(1, MOST_COUNT))
    if wanted["mode"] and wanted["mode"] not in _MODES:
        problems["mode"] = _problem(
            wanted["mode"], message("{modes}, or nothing for any", modes=", ".join(_MODES))
        )
    if len(wanted["model"]) > _LONGEST_MODEL:
        problems["model"] = _problem(wanted["model"], message("part of a name, such as A100"))
    asked = any(wanted[key] for key in _KEYS)
    amounts = None
    if asked and not problems:
        amounts = ContainerAmounts(
            memory=memory,
            cores=CorePercent(cores or 0),
            count=count or 1,
            mode=_MODES.get(wanted["mode"]),
            models=(wanted["model"],) if wanted["model"] else (),
        )
    return FitForm(values=wanted, problems=problems, amounts=amounts)


def _whole_number(least: int, most: int) -> PageMessage:
    return message("a whole number from {least} to {most}", least=least, most=most)


def _problem(text: str, accepted: str) -> PageMessage:
    return message("{value} is not accepted; give {accepted}", value=quote(text), accepted=accepted)


def _whole(text: str, least: int, most: int) -> int | None:
    """Read a whole number within bounds; 0 where there is no text."""
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) < 10):  # noqa: PLR2004 -- digits
        return None
    return int(text) if least <= int(text) <= most else None


def fit_page(
    question: PageQuestion,
    form: FitForm,
    answers: Sequence[Fit],
    *,
    pasted: PastedManifest = NOTHING_PASTED,
) -> PageView:
    """Return the page; *answers* are about the form, or about what was pasted."""
    limited = not question.viewer.scope.cluster
    blocks = [*_results(answers, limited=limited), _amounts_form(form)]
    blocks.append(_manifest_form(question, pasted))
    return PageView(
        title=message("Fit"),
        heading=message("Would it fit?"),
        blocks=tuple(blocks),
        document=None if limited else fit_document([("", answer) for answer in answers]),
        as_of=question.now,
        refreshes=False,
    )


def _results(answers: Sequence[Fit], *, limited: bool) -> Iterator[PageBlock]:
    for number, answer in enumerate(answers):
        lines = answer_lines(answer, limited=limited)
        title = (
            message("The answer")
            if len(answers) == 1
            else message("Answer {number} of {answers}", number=number + 1, answers=len(answers))
        )
        yield facts_of(title, lines, name=f"answer-{number + 1}")
    if answers:
        yield PageNote(text=joined_text(" ", (_NOTE, _LIMITED)) if limited else _NOTE)


def answer_lines(answer: Fit, *, limited: bool) -> Iterator[Line]:
    """Return an answer in words; a *limited* one names no nodes."""
    return _limited_lines(answer) if limited else fit_lines(answer, "")


def decided_request(row: DecisionRow) -> PodRequest | None:
    """Return what a decision was about, without its filters; ``None`` where it asks for no GPU."""
    if not row.asked:
        return None
    containers = tuple(
        ContainerRequest(
            name=part.name,
            index=index,
            stage=_STAGES.get(part.stage, Stage.APP),
            count=part.count,
            memory=None if part.memory_mib is None else MiB(part.memory_mib),
            percent=part.memory_percent,
            cores=CorePercent(part.cores_percent or 0),
        )
        for index, part in enumerate(row.asked[:MOST_CONTAINERS])
    )
    mode = _MODES.get(row.mode) if row.mode_source == ModeSource.NAMED else None
    return PodRequest(
        vocabulary=VOLCANO.name,
        containers=containers,
        mode=mode,
        mode_key=None if mode is None else VOLCANO.mode_key,
    )


def _limited_lines(answer: Fit) -> Iterator[Line]:
    """Yield the verdict, what is missing and what smaller request would fit, without nodes."""
    text, tone = feasibility_text.WORDS[answer.verdict]
    yield heading(answer.manifest_pod.name or "a pod", text, tone)
    if answer.request is not None:
        yield from row("asked", feasibility_text.request_text(answer.request))
    for finding in answer.findings:
        yield from row("refused", f"{finding} [{finding.reason}]", Tone.BAD)
    yield from mode_row_lines(answer.modes, nodes=False)
    if answer.outlook is None:
        return
    for finding in () if answer.findings else answer.outlook.choice.findings:
        yield from row("missing", f"{finding.place}: {finding.what}", Tone.WARN)
    for option in answer.outlook.options:
        if option.kind is OptionKind.SHRINK:
            yield from row("try", option.text, Tone.STRONG)


def _amounts_form(form: FitForm) -> PageForm:
    def field(name: str, label: PageMessage, hint: str = "") -> FormField:
        problem = form.problems.get(name, "")
        return FormField(
            name=name, label=label, value=form.values.get(name, ""), hint=hint, problem=problem
        )

    modes = (("", message("any")), *((mode, mode) for mode in _MODES))
    return PageForm(
        name="amounts",
        title=message("In numbers"),
        action="/fit",
        fields=(
            field(
                "memory",
                message("Memory per GPU"),
                message("MiB, such as 18000 or 18Gi; empty: all of it"),
            ),
            field("cores", message("Compute in percent"), message("0 to 100; empty: no limit")),
            field("count", message("GPUs"), message("1 to 64")),
            FormField(
                name="mode",
                label=message("Mode"),
                value=form.values.get("mode", ""),
                choices=modes,
                problem=form.problems.get("mode", ""),
            ),
            field("model", message("Model"), message("part of a name, such as A100")),
            field("ns", message("Namespace")),
        ),
        submit=message("Would it fit?"),
    )


def _manifest_form(question: PageQuestion, pasted: PastedManifest) -> PageForm:
    wrong = "; ".join(str(problem) for problem in pasted.problems[:10])
    return PageForm(
        name="manifest",
        title=message("As a manifest"),
        action="/fit",
        fields=(
            FormField(
                name="manifest",
                label=message("Pod, Deployment, Job or other workload"),
                value=pasted.text,
                hint=message("YAML or JSON. It is read, answered and forgotten."),
                problem=wrong,
                lines=14,
                wide=True,
            ),
        ),
        submit=message("Would these fit?"),
        posts=True,
        token=question.viewer.csrf,
    )
