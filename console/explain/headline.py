"""The first two lines of an answer: what a pod lacks, and what would help."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from allocator.model.decision import Finding, Findings
from allocator.model.untrusted import escaped, quote
from allocator.report.feasibility import Feasibility, FeasibilityVerdict
from allocator.report.terminal_lines import Line, Tone, row
from console.cluster.event import EventView
from console.cluster.pod import ContainerTrouble, PodState, unserved_findings_of
from console.cluster.snapshot import READER_ROLE
from console.explain.why import PodWhy
from console.get.table import age

# A scheduler that runs looks at a new pod within seconds and leaves a condition on it.
UNSEEN_FOR: Final = timedelta(seconds=30)
TONES: Final = {
    PodState.WAITING: Tone.WARN,
    PodState.RESERVED: Tone.WARN,
    PodState.BOUND: Tone.STRONG,
    PodState.FAILING: Tone.BAD,
    PodState.RUNNING: Tone.GOOD,
    PodState.BYPASSED: Tone.BAD,
    PodState.ENDED: Tone.LABEL,
    PodState.GONE: Tone.LABEL,
}
_DEFAULT: Final = "default-scheduler"
_FAILED_SCHEDULING: Final = "FailedScheduling"
_MATTERS_OF_SCHEDULER: Final = "selectors, affinity, taints, volumes or quota"
_REMEDIES: Final = {
    "ImagePullBackOff": "correct the name of the image, or the pull secret of the pod",
    "ErrImagePull": "correct the name of the image, or the pull secret of the pod",
    "InvalidImageName": "correct the name of the image",
    "CrashLoopBackOff": "read its last words with: kubectl logs --previous",
}
_REMEDY: Final = "the message names the cause; kubectl describe pod shows what kubelet tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """What is missing, and what would help; ``help`` is empty where nothing is missing."""

    missing: str
    help: str = ""
    shortage: bool = False  # it is the first finding and the first option of the search


def headline_lines(word: str, tone: Tone, headline: Headline) -> Iterator[Line]:
    """Yield the two lines; *word* is the state."""
    yield from row(word.upper(), headline.missing, tone)
    if headline.help:
        yield from row("try", headline.help, Tone.STRONG)


def headline(pod_why: PodWhy) -> Headline:
    """Return what the pod lacks in its state, and what would help."""
    if pod_why.findings:
        return _of_finding(pod_why, pod_why.findings)
    return _HEADLINES[pod_why.state](pod_why)


def _reserved(pod_why: PodWhy) -> Headline:
    nodes = ", ".join(held.node for held in pod_why.held)
    return Headline(
        missing=f"its GPUs on {nodes} are reserved, but it is not bound yet",
        help="wait: the scheduler binds it, or the reservation ends by itself",
    )


def _bypassed(pod_why: PodWhy) -> Headline:
    node = escaped(pod_why.facts.pod.spec.node_name)
    return Headline(
        missing=f"bound to {node} without an entry: it bypassed vgpu-admission and does not start"
        " until it has one",
        help="wait for a late entry, or delete the pod so that it is scheduled again",
    )


def _bound(pod_why: PodWhy) -> Headline:
    return Headline(
        missing=f"bound to {escaped(pod_why.facts.pod.spec.node_name)}; no container runs yet",
        help="wait for kubelet; if it takes long, the events say why",
    )


def _running(pod_why: PodWhy) -> Headline:
    note = "" if pod_why.request is not None else "; it asks for no vGPU resources"
    return Headline(missing=f"on {escaped(pod_why.facts.pod.spec.node_name)}{note}")


def _waiting(pod_why: PodWhy) -> Headline:
    gates = pod_why.facts.pod.spec.scheduling_gates
    if gates:
        names = ", ".join(quote(gate.get("name", "")) for gate in gates)
        return Headline(
            missing=f"held back by scheduling gates {names}",
            help="wait: whoever set the gates removes them",
        )
    if is_unserved(pod_why):
        return _unserved(pod_why)
    if pod_why.request is None:
        return _without_request(pod_why)
    if pod_why.outlook is None:  # the ledgers may not be read
        named = _by_scheduler(pod_why, "what nodes lack is unknown: you may not read GPUNodes")
        return replace(named, help=f"ask an administrator for the ClusterRole {READER_ROLE}")
    return _unplaced(pod_why, pod_why.outlook)


def _without_request(pod_why: PodWhy) -> Headline:
    configuration = pod_why.facts.site.configuration
    for finding in unserved_findings_of(
        pod_why.facts.pod, configuration.vocabularies, configuration.lost
    ):
        return Headline(missing=f"{finding.place}: {finding.what}", help=finding.remedy)
    return _by_scheduler(pod_why, "it asks for no vGPU resources")


def _unserved(pod_why: PodWhy) -> Headline:
    pod = pod_why.facts.pod
    since = age(pod.metadata.creation_timestamp, pod_why.facts.site.now)
    name = quote(pod.spec.scheduler_name)
    other = "" if name == quote(_DEFAULT) else f", or set schedulerName to {_DEFAULT}"
    return Headline(
        missing=f"schedulerName {name} seems to be served by nobody: no scheduler has looked at"
        f" the pod for {since}",
        help=f"start a scheduler that serves {name}{other}",
    )


def _unplaced(pod_why: PodWhy, feasibility: Feasibility) -> Headline:
    """Return what a pod lacks that no node has taken."""
    if feasibility.verdict is FeasibilityVerdict.FITS:
        nodes = sorted({device.node for device in feasibility.devices})
        return _by_scheduler(pod_why, f"its GPUs have room on {', '.join(nodes)}")
    now = None if pod_why.mode_now is None else pod_why.mode_now.decision
    if feasibility.verdict is FeasibilityVerdict.REFUSED and isinstance(now, Findings):
        return _of_finding(pod_why, now.all)
    findings = feasibility.choice.findings
    if not findings:
        return Headline(missing="no node takes it", help=_ending_help(pod_why) or "wait")
    named = _of_finding(pod_why, findings)
    first = next(iter(feasibility.options), None)
    if first is not None and first.text != f"{findings[0].place}: {findings[0].remedy}":
        named = replace(named, help=first.text)
    return replace(named, shortage=True)


def _ending_help(pod_why: PodWhy) -> str:
    pods = [f"{pod.namespace}/{pod.pod} on {pod.node}" for pod in pod_why.freeing_pods]
    return f"wait until {pods[0]} ends" if pods else ""


def _of_finding(pod_why: PodWhy, findings: Sequence[Finding]) -> Headline:
    """Return the first finding; its container is named where there are several."""
    finding, more = findings[0], len(findings) - 1
    alone = finding.place == "pod" or len(pod_why.facts.pod.spec.containers) == 1
    where = "" if alone and not pod_why.facts.pod.spec.init_containers else f"{finding.place}: "
    rest = f" (+{more} more)" if more else ""
    return Headline(missing=f"{where}{finding.what}{rest}", help=f"{where}{finding.remedy}")


def _by_scheduler(pod_why: PodWhy, otherwise: str) -> Headline:
    """Return what the scheduler said last, after *otherwise*; without a word, that it is due."""
    event = _last_word(pod_why.facts.events)
    if event is None:
        name = escaped(pod_why.facts.pod.spec.scheduler_name or "a scheduler")
        return Headline(missing=otherwise, help=f"wait for {name} to bind it")
    return Headline(
        missing=f"{otherwise}; {escaped(event.reporter)} says: {event.message}",
        help=f"change what it names ({_MATTERS_OF_SCHEDULER}), or wait: it tries again",
    )


def _last_word(events: Sequence[EventView]) -> EventView | None:
    return next((event for event in events if event.reason == _FAILED_SCHEDULING), None)


def is_unserved(pod_why: PodWhy) -> bool:
    """Say whether the pod waits for a scheduler that gave no sign of having seen it."""
    pod, now = pod_why.facts.pod, pod_why.facts.site.now
    created = pod.metadata.creation_timestamp
    return (
        pod_why.state is PodState.WAITING
        and bool(pod.spec.scheduler_name)
        and created is not None
        and now - created >= UNSEEN_FOR
        and not pod.status.is_seen_by_scheduler
        and not any(
            event.reason == _FAILED_SCHEDULING or event.reporter == pod.spec.scheduler_name
            for event in pod_why.facts.events
        )
    )


def _failing(pod_why: PodWhy) -> Headline:
    trouble = next(iter(pod_why.facts.pod.status.troubles), ContainerTrouble())
    message = f": {trouble.message}" if trouble.message else ""
    return Headline(
        missing=f"container {quote(trouble.container)} does not start: {trouble.reason}{message}",
        help=_REMEDIES.get(trouble.reason, _REMEDY),
    )


def _ended(pod_why: PodWhy) -> Headline:
    status = pod_why.facts.pod.status
    reason = ": ".join(filter(None, (escaped(status.reason), status.message)))
    word = {"Succeeded": "its containers ended well", "Failed": "it failed"}.get(
        status.phase, "it is over"
    )
    if status.phase != "Failed":
        return Headline(missing=word)
    return Headline(
        missing=f"{word}: {reason}" if reason else word,
        help="delete it, so that its controller replaces it; a pod that failed starts no more",
    )


_HEADLINES: Final[Mapping[PodState, Callable[[PodWhy], Headline]]] = {
    PodState.WAITING: _waiting,
    PodState.RESERVED: _reserved,
    PodState.BOUND: _bound,
    PodState.FAILING: _failing,
    PodState.RUNNING: _running,
    PodState.BYPASSED: _bypassed,
    PodState.ENDED: _ended,
    PodState.GONE: _ended,
}
