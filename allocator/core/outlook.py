"""Outlooks: whether a pod would fit now, later or never, on which GPUs, and what it would take."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, assert_never

from allocator.core import choose as choosing
from allocator.core.choose import Choice
from allocator.core.options import Option, Search, options
from allocator.model.gpu import Gpu, Grant, Snapshot
from allocator.model.request import PodRequest


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
class Device:
    """One grant of a container, with the GPU that it is on."""

    container: str
    node: str
    gpu: Gpu
    grant: Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a search found for one request; ``options`` say what it would take to fit."""

    choice: Choice
    verdict: Verdict
    devices: tuple[Device, ...] = ()
    options: tuple[Option, ...] = ()


def outlook(request: PodRequest, search: Search, *, refused: bool = False) -> Outlook:
    """Look for a place for *request*; *refused* says that admission would not let it in.

    That no GPU could ever serve it is the graver news, so it is told even then.
    """
    choice = search(request)
    verdict = _verdict(choice, refused=refused)
    wanting = verdict in (Verdict.NOT_NOW, Verdict.NEVER)
    return Outlook(
        choice=choice,
        verdict=verdict,
        devices=tuple(_devices(choice, search.snapshot)),
        options=tuple(options(request, choice, search)) if wanting else (),
    )


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Return the worst of several verdicts as an exit code: 5, then 4, then 0."""
    return max((EXIT_CODES[verdict] for verdict in verdicts), default=0)


def _verdict(choice: Choice, *, refused: bool) -> Verdict:
    match choice.verdict:
        case choosing.Verdict.NEVER:
            return Verdict.NEVER
        case _ if refused:
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
