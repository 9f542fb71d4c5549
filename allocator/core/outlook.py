"""Outlooks: whether a pod would fit now, later or never, on which GPUs, and what it would take."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, assert_never

from allocator.core import choose as choosing
from allocator.core.choose import Choice
from allocator.core.options import FleetSearch, Remedy, remedies
from allocator.model.gpu import Gpu, Grant, Snapshot
from allocator.model.request import PodRequest


class FeasibilityVerdict(StrEnum):
    """What would become of a pod. Public API: never rename, only add."""

    FITS = "fits"
    NO_REQUEST = "no-request"
    NOT_NOW = "not-now"
    NEVER = "never"
    REFUSED = "refused"  # for what the pod is, not for want of room


EXIT_CODES: Final[Mapping[FeasibilityVerdict, int]] = MappingProxyType(
    {
        FeasibilityVerdict.FITS: 0,
        FeasibilityVerdict.NO_REQUEST: 0,
        FeasibilityVerdict.NOT_NOW: 4,
        FeasibilityVerdict.NEVER: 5,
        FeasibilityVerdict.REFUSED: 5,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedDevice:
    """One grant of a container, with the GPU that it is on."""

    container: str
    node: str
    gpu: Gpu
    grant: Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class Feasibility:
    """What a search found for one request; ``options`` say what it would take to fit."""

    choice: Choice
    verdict: FeasibilityVerdict
    devices: tuple[GrantedDevice, ...] = ()
    options: tuple[Remedy, ...] = ()


def outlook(request: PodRequest, search: FleetSearch, *, refused: bool = False) -> Feasibility:
    """Look for a place for *request*; *refused* says that admission would not let it in.

    That no GPU could ever serve it is the graver news, so it is told even then.
    """
    choice = search(request)
    verdict = _verdict(choice, refused=refused)
    wanting = verdict in (FeasibilityVerdict.NOT_NOW, FeasibilityVerdict.NEVER)
    return Feasibility(
        choice=choice,
        verdict=verdict,
        devices=tuple(_devices(choice, search.snapshot)),
        options=tuple(remedies(request, choice, search)) if wanting else (),
    )


def exit_code(verdicts: Iterable[FeasibilityVerdict]) -> int:
    """Return the worst of several verdicts as an exit code: 5, then 4, then 0."""
    return max((EXIT_CODES[verdict] for verdict in verdicts), default=0)


def _verdict(choice: Choice, *, refused: bool) -> FeasibilityVerdict:
    match choice.verdict:
        case choosing.FitVerdict.NEVER:
            return FeasibilityVerdict.NEVER
        case _ if refused:
            return FeasibilityVerdict.REFUSED
        case choosing.FitVerdict.FITS:
            return FeasibilityVerdict.FITS
        case choosing.FitVerdict.NOT_NOW:
            return FeasibilityVerdict.NOT_NOW
        case _:
            assert_never(choice.verdict)


def _devices(choice: Choice, snapshot: Snapshot) -> Iterator[GrantedDevice]:
    if choice.assignment is None:
        return
    node = snapshot.nodes[choice.assignment.node]
    gpus = {gpu.uuid: gpu for gpu in node.gpus}
    for container in choice.assignment.containers:
        for grant in container.grants:
            yield GrantedDevice(
                container=container.name, node=node.name, gpu=gpus[grant.gpu], grant=grant
            )
