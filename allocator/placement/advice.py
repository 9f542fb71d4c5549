"""Advice: what a pod lacks on the GPUs as they are, and the smallest change that helps."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import msgspec

from allocator.catalog.vocabularies import Vocabulary
from allocator.mig.profiles import smallest_sufficient
from allocator.model.decision import Finding, Reason
from allocator.model.request import ContainerRequest, Mode, PodRequest
from allocator.model.units import WHOLE_GPU, CorePercent, MiB
from allocator.placement.fit import Headroom, shortfall
from allocator.placement.mig import MigOptions
from allocator.placement.packing import Headrooms
from allocator.request.wording import (
    asked_memory,
    field_of,
    memory_figure,
    memory_text,
    percent_text,
    place_of,
    vocabulary_of,
)

Fits = Callable[[PodRequest], bool]
Obstacle = tuple[Reason, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallerRequest:
    """A smaller number in one container with which the whole pod fits, all else unchanged."""

    container_request: ContainerRequest
    resource: str
    advice: str


def shortage_advice(
    request: PodRequest,
    nodes: Sequence[Headrooms],
    *,
    mig_options: MigOptions,
    fits: Fits,
    later: bool,
) -> Finding:
    """Say what is short on the GPUs of *nodes*, and the largest smaller number that would fit.

    *later* says that waiting helps too. What is advised was tried: *fits* answered for it.
    """
    if request.one_numa:
        nodes = [part for headrooms in nodes for part in _by_numa(headrooms)]
    met = (
        (container_request, _obstacle(request, container_request, nodes, mig_options=mig_options))
        for container_request in request.containers
    )
    blocked = {
        container_request: obstacle for container_request, obstacle in met if obstacle is not None
    }
    relief = next(_reliefs(request, tuple(blocked) or request.containers, fits), None)
    if relief is None:
        remedy = "wait until other pods end" if later else "ask for less in several containers"
    else:
        where = "" if blocked else f" in {place_of(relief.container_request)}"
        remedy = relief.advice + where + (" now, or wait" if later else "")
    if not blocked:
        return _crowded_finding(nodes, remedy)
    container_request = next(iter(blocked)) if relief is None else relief.container_request
    reason, what = blocked[container_request]
    return Finding(
        reason=reason,
        place=place_of(container_request),
        field=field_of(container_request, None if relief is None else relief.resource),
        what=what,
        remedy=remedy,
    )


def _crowded_finding(nodes: Sequence[Headrooms], remedy: str) -> Finding:
    all_mig = all(headroom.gpu.mode is Mode.MIG for headrooms in nodes for headroom in headrooms)
    return Finding(
        reason=Reason.NO_GEOMETRY if all_mig else Reason.MEMORY_SHORT,
        place="pod",
        field="spec",
        what="its containers fit one by one, but not together on one node",
        remedy=remedy,
    )


def _by_numa(headrooms: Headrooms) -> Iterable[Headrooms]:
    parts: dict[int | None, list[Headroom]] = {}
    for headroom in headrooms:
        parts.setdefault(headroom.gpu.numa, []).append(headroom)
    return map(tuple, parts.values())


def _obstacle(
    request: PodRequest,
    container_request: ContainerRequest,
    nodes: Sequence[Headrooms],
    *,
    mig_options: MigOptions,
) -> Obstacle | None:
    """Return why no node, or NUMA node, takes *container_request* alone; ``None`` if one does."""
    takers = [
        sum(_takes(container_request, headroom, mig_options) for headroom in headrooms)
        for headrooms in nodes
    ]
    most = max(takers, default=0)
    if most >= container_request.count:
        return None
    headrooms = tuple(chain.from_iterable(nodes))
    if most:
        able = f"{most} has" if most == 1 else f"{most} have"
        where = "NUMA node" if request.one_numa else "node"
        what = f"asks for {container_request.count} GPUs on one {where}; only {able} room"
        return Reason.TOO_MANY, what
    soft = [headroom for headroom in headrooms if headroom.gpu.mode is not Mode.MIG]
    return (
        _hami_core_obstacle(container_request, soft, names=vocabulary_of(request))
        if soft
        else _mig_obstacle(container_request, headrooms, mig_options)
    )


def _takes(
    container_request: ContainerRequest, headroom: Headroom, mig_options: MigOptions
) -> bool:
    if headroom.gpu.mode is Mode.MIG:
        return bool(mig_options.options(container_request, (headroom,)))
    return not shortfall(container_request, headroom)


def _hami_core_obstacle(
    container_request: ContainerRequest, headrooms: Sequence[Headroom], *, names: Vocabulary
) -> Obstacle:
    """Describe what the closest GPU lacks."""
    closest = min(headrooms, key=lambda headroom: shortfall(container_request, headroom).rank)
    match shortfall(container_request, closest).reason:
        case Reason.SHARE_CLASS:
            theirs = ", ".join(closest.shares)
            what = f"shares a GPU as {container_request.share}; the closest is shared as {theirs}"
            return Reason.SHARE_CLASS, what
        case Reason.SHARES_SHORT:
            what = f"all {closest.gpu.slots} shares of the closest GPU are taken"
            return Reason.SHARES_SHORT, what
        case Reason.MEMORY_SHORT:
            asked = asked_memory(names, container_request)
            free = memory_figure(names, container_request, closest.memory, total=closest.gpu.memory)
            return Reason.MEMORY_SHORT, f"asks for {asked}; the closest has {free} free"
        case _ if container_request.cores >= WHOLE_GPU:
            return Reason.CORES_SHORT, "asks for a whole GPU, but every GPU is in use"
        case _ if not container_request.cores:
            return Reason.CORES_SHORT, "all cores of the closest GPU are promised to other pods"
        case _:
            cores = max(0, WHOLE_GPU - closest.cores)
            what = (
                f"asks for {container_request.cores} cores of one GPU; the closest has {cores} free"
            )
            return Reason.CORES_SHORT, what


def _mig_obstacle(
    container_request: ContainerRequest, headrooms: Sequence[Headroom], mig_options: MigOptions
) -> Obstacle:
    profiles = {
        smallest_sufficient(container_request, headroom.gpu.board, mig_options.named)
        for headroom in headrooms
    }
    names = " or ".join(sorted(profile.profile.name for profile in profiles if profile is not None))
    lacks = f"free slots for a {names} instance" if names else "a large enough MIG profile"
    return Reason.NO_GEOMETRY, f"no GPU has {lacks}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Amount:
    """One number of a container that could be smaller: *least* up to below *asked*."""

    resource: str
    text: Callable[[int], str]  # a value with its unit
    least: int
    asked: int
    with_value: Callable[[int], ContainerRequest]


def _reliefs(
    request: PodRequest, container_requests: Sequence[ContainerRequest], fits: Fits
) -> Iterator[SmallerRequest]:
    """Yield, for one number after the other, the largest smaller value with which the pod fits."""
    for container_request in container_requests:
        for amount in _amounts(container_request, vocabulary_of(request)):

            def fits_with(
                value: int,
                container_request: ContainerRequest = container_request,
                amount: _Amount = amount,
            ) -> bool:
                with_value = amount.with_value(value)
                return fits(_replace_container(request, container_request, with_value))

            value = _largest(fits_with, least=amount.least, below=amount.asked)
            if value is not None:
                advice = f"ask for at most {amount.text(value)}"
                yield SmallerRequest(
                    container_request=container_request, resource=amount.resource, advice=advice
                )


def _amounts(container_request: ContainerRequest, names: Vocabulary) -> Iterator[_Amount]:
    """Yield the numbers that the user can write smaller: those whose resource exists.

    They are in the unit of the resource. Who asks for whole GPUs by their number alone cannot
    ask for less of one.
    """
    if not (names.whole and container_request.cores == WHOLE_GPU):
        yield from _parts(container_request, names)
    if names.count is not None:
        yield _Amount(
            resource=names.count,
            text=lambda n: "1 GPU" if n == 1 else f"{n} GPUs",
            least=1,
            asked=container_request.count,
            with_value=lambda n: msgspec.structs.replace(container_request, count=n),
        )


def _parts(container_request: ContainerRequest, names: Vocabulary) -> Iterator[_Amount]:
    """Yield the numbers that say which part of a GPU is asked for."""
    factor = names.memory_factor
    if container_request.memory is not None and names.memory is not None:
        yield _Amount(
            resource=names.memory,
            text=lambda n: memory_text(names, n),
            least=1,
            asked=names.units(container_request.memory),
            with_value=lambda n: msgspec.structs.replace(container_request, memory=MiB(n * factor)),
        )
    elif names.percent is not None:
        yield _Amount(
            resource=names.percent,
            text=lambda n: f"{percent_text(n)} of its memory",
            least=1,
            asked=100 if container_request.percent is None else container_request.percent,
            with_value=lambda n: msgspec.structs.replace(container_request, percent=n),
        )
    if names.cores is not None:
        yield _Amount(
            resource=names.cores,
            text=lambda n: "1 core" if n == 1 else f"{n} cores",
            least=0,
            asked=container_request.cores,
            with_value=lambda n: msgspec.structs.replace(container_request, cores=CorePercent(n)),
        )


def _replace_container(
    request: PodRequest, container_request: ContainerRequest, with_value: ContainerRequest
) -> PodRequest:
    return msgspec.structs.replace(
        request,
        containers=tuple(
            with_value if one is container_request else one for one in request.containers
        ),
    )


def _largest(fits: Callable[[int], bool], *, least: int, below: int) -> int | None:
    """Return the largest value that fits, where every smaller one fits too; by halving."""
    if least >= below or not fits(least):
        return None
    while below - least > 1:
        middle = (least + below) // 2
        least, below = (middle, below) if fits(middle) else (least, middle)
    return least
