"""Outlook text: requests, verdicts and options of an outlook, as lines for people."""

from collections.abc import Iterable, Iterator
from typing import Final

from allocator.catalog.boards import bare_name
from allocator.model.decision import Candidate, ModeChoice, ModeSource
from allocator.model.request import ContainerRequest, Mode, PodRequest, Stage
from allocator.model.untrusted import escaped
from allocator.placement.choose import Choice
from allocator.placement.mode import explain_mode
from allocator.report.copies import CopyCount
from allocator.report.feasibility import Feasibility, FeasibilityVerdict, GrantedDevice, OptionKind
from allocator.report.terminal_lines import Line, ListLine, TextSpan, Tone, counted, row
from allocator.request.wording import granted_memory, memory_text, vocabulary_of

WORDS: Final = {
    FeasibilityVerdict.FITS: ("FITS NOW", Tone.GOOD),
    FeasibilityVerdict.NO_REQUEST: ("NO REQUEST", Tone.GOOD),
    FeasibilityVerdict.NOT_NOW: ("NOT NOW", Tone.WARN),
    FeasibilityVerdict.NEVER: ("NEVER FITS", Tone.BAD),
    FeasibilityVerdict.REFUSED: ("REFUSED", Tone.BAD),
}
_MOST_NODES: Final = 8  # named of those that take the pods of one template
_MOST_GROUPS: Final = 16  # of GPUs that answered alike
_SOURCES: Final = {
    ModeSource.NAMED: "named by the pod",
    ModeSource.ONLY: "the only one that can serve it",
    ModeSource.BEST: "which may change when the pod is bound",
}
ADMITTED_SOURCES: Final = {  # of a pod whose mode was decided
    ModeSource.NAMED: "named by the pod",
    ModeSource.ONLY: "the only one that could serve it",
    ModeSource.BEST: "the best of those that can serve it",
}


def request_text(request: PodRequest) -> str:
    """Return what a pod asks for, in a sentence."""
    parts = [_amounts(container_request, request) for container_request in request.containers]
    return "; ".join([*parts, *_wishes(request)])


def _amounts(container_request: ContainerRequest, request: PodRequest) -> str:
    names, profile = vocabulary_of(request), request.profile
    if container_request.memory is not None:
        memory = memory_text(names, names.units(container_request.memory))
    elif container_request.percent is not None:
        memory = f"{container_request.percent} % of its memory"
    else:
        memory = "all its memory" if profile is None else f"a {escaped(profile)}"
    amounts = (
        f"{memory} and {container_request.cores} % of its compute"
        if container_request.cores
        else memory
    )
    stage = "" if container_request.stage is Stage.APP else f" ({container_request.stage})"
    gpus = "1 GPU" if container_request.count == 1 else f"{container_request.count} GPUs, each"
    return f"{escaped(container_request.name)}{stage}: {gpus} with {amounts}"


def _wishes(request: PodRequest) -> Iterator[str]:
    if request.mode is not None:
        yield f"mode {request.mode}"
    filters = request.filters
    for word, items in (
        ("only", (*filters.models, *filters.uuids)),
        ("not", (*filters.not_models, *filters.not_uuids)),
    ):
        if items:
            yield f"{word} {' or '.join(map(escaped, items))}"
    if request.one_numa:
        yield "the GPUs of a container on one NUMA node"


def mode_lines(choice: ModeChoice) -> Iterator[Line]:
    """Yield the mode that a pod leaves admission with, and why."""
    yield from row("given", f"mode {choice.mode}, {_SOURCES[choice.source]}", Tone.STRONG)
    yield from row("why", explain_mode(choice))


def placement_lines(
    feasibility: Feasibility, *, given: Mode | None = None, refusal: str = ""
) -> Iterator[Line]:
    """Yield the places of the pod, or what is missing; *refusal* is the text of one.

    A mode other than the one *given* at admission is explained.
    """
    choice = feasibility.choice
    if feasibility.verdict is FeasibilityVerdict.REFUSED:
        return
    for number, device in enumerate(feasibility.devices):
        yield from row("" if number else "now", seat(device), Tone.GOOD)
    yield from _copy_lines(feasibility.copies)
    assignment = choice.assignment
    if choice.rule and given is not None and assignment and assignment.mode is not given:
        yield from row("", f"because {choice.rule}")
    for finding in () if is_repeated(feasibility, refusal) else choice.findings:
        yield from row("missing", f"{finding.place}: {finding.what}", Tone.WARN)


