"""Options: what it would take for a request that does not fit, the least disturbing first."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import msgspec

from allocator.catalog.annotations import PROFILE_KEY
from allocator.catalog.boards import MODELS, Model, bare_name
from allocator.core.choose import Choice, FitVerdict, PlacementPolicy, choose
from allocator.core.fleet import snapshot_of
from allocator.core.refusals import vocabulary_of
from allocator.model.gpu import Gpu, Node, Snapshot
from allocator.model.request import Mode, PodRequest

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
    terms: PlacementPolicy

    def __call__(self, request: PodRequest) -> Choice:
        """Look for a place for *request*."""
        return choose(self.snapshot, request, mode=self.mode, terms=self.terms)


def remedies(request: PodRequest, choice: Choice, search: FleetSearch) -> Iterator[Remedy]:
    """Yield what it would take, the least disturbing first."""
    for finding in choice.findings:
        yield Remedy(OptionKind.SHRINK, f"{finding.place}: {finding.remedy}")
    for key, freer in _without_constraints(request):
        found = replace(search, mode=None)(freer)
        if found.assignment is not None:
            where = f"{found.assignment.mode} on {found.assignment.node}"
            yield Remedy(OptionKind.LIFT, f"remove {key}: it fits now, {where}")
        elif choice.verdict is FitVerdict.NEVER and found.verdict is not FitVerdict.NEVER:
            yield Remedy(OptionKind.LIFT, f"remove {key}: it fits once other pods have ended")
    if choice.verdict is FitVerdict.NEVER:
        yield from _larger_models(request, search)


def _without_constraints(request: PodRequest) -> Iterator[tuple[str, PodRequest]]:
    """Yield the request without one of its constraints at a time, and the key to remove."""
    names, filters = vocabulary_of(request), request.filters
    if request.mode is not None and names.mode_key is not None:
        yield names.mode_key, msgspec.structs.replace(request, mode=None)
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
    count = sum(ask.count for ask in request.containers)
    if count > MOST_GPUS:
        return
    for model in sorted(MODELS.values(), key=lambda model: (model.memory, model.name)):
        fleet = snapshot_of([_imagined_node(model, count)], version="", complete=True)
        found = replace(search, snapshot=fleet)(request)
        if found.assignment is not None:
            what = f"{count} {bare_name(model.name)} in mode {found.assignment.mode}"
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
