"""Explains the pods of a workload; pods in the same state with one request share an answer."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from allocator.report.terminal_lines import Line, Tone, counted, row
from console.cluster.event import CreationRefusal
from console.cluster.pod import PodState, PodView, request_of, state_of
from console.cluster.snapshot import ClusterView, entries_in_use
from console.cluster.workload import Workload
from console.explain import fit as fits
from console.explain import why_text
from console.explain.fit import Fit, pod_document
from console.explain.headline import TONES, Headline, headline, headline_lines
from console.explain.why import PodWhy, has_promise
from console.explain.why_json import event_document, why_document
from console.get.listing import API_VERSION
from console.get.table import age

KIND: Final = "WhyList"
MOST_GROUPS: Final = 4  # groups that are explained
_MOST_NAMES: Final = 3
# Pods that wait for something come first.
_ORDER: Final = (
    PodState.WAITING,
    PodState.FAILING,
    PodState.BYPASSED,
    PodState.RESERVED,
    PodState.BOUND,
    PodState.RUNNING,
    PodState.ENDED,
    PodState.GONE,
)


@dataclass(frozen=True, slots=True)
class PodsAlike:
    """Pods that are in one *state* and ask for the same."""

    state: PodState
    pods: tuple[PodView, ...]


@dataclass(frozen=True, slots=True)
class ExplainedGroup:
    """A group, and the explanation of its first pod."""

    group: PodsAlike
    why: PodWhy

    @property
    def other_pods(self) -> tuple[str, ...]:
        """Return the names of the other pods of the group."""
        return tuple(pod.metadata.name for pod in self.group.pods[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadWhy:
    """What became of the pods of a workload."""

    workload: Workload
    now: datetime  # of the reading
    groups: tuple[PodsAlike, ...] = ()
    explained: tuple[ExplainedGroup, ...] = ()  # of the first groups
    fits: tuple[Fit, ...] = ()  # of its templates, where it has no pods

    @property
    def lacks_pods(self) -> bool:
        """Say whether it has fewer pods than it wants, or none where its kind has no number."""
        wanted = self.workload.maker.replicas
        live = sum(not pod.over for pod in self.workload.pods)
        return live < wanted if wanted is not None else not self.workload.pods

    @property
    def states(self) -> Mapping[PodState, int]:
        """Count its pods by their state."""
        counts = Counter(dict.fromkeys(_ORDER, 0))
        for group in self.groups:
            counts[group.state] += len(group.pods)
        return {state: count for state, count in counts.items() if count}


def group_pods(pods: Sequence[PodView], site: ClusterView) -> tuple[PodsAlike, ...]:
    """Return *pods* in groups, sorted by name within each."""
    places: dict[str, set[str]] = {}
    for name, ledger in site.ledgers.items():
        for entry in entries_in_use(ledger):
            places.setdefault(entry.uid, set()).add(name)
    groups: dict[tuple[PodState, object], list[PodView]] = {}
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        request = request_of(pod, site.configuration.vocabularies)
        promised = has_promise(pod, places.get(pod.metadata.uid, ()), blind=site.blind)
        state = state_of(pod, promised=promised, asking=request is not None)
        likeness = request, pod.spec.scheduling_gates is None
        groups.setdefault((state, likeness), []).append(pod)
    pod_groups = (PodsAlike(state, tuple(members)) for (state, _), members in groups.items())
    return tuple(sorted(pod_groups, key=lambda group: _ORDER.index(group.state)))


def lines(workload_why: WorkloadWhy) -> Iterator[Line]:
    """Yield the counts of pods, then each group; without pods, what a new pod would get."""
    refused = workload_why.lacks_pods and workload_why.workload.refusal is not None
    yield from _headline_lines(workload_why)
    yield from row("workload", workload_why.workload.title)
    yield from row("pods", _state_counts(workload_why))
    yield from why_text.event_lines(workload_why.workload.events, workload_why.now)
    for number, explained in enumerate(workload_why.explained):
        yield ()
        yield from why_text.lines(explained.why, headed=refused or number > 0)
        if explained.other_pods:
            yield from row("alike", _names(explained.other_pods))
    if more := len(workload_why.groups) - len(workload_why.explained):
        yield ()
        yield from row(
            "more", f"{counted(more, 'more group')} of pods; ask about one of their pods"
        )
    for fit in workload_why.fits:
        yield ()
        yield from fits.lines(fit, f"the stored {workload_why.workload.kind.name}")


def _headline_lines(workload_why: WorkloadWhy) -> Iterator[Line]:
    """Yield what the workload lacks, and what would help."""
    workload = workload_why.workload
    if workload_why.lacks_pods and workload.refusal is not None:
        yield from headline_lines("refused", Tone.BAD, _refusal_headline(workload_why))
    elif workload_why.explained:
        first = workload_why.explained[0]
        state, count = first.group.state, len(first.group.pods)
        answer = headline(first.why)
        if len(workload.pods) > 1:
            whose = f"{count} of {len(workload.pods)} pods"
            answer = replace(answer, missing=f"{whose}: {answer.missing}")
        yield from headline_lines(state, TONES[state], answer)
    else:
        answer = _empty_headline(workload_why)
        tone = Tone.WARN if workload_why.lacks_pods else Tone.STRONG
        yield from headline_lines("no pods", tone, answer)


def _refusal_headline(workload_why: WorkloadWhy) -> Headline:
    """Return what the API server said of a pod that it did not let in."""
    workload = workload_why.workload
    refusal = workload.refusal or CreationRefusal("", None)
    count = len(workload.pods)
    whose = f"{counted(count, 'pod')}, and no other" if count else "no pod"
    text, semicolon, remedy = refusal.text.partition("; ")
    if not semicolon:
        remedy = "change what the message names; its controller tries again by itself"
    when = refusal.last_time
    last = f" (last refused {age(when, workload_why.now)} ago)" if when else ""
    return Headline(missing=f"{whose} is let in{last}: {text}", help=remedy)


def _empty_headline(workload_why: WorkloadWhy) -> Headline:
    """Return why a workload has no pod that nobody refused."""
    if not workload_why.lacks_pods:
        return Headline(missing="it wants none")
    for fit in workload_why.fits:
        findings = fit.findings or (() if fit.outlook is None else fit.outlook.choice.findings)
        if findings:
            missing = f"none was created yet, and one would not fit: {findings[0].what}"
            return Headline(missing=missing, help=findings[0].remedy)
    return Headline(missing="none was created yet", help="wait for its controller")


def _state_counts(workload_why: WorkloadWhy) -> str:
    """Return how many pods there are in each state, and how many there should be."""
    counts = ", ".join(f"{count} {state}" for state, count in workload_why.states.items()) or "none"
    wanted = workload_why.workload.maker.replicas
    running = sum(not pod.over for pod in workload_why.workload.pods)
    return counts if wanted in (None, running) else f"{counts}; {wanted} wanted"


def _names(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMES
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown} and {rest} more" if rest > 0 else shown


def document(workload_why: WorkloadWhy) -> dict[str, Any]:
    """Return the same in the shape that docs/kubectl.md describes; keys are only ever added."""
    workload = workload_why.workload
    metadata = workload.maker.metadata
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "workload": {
            "kind": workload.kind.name,
            "group": workload.kind.group,
            "namespace": metadata.namespace,
            "name": metadata.name,
            "uid": metadata.uid,
            "replicas": workload.maker.replicas,
        },
        "pods": len(workload.pods),
        "refusal": None if workload.refusal is None else workload.refusal.text,
        "states": {str(state): count for state, count in workload_why.states.items()},
        "items": [
            {**why_document(group.why), "alike": group.other_pods}
            for group in workload_why.explained
        ],
        "fits": [pod_document("", fit) for fit in workload_why.fits],
        "events": [event_document(event) for event in workload.events],
    }