def _copy_lines(copies: CopyCount) -> Iterator[Line]:
    """Yield how many pods fit, where more than one is wanted and the first one fits."""
    asked = copies.asked
    if asked.wanted == 1 or not copies.fitting:
        return
    whose = f"{copies.running} of {asked.wanted} pods fit at the same time"
    shown = [f"{number} on {node}" for node, number in list(copies.nodes.items())[:_MOST_NODES]]
    more = len(copies.nodes) - len(shown)
    where = ", ".join([*shown, f"the others on {more} more nodes"] if more else shown)
    least = "" if asked.needed == asked.wanted else f"; {asked.needed} must run at the same time"
    tone = Tone.WARN if copies.is_short else Tone.GOOD
    yield from row("pods", f"{whose}: {where}{least}", tone)


def remedy_lines(feasibility: Feasibility, *, refusal: str = "") -> Iterator[Line]:
    """Yield the options; *refusal* is the text of one, which is not repeated."""
    for option in feasibility.options:
        if not (option.kind is OptionKind.SHRINK and is_repeated(feasibility, refusal)):
            yield from row("try", option.text, Tone.STRONG)


def is_repeated(feasibility: Feasibility, refusal: str) -> bool:
    """Return whether *refusal* already contains a finding of the search."""
    return any(str(finding) in refusal for finding in feasibility.choice.findings)


def seat(device: GrantedDevice) -> str:
    """Return one grant and its GPU as text."""
    grant, gpu = device.grant, device.gpu
    memory = granted_memory(device.names, grant.memory)
    where = f"{device.node} GPU {gpu.index}, {bare_name(gpu.model)}"
    if grant.placed is not None:
        what = f"{grant.placed.profile} at slot {grant.placed.start} ({memory})"
    else:
        what = f"{memory}{_cores_text(device)}"
    return f"{device.container}: {grant.mode}, {what} on {where}"


def _cores_text(device: GrantedDevice) -> str:
    """Return the compute of a share, and to what it is rounded up on a GPU that is divided."""
    grant, gpu = device.grant, device.gpu
    cores = f" and {grant.cores} % of its compute" if grant.cores else ""
    if not gpu.chunks:
        return cores
    taken = f"{gpu.chunks_for(grant.cores)} of its {gpu.chunks} chunks"
    size = f" of {counted(gpu.chunk_sms, 'multiprocessor')}" if gpu.chunk_sms else ""
    return f"{cores}, rounded up to {taken}{size}" if cores else f" and {taken}{size}"


def candidate_lines(choice: Choice) -> Iterator[Line]:
    """Yield the verdicts of GPUs, those that fit first, equal ones grouped."""
    names = dict.fromkeys(candidate.container for candidate in choice.candidates)
    for name in names:
        candidates = [one for one in choice.candidates if one.container == name]
        able = sum(one.reason is None for one in candidates)
        whose = f" for {escaped(name)}" if len(names) > 1 else ""
        yield from row(
            "tried",
            f"{counted(len(candidates), 'GPU')}{whose}, {able} {'fits' if able == 1 else 'fit'}",
        )
        yield from _table(candidates)


def _table(candidates: Iterable[Candidate]) -> Iterator[Line]:
    groups: dict[tuple[str, str, bool], list[str]] = {}
    for one in sorted(candidates, key=lambda one: one.reason is not None):
        key = (bare_name(one.model), str(one.mode), one.reason is None)
        groups.setdefault(key, []).append(one.detail.removeprefix(f"{key[0]} is "))
    wide = max((len(model) for model, _, _ in groups), default=0)
    for (model, mode, able), details in list(groups.items())[:_MOST_GROUPS]:
        head = f"{len(details):>6}  {model:<{wide}}  {mode:<11}  "
        tone = Tone.GOOD if able else Tone.PLAIN
        yield ListLine(head, "fits: " if able else "", tuple(details), tone)
    if len(groups) > _MOST_GROUPS:
        yield (TextSpan(f"{'':>6}  and {counted(len(groups) - _MOST_GROUPS, 'more kind')}"),)
