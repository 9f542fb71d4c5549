"""Why text: the explanation of a pod as lines for people."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from allocator.catalog.vocabularies import OWN
from allocator.config.settings import NodeAgent
from allocator.families.registry import FAMILIES
from allocator.model.decision import Findings, ModeChoice
from allocator.model.request import NVIDIA
from allocator.model.untrusted import escaped
from allocator.placement.mode import explain_mode
from allocator.report import feasibility_text
from allocator.report.feasibility import FeasibilityVerdict
from allocator.report.mode_rows import mode_row_lines
from allocator.report.terminal_lines import Line, Tone, counted, row
from console.cluster.event import EventView
from console.cluster.pod import PodState
from console.explain.headline import TONES, headline, headline_lines
from console.explain.why import MOST_FREEING_PODS, HeldEntry, NodeAnswer, PodWhy
from console.get.table import UNKNOWN, age

_MOST_NAMES: Final = 3
OPT_IN: Final = f"{OWN}inject"


def lines(pod_why: PodWhy, *, headed: bool = True) -> Iterator[Line]:
    """Yield what is missing and would help, then how it was asked, decided and granted.

    Without a *headed* answer its first two lines are left out.
    """
    pod, first = pod_why.facts.pod, headline(pod_why)
    if headed:
        yield from headline_lines(str(pod_why.state), TONES[pod_why.state], first)
    yield from row("pod", f"{pod.namespace}/{pod.metadata.name}")
    if pod_why.request is None and not pod_why.findings and not pod_why.held:
        yield from row("asked", "no vGPU resources")
        return
    if pod_why.request is not None:
        yield from row("asked", feasibility_text.request_text(pod_why.request))
    for finding in pod_why.findings:
        yield from row("asked", f"unreadable: {finding} [{finding.reason}]", Tone.BAD)
    yield from _admission_lines(pod_why)
    for held in pod_why.held:
        yield from _held_lines(pod_why, held)
    yield from _assignment_lines(pod_why)
    yield from _waiting_lines(pod_why)
    yield from _missing_lines(pod_why, shown=first.shortage)
    yield from event_lines(pod_why.facts.events, pod_why.facts.site.now)


def _admission_lines(pod_why: PodWhy) -> Iterator[Line]:
    """Yield what admission wrote on the pod, and the rule it would go by today."""
    if not pod_why.marks.digest:
        yield from row("admitted", _unseen_reason(pod_why), Tone.WARN)
    else:
        yield from row("admitted", _mode_text(pod_why), Tone.STRONG)
    now = pod_why.mode_now
    match None if now is None else now.decision:
        case ModeChoice(why=why) as choice if why:
            yield from row("why", f"{explain_mode(choice)} (on the current fleet)")
        case Findings() as findings:
            for finding in findings.all:
                yield from row("why", f"it would be refused today: {finding}", Tone.WARN)
        case _:
            pass


def _mode_text(pod_why: PodWhy) -> str:
    """Return the mode that the pod left admission with, or got when it was bound."""
    digest = escaped(pod_why.marks.digest)
    choice = None
    if pod_why.admitted is not None and pod_why.admitted.earlier is not None:
        choice = pod_why.admitted.earlier.choice
    if choice is None:  # the annotations do not agree, so the bind hook does not believe them
        return f"with an unreadable mode [{digest}]"
    return f"mode {choice.mode}, {feasibility_text.ADMITTED_SOURCES[choice.source]} [{digest}]"


def _unseen_reason(pod_why: PodWhy) -> str:
    labels = pod_why.facts.labels
    namespace = pod_why.facts.pod.namespace
    if labels is not None and labels.get(OPT_IN) != "enabled":
        return f"never: namespace {namespace} has no label {OPT_IN}=enabled"
    return "never: the webhook was not called, or the namespace opted in later"


def _held_lines(pod_why: PodWhy, held: HeldEntry) -> Iterator[Line]:
    bound = pod_why.facts.pod.spec.node_name
    tone = _grant_tone(pod_why)
    since = age(held.entry.since, pod_why.facts.site.now)
    if bound == held.node:
        yield from row(
            "bound", f"to {held.node}, committed {since} ago{_plugin_note(pod_why)}", tone
        )
    elif bound:
        yield from row("stale", f"on {held.node}, committed {since} ago", Tone.WARN)
    else:
        yield from row("reserved", f"on {held.node} {since} ago, not bound yet")
    for number, device in enumerate(held.devices):
        yield from row("" if number else "holds", feasibility_text.seat(device), tone)
    if bound == held.node:
        yield from _enforcement_lines(pod_why)


def _grant_tone(pod_why: PodWhy) -> Tone:
    """Return the tone of what is granted; it is good where containers run with it."""
    return Tone.GOOD if pod_why.state is PodState.RUNNING else Tone.PLAIN


def _assignment_lines(pod_why: PodWhy) -> Iterator[Line]:
    """Yield the GPUs that the annotations of the pod name, if there is no entry."""
    node = pod_why.facts.pod.spec.node_name
    if pod_why.held or not node or pod_why.state is PodState.BYPASSED:
        return
    tone = _grant_tone(pod_why)
    yield from row("bound", f"to {escaped(node)}{_plugin_note(pod_why)}", tone)
    for number, device in enumerate(pod_why.annotated_devices):
        yield from row("" if number else "holds", str(device), tone)
    yield from _enforcement_lines(pod_why)


def _plugin_note(pod_why: PodWhy) -> str:
    """Return whose device plugin serves the pod, where that is another project's."""
    family = FAMILIES[NVIDIA if pod_why.request is None else pod_why.request.family]
    plugins: dict[str, str] = {NodeAgent.UPSTREAM: family.plugin, NodeAgent.HAMI: "HAMi's"}
    plugin = plugins.get(pod_why.marks.served_by)
    return "" if plugin is None else f", served by {plugin} device plugin"


