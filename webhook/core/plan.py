"""Plans: what would become of a pod on a given fleet, and what it would take if nothing fits."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, assert_never

from allocator.core import choose as choosing
from allocator.core.choose import Choice, Terms
from allocator.core.requests import parsed
from allocator.model.decision import Source
from allocator.model.gpu import Gpu, Grant, Snapshot
from allocator.model.request import Mode, PodRequest
from webhook.core.explain import refusal, warnings
from webhook.core.manifest import Made
from webhook.core.mutate import Surroundings, decide
from webhook.core.options import Option, Search, options
from webhook.core.outcome import Hidden, Outcome, Refused, Rewritten, Untouched
from webhook.core.patch import Operation, operations
from webhook.core.review import Pod


class Verdict(StrEnum):
    """What would become of a pod. Public API: never rename, only add."""

    FITS = "fits"
    NO_REQUEST = "no-request"
    NOT_NOW = "not-now"
    NEVER = "never"
    REFUSED = "refused"  # for what the pod is, not for want of room


EXIT_CODES: Final[Mapping[Verdict, int]] = MappingProxyType(
    {
        Verdict.FITS: 0,
        Verdict.NO_REQUEST: 0,
        Verdict.NOT_NOW: 4,
        Verdict.NEVER: 5,
        Verdict.REFUSED: 5,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the webhook answers the API server; ``message`` is what a refusal says."""

    allowed: bool
    operations: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    message: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One grant of a container, with the GPU that it is on."""

    container: str
    node: str
    gpu: Gpu
    grant: Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would become of the pod *made*: at admission, and on the fleet as it is.

    ``request`` is ``None`` for a pod that asks for nothing, or not in a way that can be read;
    then there is no ``choice`` either. ``options`` say what it would take where nothing fits.
    """

    made: Made
    verdict: Verdict
    outcome: Outcome
    answer: Answer
    request: PodRequest | None = None
    choice: Choice | None = None
    devices: tuple[Device, ...] = ()
    options: tuple[Option, ...] = ()


def plan(made: Made, around: Surroundings) -> Plan:
    """Decide about one pod as at CREATE, then look for a place on the snapshot of *around*."""
    outcome = decide(made.pod, around)
    answer = answer_of(made.pod, outcome)
    request = _request(made.pod, outcome, around)
    if request is None:
        verdict = Verdict.REFUSED if isinstance(outcome, Refused) else Verdict.NO_REQUEST
        return Plan(made=made, verdict=verdict, outcome=outcome, answer=answer)
    search = Search(
        snapshot=around.snapshot,
        mode=_final_mode(outcome),
        terms=Terms(prefer=around.prefer or around.settings.prefer),
    )
    choice = search(request)
    verdict = _verdict(outcome, choice)
    return Plan(
        made=made,
        verdict=verdict,
        outcome=outcome,
        answer=answer,
        request=request,
        choice=choice,
        devices=tuple(_devices(choice, around.snapshot)),
        options=tuple(options(request, choice, search)) if verdict in _WANTING else (),
    )


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Return the worst of several verdicts as an exit code: 5, then 4, then 0."""
    return max((EXIT_CODES[verdict] for verdict in verdicts), default=0)


def answer_of(pod: Pod, outcome: Outcome) -> Answer:
    """Return what the webhook says to a CREATE with this *outcome*."""
    said = tuple(warnings(outcome.warnings))
    match outcome:
        case Refused():
            status = refusal(outcome)
            return Answer(
                allowed=False, warnings=said, message=status.message, reason=status.reason
            )
        case Rewritten(intent=intent) | Hidden(intent=intent):
            return Answer(allowed=True, operations=tuple(operations(pod, intent)), warnings=said)
        case Untouched():
            return Answer(allowed=True, warnings=said)
        case _:
            assert_never(outcome)


_WANTING: Final = frozenset({Verdict.NOT_NOW, Verdict.NEVER})


def _request(pod: Pod, outcome: Outcome, around: Surroundings) -> PodRequest | None:
    """Return what the pod asks for, also where it was refused for something else."""
    if isinstance(outcome, Rewritten):
        return outcome.request
    request = parsed(
        containers=pod.spec.containers,
        init_containers=pod.spec.init_containers or (),
        annotations=pod.metadata.annotations or {},
        vocabularies=around.vocabularies,
    )
    return request if isinstance(request, PodRequest) else None


def _final_mode(outcome: Outcome) -> Mode | None:
    """Return the mode that the Binding may not revise any more."""
    if isinstance(outcome, Rewritten) and outcome.choice.source is not Source.BEST:
        return outcome.choice.mode
    return None


def _verdict(outcome: Outcome, choice: Choice) -> Verdict:
    match choice.verdict:
        case choosing.Verdict.NEVER:
            return Verdict.NEVER
        case _ if isinstance(outcome, Refused):
            return Verdict.REFUSED
        case choosing.Verdict.FITS:
            return Verdict.FITS
        case choosing.Verdict.NOT_NOW:
            return Verdict.NOT_NOW
        case _:
            assert_never(choice.verdict)


def _devices(choice: Choice, snapshot: Snapshot) -> Iterator[Device]:
    if choice.assignment is None:
        return
    node = snapshot.nodes[choice.assignment.node]
    gpus = {gpu.uuid: gpu for gpu in node.gpus}
    for container in choice.assignment.containers:
        for grant in container.grants:
            yield Device(container=container.name, node=node.name, gpu=gpus[grant.gpu], grant=grant)
