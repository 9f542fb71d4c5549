"""Refusals: which number of a request no GPU of the fleet could meet, and which one it could."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from allocator.catalog.boards import MODELS, bare_name
from allocator.catalog.keys import LIBRARY_KEY, MIN_ISOLATION_KEY, MODE_KEY, PROFILE_KEY
from allocator.mig.profiles import ProfileCapacity, profiles_of
from allocator.model.decision import Finding, Reason
from allocator.model.gpu import GpuKind
from allocator.model.request import ContainerRequest, Mode, PodRequest
from allocator.model.units import WHOLE_GPU, MiB
from allocator.model.untrusted import escaped, quote
from allocator.placement.fit import hardware, holds, serves
from allocator.request.wording import (
    asked_memory,
    field_of,
    memory_text,
    percent_text,
    place_of,
    short_name,
    vocabulary_of,
)

Offers = Mapping[GpuKind, int]
MOST_MODELS: Final = 8  # in one sentence
_LARGEST_KNOWN: Final = max(model.memory for model in MODELS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fleet:
    """Kinds of GPU with their numbers on one node: of the models *accepted*, in the mode named."""

    accepted: Offers
    kinds: Offers
    mixed: bool

    def closest_in_number(self, count: int) -> "_Fleet":
        """Return those kinds alone of which a node has *count*, or else the most.

        An amount that another kind has would be advised in vain: the number would be refused next.
        """
        if self.mixed:
            return self
        enough = min(count, max(self.kinds.values()))
        return replace(self, kinds={k: n for k, n in self.kinds.items() if n >= enough})


def unservable_findings(
    request: PodRequest, offers: Offers, *, mixed: bool = False
) -> tuple[Finding, ...]:
    """Say why no node could ever take *request*, in stable facts; nothing if one might.

    A controller retries a refused pod and folds equal texts, so no text names what is free.
    Where nodes are *mixed*, kinds may stand together on one, and less is certain.
    """
    accepted = {k: n for k, n in offers.items() if request.accepts_kind(k)}
    if not accepted:
        others = [kind for kind in offers if kind.family == request.family]
        return (_no_model(request, others) if others else _no_family(request),)
    wanted = None if request.named_mode is None else hardware(request.named_mode)
    kinds = {k: n for k, n in accepted.items() if wanted in (None, k.mode)}
    if not kinds:
        return (_no_mode(request, accepted),)
    fleet = _Fleet(accepted=accepted, kinds=kinds, mixed=mixed)
    candidate = (
        _obstacles(request, container_request, fleet) for container_request in request.containers
    )
    findings = tuple(chain.from_iterable(candidate))
    if findings or mixed or any(_takes(request, k, n) for k, n in kinds.items()):
        return findings
    return (_too_much(),)


def impossible_findings(request: PodRequest, offers: Offers) -> tuple[Finding, ...]:
    """Say what no GPU has that is here or in the catalogue: no node to come would help."""
    largest = max([_LARGEST_KNOWN, *(kind.memory for kind in offers)])
    names = vocabulary_of(request)
    most = names.units(MiB(largest))
    several = "" if names.count is None or names.whole else " on each of several GPUs"
    return tuple(
        Finding(
            reason=Reason.MEMORY_SHORT,
            place=place_of(container_request),
            field=field_of(container_request, names.memory),
            what=f"asks for {asked_memory(names, container_request)}; "
            f"the largest known GPU has {most}",
            remedy=f"ask for at most {memory_text(names, most)}{several}",
        )
        for container_request in request.containers
        if container_request.memory is not None and container_request.memory > largest
    )


def ambiguous_percent(
    request: PodRequest, container_request: ContainerRequest, kinds: Iterable[GpuKind]
) -> Finding:
    """Say that a percentage means different amounts on *kinds*, and which."""
    names = vocabulary_of(request)
    amounts = {
        escaped(bare_name(kind.model)): names.units(container_request.memory_on(kind.memory))
        for kind in kinds
    }
    listed = [f"{amount} on {model}" for model, amount in sorted(amounts.items())]
    resource = short_name(names.memory or "memory")
    return Finding(
        reason=Reason.CONFLICTING,
        place=place_of(container_request),
        field=field_of(container_request, names.percent),
        what=f"{percent_text(container_request.percent or 0)} of a GPU is a different number of "
        f"{names.unit} on each model",
        remedy=f"ask for {resource} instead: {', '.join(listed[:MOST_MODELS])}",
    )


def _takes(request: PodRequest, kind: GpuKind, count: int) -> bool:
    container_requests = request.containers
    fits = all(
        serves(container_request, kind, request.profile) and container_request.count <= count
        for container_request in container_requests
    )
    return fits and holds(request, kind, count)


def _no_family(request: PodRequest) -> Finding:
    names = vocabulary_of(request)
    first = request.containers[0]
    return Finding(
        reason=Reason.MODEL_UNAVAILABLE,
        place=place_of(first),
        field=field_of(first, None),
        what=f"asks for GPUs of the family {request.family}, of which there is none here",
        remedy=f"ask in another vocabulary than {names.name}, or add such a node",
    )


def _no_model(request: PodRequest, offers: Collection[GpuKind]) -> Finding:
    names, filters = vocabulary_of(request), request.filters
    unknown = filters.models and not any(
        wish.lower() in kind.model.lower() for kind in offers for wish in filters.models
    )
    key, items = names.not_models, filters.not_models
    if unknown or not items:
        key, items = names.use_models, filters.models
    verb = "matches none of" if items is filters.models else "excludes all of"
    return Finding(
        reason=Reason.MODEL_UNAVAILABLE,
        place="pod",
        field=f'metadata.annotations["{key}"]',
        what=f"{key} {quote(','.join(items))} {verb} {_models(offers)}",
        remedy="name one of these, or remove it",
    )


def _no_mode(request: PodRequest, accepted: Offers) -> Finding:
    names, key = vocabulary_of(request), PROFILE_KEY if request.profile else _mode_key(request)
    others = " or ".join(sorted({kind.mode for kind in accepted}))
    remedy = f"use {others}, or remove {key}" if key else f"set {MODE_KEY} to {others}"
    if request.library_off:
        remedy = f"remove {LIBRARY_KEY}"
    demanded = key == MIN_ISOLATION_KEY
    if demanded:
        remedy = f"ask an administrator for such GPUs; the namespace demands them with {key}"
    if names.mode is not None:  # its resources go with no other mode
        remedy = f"ask for {names.slot} and its memory in MiB instead of {names.memory}"
    return Finding(
        reason=Reason.MODE_UNAVAILABLE,
        place="pod",
        field=f'metadata.annotations["{key}"]' if key and not demanded else "metadata.annotations",
        what=f'mode "{request.named_mode}" is not available here',
        remedy=remedy,
    )


def _mode_key(request: PodRequest) -> str | None:
    """Return the annotation that names the mode, or that of the vocabulary, if it has one."""
    return request.mode_key or vocabulary_of(request).mode_key


def _obstacles(
    request: PodRequest, container_request: ContainerRequest, fleet: _Fleet
) -> Iterator[Finding]:
    """Yield what is wrong with one container: what no GPU has, and what no node has enough of."""
    able = {k: n for k, n in fleet.kinds.items() if serves(container_request, k, request.profile)}
    if not able:
        yield _too_much_per_gpu(request, container_request, fleet)
    counts = (able or fleet.closest_in_number(container_request.count).kinds).values()
    most = sum(counts) if fleet.mixed else max(counts)
    if container_request.count > most:
        yield _too_many(request, container_request, most)


def _too_much_per_gpu(
    request: PodRequest, container_request: ContainerRequest, fleet: _Fleet
) -> Finding:
    if container_request.cores > WHOLE_GPU:
        return _too_many_cores(request, container_request, of="one whole GPU", most=WHOLE_GPU)
    if all(kind.mode is Mode.MIG for kind in fleet.kinds):
        return _no_geometry(
            request, container_request, fleet.closest_in_number(container_request.count)
        )
    return _too_big(request, container_request, fleet)


def _too_many(request: PodRequest, container_request: ContainerRequest, most: int) -> Finding:
    resource = vocabulary_of(request).count
    return Finding(
        reason=Reason.TOO_MANY,
        place=place_of(container_request),
        field=field_of(container_request, resource),
        what=f"asks for {container_request.count} GPUs; no node has more than {most} that qualify",
        remedy=f"ask for at most {most} per pod",
    )


def _too_many_cores(
    request: PodRequest, container_request: ContainerRequest, *, of: str, most: int
) -> Finding:
    resource = vocabulary_of(request).cores
    return Finding(
        reason=Reason.CORES_SHORT,
        place=place_of(container_request),
        field=field_of(container_request, resource),
        what=f"{short_name(resource or 'cores')} {container_request.cores} is more than {of}",
        remedy=f"ask for at most {most}",
    )


def _too_big(request: PodRequest, container_request: ContainerRequest, fleet: _Fleet) -> Finding:
    names = vocabulary_of(request)
    usable = {kind: names.units(_largest_share(kind, container_request)) for kind in fleet.kinds}
    kinds = fleet.closest_in_number(container_request.count).kinds
    largest = max(usable[kind] for kind in kinds)
    what = f"the largest has {largest}"
    if max(usable.values()) > largest:
        what = f"no node has {container_request.count} GPUs with more than {largest}"
    remedy = _at_most(largest)
    if largest and names.count and not names.whole:
        asked = names.units(container_request.memory) if container_request.memory else largest
        parts = -(-asked // largest)
        each, count = -(-asked // parts), parts * container_request.count
        if count <= max((n for kind, n in kinds.items() if usable[kind] >= each), default=0):
            remedy += f", or use {short_name(names.count)} {count} with {each} each"
    return Finding(
        reason=Reason.MEMORY_SHORT,
        place=place_of(container_request),
        field=field_of(container_request, names.memory),
        what=f"asks for {asked_memory(names, container_request)}; {what}",
        remedy=remedy,
    )


def _at_most(units: int) -> str:
    """Advise the largest amount; none, where the GPUs have less than one unit of the request."""
    return f"ask for at most {units}" if units else "no smaller amount can be asked for"


def _largest_share(kind: GpuKind, container_request: ContainerRequest) -> MiB:
    """Return the most memory that a container can have on a GPU of a kind, with its cores."""
    if kind.mode is not Mode.MIG:
        return kind.memory
    shares = (p.memory for p in profiles_of(kind.board) if p.cores >= container_request.cores)
    return max(shares, default=MiB(0))


def _no_geometry(
    request: PodRequest, container_request: ContainerRequest, fleet: _Fleet
) -> Finding:
    profiles = [
        (kind, profile)
        for kind in fleet.kinds
        for profile in profiles_of(kind.board, request.profile)
    ]
    if not profiles:
        return _no_profile(request, container_request, fleet)
    roomy = [candidate for candidate in profiles if _roomy(container_request, candidate[1])]
    if roomy:
        kind, profile = max(roomy, key=lambda candidate: (candidate[1].cores, candidate[0].model))
        of = f"the share of {profile.profile} on {bare_name(kind.model)}"
        return _too_many_cores(request, container_request, of=of, most=profile.cores)
    kind, profile = max(profiles, key=lambda candidate: (candidate[1].memory, candidate[0].model))
    names = vocabulary_of(request)
    if container_request.memory is not None:
        units = names.units(profile.memory)
        asked = memory_text(names, names.units(container_request.memory))
        usable, remedy = memory_text(names, units), _at_most(units)
    else:
        asked = f"{percent_text(container_request.percent or 0)} of a GPU"
        usable = percent_text(profile.percent)
        remedy = f"ask for at most {usable}"
    largest = f"{profile.profile} on {bare_name(kind.model)} with {usable} usable"
    return Finding(
        reason=Reason.NO_GEOMETRY,
        place=place_of(container_request),
        field=field_of(
            container_request,
            names.memory if container_request.memory is not None else names.percent,
        ),
        what=f"no MIG profile here has {asked} (largest: {largest})",
        remedy=f"{remedy}{_removal_hint(request, container_request, fleet)}",
    )


def _roomy(container_request: ContainerRequest, profile: ProfileCapacity) -> bool:
    return profile.memory >= (container_request.memory or 0) and profile.percent >= (
        container_request.percent or 0
    )


def _no_profile(request: PodRequest, container_request: ContainerRequest, fleet: _Fleet) -> Finding:
    kinds = fleet.kinds
    known = sorted({profile.profile.name for kind in kinds for profile in profiles_of(kind.board)})
    remedy = f"use one of {', '.join(known)}" if known else "use another model"
    what = f"no MIG profile is known for {_models(kinds)}"
    if request.profile and known:
        what = f"no GPU here has the MIG profile {quote(request.profile)}"
    return Finding(
        reason=Reason.NO_GEOMETRY,
        place=place_of(container_request),
        field=f'metadata.annotations["{PROFILE_KEY}"]'
        if request.profile
        else field_of(container_request, None),
        what=what,
        remedy=remedy + _removal_hint(request, container_request, fleet),
    )


def _removal_hint(request: PodRequest, container_request: ContainerRequest, fleet: _Fleet) -> str:
    """Advise to drop what the user named, where the container would be served without it."""
    if request.profile is not None:
        key, others = PROFILE_KEY, list(fleet.accepted)
    else:
        key, own = _mode_key(request) or "", vocabulary_of(request).mode
        key = "" if key == MIN_ISOLATION_KEY else key
        others = [kind for kind in fleet.accepted if kind not in fleet.kinds]
        others = [kind for kind in others if own is None or hardware(own) is kind.mode]
    return (
        f" or remove {key}"
        if key and any(serves(container_request, kind) for kind in others)
        else ""
    )


def _too_much() -> Finding:
    return Finding(
        reason=Reason.TOO_MANY,
        place="pod",
        field="spec",
        what="its containers together ask for more than the largest node has",
        remedy="ask for less per container, or split the pod",
    )


def _models(kinds: Iterable[GpuKind]) -> str:
    names = sorted({escaped(bare_name(kind.model)) for kind in kinds})
    rest = len(names) - MOST_MODELS
    return ", ".join(names[:MOST_MODELS]) + (f" and {rest} more" if rest > 0 else "")
