"""Fits now / later / never, on which GPUs, what it would take."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, assert_never

import msgspec

from allocator.catalog.boards import MODELS, Model, bare_name
from allocator.catalog.keys import PROFILE_KEY
from allocator.catalog.vocabularies import VOLCANO, Vocabulary
from allocator.model.allocation import Grant
from allocator.model.gpu import Gpu, Node, Snapshot
from allocator.model.request import Mode, PodRequest
from allocator.placement import choose as choosing
from allocator.placement.choose import Choice, FitVerdict, PlacementPolicy, choose, in_mode
from allocator.placement.fleet import snapshot_of
from allocator.report.copies import ONE_POD, Copies, CopyCount, place_copies
from allocator.request.wording import vocabulary_of

MOST_GPUS: Final = 16  # in one machine


class OptionKind(StrEnum):
    """What would have to change. Public API: never rename, only add."""

    SHRINK = "shrink"  # ask for less
    LIFT = "lift"  # drop a constraint
    GROW = "grow"  # other GPUs


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change with which the pod would fit, in words."""

    kind: OptionKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSearch:
    """A fleet, and the rules by which a place is looked for in it."""

    snapshot: Snapshot
    mode: Mode | None
    policy: PlacementPolicy

    def __call__(self, request: PodRequest) -> Choice:
        """Look for a place for *request*."""
        return choose(self.snapshot, request, mode=self.mode, policy=self.policy)


def remedies(request: PodRequest, choice: Choice, search: FleetSearch) -> Iterator[Remedy]:
    """Yield changes with which the request would fit, the least disturbing first."""
    for finding in choice.findings:
        yield Remedy(OptionKind.SHRINK, f"{finding.place}: {finding.remedy}")
    for key, freer in _without_constraints(request):
        found = replace(search, mode=None)(freer)
        if found.assignment is not None:
            where = f"{found.assignment.mode} on {found.assignment.node}"
            yield Remedy(OptionKind.LIFT, f"remove {key}: the pod fits now, {where}")
        elif choice.verdict is FitVerdict.NEVER and found.verdict is not FitVerdict.NEVER:
            yield Remedy(OptionKind.LIFT, f"remove {key}: the pod fits after other pods end")
    if choice.verdict is FitVerdict.NEVER:
        yield from _larger_models(request, search)


def _without_constraints(request: PodRequest) -> Iterator[tuple[str, PodRequest]]:
    """Yield the request without one of its constraints at a time, and the key to remove."""
    names, filters = vocabulary_of(request), request.filters
    key = request.mode_key or names.mode_key
    if request.mode is not None and key is not None:
        yield key, msgspec.structs.replace(request, mode=names.mode, mode_key=None)
    if request.profile is not None:
        yield PROFILE_KEY, msgspec.structs.replace(request, profile=None)
    for key, present, freer in (
        (names.use_models, filters.models, replace(filters, models=())),
        (names.not_models, filters.not_models, replace(filters, not_models=())),
        (names.use_uuids, filters.uuids, replace(filters, uuids=())),
        (names.not_uuids, filters.not_uuids, replace(filters, not_uuids=())),
    ):
        if key is not None and present:
            yield key, msgspec.structs.replace(request, filters=freer)


def _larger_models(request: PodRequest, search: FleetSearch) -> Iterator[Remedy]:
    """Yield the smallest model of the catalogue that would take *request*, if any does."""
    count = sum(container_request.count for container_request in request.containers)
    if count > MOST_GPUS:
        return
    for model in sorted(MODELS.values(), key=lambda model: (model.memory, model.name)):
        fleet = snapshot_of([_imagined_node(model, count)], version="", complete=True)
        choice = replace(search, snapshot=fleet)(request)
        if choice.assignment is not None:
            what = f"{count} {bare_name(model.name)} in mode {choice.assignment.mode}"
            yield Remedy(OptionKind.GROW, f"add a node with {what}")
            return


def _imagined_node(model: Model, count: int) -> Node:
    """Return a node with *count* GPUs of a model in each mode that it can be in."""
    modes = (Mode.MIG, Mode.HAMI_CORE) if model.board is not None else (Mode.HAMI_CORE,)
    gpus = (
        Gpu(
            uuid=f"GPU-{mode}-{index}",
            index=index,
            model=model.name,
            memory=model.memory,
            mode=mode,
            slots=1 + count,
            board=model.board if mode is Mode.MIG else None,
        )
        for mode in modes
        for index in range(count)
    )
    return Node(name="imagined", gpus=tuple(gpus))


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
    names: Vocabulary = VOLCANO  # in which the pod asks


@dataclass(frozen=True, slots=True, kw_only=True)
class Feasibility:
    """What a search found for one request; ``options`` say what it would take to fit."""

    choice: Choice
    verdict: FeasibilityVerdict
    devices: tuple[GrantedDevice, ...] = ()  # of one pod
    options: tuple[Remedy, ...] = ()
    copies: CopyCount
    left: Snapshot  # what the pods that fit leave of the fleet


def outlook(
    request: PodRequest, search: FleetSearch, *, refused: bool = False, copies: Copies = ONE_POD
) -> Feasibility:
    """Look for places for *request*; *refused* says that admission would not let it in.

    That no GPU could ever serve it is the graver news, so it is told even then.
    """
    choice = search(request)
    verdict = _verdict(choice, refused=refused)
    count, left = CopyCount(asked=copies), search.snapshot
    if choice.assignment is not None and copies.wanted and not refused:
        count, left = place_copies(
            in_mode(request, search.mode),
            search.snapshot,
            search.policy,
            copies=copies,
            first=choice.assignment.node,
        )
    found = Feasibility(
        choice=choice,
        verdict=verdict,
        devices=tuple(_devices(choice, search.snapshot, vocabulary_of(request))),
        copies=count,
        left=left,
    )
    if verdict is FeasibilityVerdict.FITS and count.is_short:
        return too_few(found)
    wanting = verdict in (FeasibilityVerdict.NOT_NOW, FeasibilityVerdict.NEVER)
    return replace(found, options=tuple(remedies(request, choice, search)) if wanting else ())


def too_few(found: Feasibility) -> Feasibility:
    """Return *found*, a pod that fits, for more pods than fit at the same time."""
    ever, fitting = found.copies.ever, found.copies.fitting
    if ever is not None:
        text = f"ask for at most {ever} at the same time; more never fit these GPUs"
        verdict = FeasibilityVerdict.NEVER
    else:
        text = f"ask for at most {fitting} at the same time; so many fit now"
        verdict = FeasibilityVerdict.NOT_NOW
    options = (Remedy(OptionKind.SHRINK, text),)
    return replace(found, verdict=verdict, options=options)


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


def _devices(choice: Choice, snapshot: Snapshot, names: Vocabulary) -> Iterator[GrantedDevice]:
    if choice.assignment is None:
        return
    node = snapshot.nodes[choice.assignment.node]
    gpus = {gpu.uuid: gpu for gpu in node.gpus}
    for container in choice.assignment.containers:
        for grant in container.grants:
            yield GrantedDevice(
                container=container.name,
                node=node.name,
                gpu=gpus[grant.gpu],
                grant=grant,
                names=names,
            )