def _enforcement_lines(pod_why: PodWhy) -> Iterator[Line]:
    """Yield who keeps the limits where that is not our agent, and where its log is."""
    if pod_why.marks.served_by != NodeAgent.HAMI or pod_why.facts.pod.over:
        return
    node = escaped(pod_why.facts.pod.spec.node_name)
    yield from row(
        "limits",
        "kept by HAMi's library and its monitor, not by an agent of ours; their logs are on "
        f"{node}, in the pod of HAMi's device plugin: containers device-plugin and vgpu-monitor",
    )


def _waiting_lines(pod_why: PodWhy) -> Iterator[Line]:
    """Yield the state of a pod without an entry: its scheduler, and since when it waits."""
    pod = pod_why.facts.pod
    since = age(pod.metadata.creation_timestamp, pod_why.facts.site.now)
    if pod_why.state is PodState.WAITING and pod.spec.scheduling_gates:
        yield from row("waits", f"for {since}", Tone.WARN)
    elif pod_why.state is PodState.WAITING:
        by = escaped(pod.spec.scheduler_name or "a scheduler")
        yield from row("waits", f"for {since}, to be bound by {by}", Tone.WARN)


def _missing_lines(pod_why: PodWhy, *, shown: bool) -> Iterator[Line]:
    """Yield what a pod without a node lacks, and what would help.

    The first of each is left out where the headline has *shown* it.
    """
    feasibility = pod_why.outlook
    if pod_why.facts.site.blind and pod_why.state is PodState.WAITING:
        yield from row("nodes", "unknown: you may not read GPUNodes", Tone.WARN)
    if feasibility is None:
        return
    if shown:
        findings = feasibility.choice.findings[1:]
        choice = replace(feasibility.choice, findings=findings)
        feasibility = replace(feasibility, choice=choice, options=feasibility.options[1:])
    yield from feasibility_text.placement_lines(feasibility)
    if feasibility.verdict is FeasibilityVerdict.FITS:
        yield from row("", "it fits now; the scheduler says what else it waits for")
    yield from _node_lines(pod_why)
    yield from mode_row_lines(pod_why.modes)
    yield from feasibility_text.remedy_lines(feasibility)
    for number, pod in enumerate(pod_why.freeing_pods):
        text = f"{pod.namespace}/{pod.pod} on {pod.node} ends"
        yield from row("" if number else "or after", text, Tone.STRONG)


def _node_lines(pod_why: PodWhy) -> Iterator[Line]:
    """Yield what each node lacks, the closest first, equal answers grouped."""
    if not pod_why.answers:
        yield from row("nodes", "none has GPUs known to vgpu-admission", Tone.WARN)
        return
    alike: dict[str, list[NodeAnswer]] = {}
    for answer in pod_why.answers:
        alike.setdefault(_shortage(answer), []).append(answer)
    for number, (lacks, answers) in enumerate(alike.items()):
        fits = answers[0].finding is None and not answers[0].closed_reason
        text = f"{_names(answers)}: {lacks}"
        yield from row("" if number else "nodes", text, Tone.GOOD if fits else Tone.PLAIN)
    if pod_why.node_count > len(pod_why.answers):
        more = pod_why.node_count - len(pod_why.answers)
        yield from row("", f"and {counted(more, 'more node')}")
    yield from _stranger_lines(pod_why)


def _stranger_lines(pod_why: PodWhy) -> Iterator[Line]:
    """Yield the pods that came past admission onto nodes where the pod does not fit."""
    texts = [
        f"{use.namespace}/{use.pod} uses GPUs of {answer.node}, and what it asks for is kept for it"
        for answer in pod_why.answers
        for use in answer.strangers
    ]
    for number, text in enumerate(texts[:MOST_FREEING_PODS]):
        yield from row("" if number else "no entry", text, Tone.WARN)
    if len(texts) > MOST_FREEING_PODS:
        yield from row("", f"and {counted(len(texts) - MOST_FREEING_PODS, 'more pod')}")


def _names(answers: Sequence[NodeAnswer]) -> str:
    """Return the first names, and the number of the others."""
    names = ", ".join(answer.node for answer in answers[:_MOST_NAMES])
    rest = len(answers) - _MOST_NAMES
    return f"{names} and {rest} more" if rest > 0 else names


def _shortage(answer: NodeAnswer) -> str:
    if answer.closed_reason:
        return answer.closed_reason
    if answer.finding is None:
        return "enough room"
    finding = answer.finding
    where = "" if finding.place == "pod" else f"{finding.place}: "
    return f"{where}{finding.what} [{finding.reason}]"


def event_lines(events: Iterable[EventView], now: datetime) -> Iterator[Line]:
    """Yield the Events of an object."""
    for number, event in enumerate(events):
        tone = Tone.WARN if event.type == "Warning" else Tone.PLAIN
        yield from row(
            "" if number else "events", _event_text(event, age(event.last_time, now)), tone
        )


def _event_text(event: EventView, ago: str) -> str:
    """Return one Event: when, how often, who, what."""
    times = f" (x{event.times})" if event.times > 1 else ""
    when = UNKNOWN if event.last_time.year == 1 else f"{ago} ago"
    return f"{when}{times} {escaped(event.reporter)}: {event.reason}: {event.message}"
