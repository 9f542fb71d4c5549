"""Containers: what the resources of one container ask for, with every contradiction named."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol

import msgspec

from allocator.catalog.vocabularies import VOLCANO, Vocabulary
from allocator.model.decision import Finding, Reason
from allocator.model.request import ContainerRequest, Priority, Stage
from allocator.model.units import WHOLE_GPU, CorePercent, MiB
from allocator.model.untrusted import escaped, quote
from allocator.request.amounts import PartialFinding, amount, bytes_in_mib
from allocator.request.quantity import parse
from allocator.request.resource_names import (
    Amounts,
    ResourceName,
    ResourceNames,
    ResourceRole,
)

MOST_FINDINGS: Final = 16  # more would not help, and a pod may name thousands of resources
_COUNT, _MEMORY, _PERCENT, _CORES, _PRIORITY = ResourceRole
_KEEP_ONE: Final = "keep one"
ZERO: Final = frozenset({0, "0"})


class ResourceSpec(Protocol):
    """The resources of a container: amounts by resource name."""

    @property
    def limits(self) -> Amounts | None:
        """Return the limits, which decide."""

    @property
    def requests(self) -> Amounts | None:
        """Return the requests, which must equal the limits."""


class ContainerSpec(Protocol):
    """The parts of a container that tell what it asks for, under Kubernetes' own names."""

    @property
    def name(self) -> str:
        """Return its name, which is unique in the pod."""

    @property
    def restart_policy(self) -> str | None:
        """Return ``Always`` for an init container that is a sidecar."""

    @property
    def resources(self) -> ResourceSpec | None:
        """Return what it may use."""


class AskingContainer(NamedTuple):  # a NamedTuple is the cheapest to build
    """A container that names resources of ours."""

    container: ContainerSpec
    resources: ResourceSpec
    position: int  # in spec.initContainers or spec.containers
    of_init: bool  # whether it is in spec.initContainers
    amounts: Amounts  # of our resources; where limits and requests differ, the limit
    known_names: Sequence[ResourceName]  # the names in amounts that a vocabulary has

    def finding(self, name: str, flaw: PartialFinding) -> Finding:
        """Return *flaw* as the finding about resource *name* of this container."""
        kind = "init container" if self.of_init else "container"
        group = "initContainers" if self.of_init else "containers"
        section = "limits" if name in (self.resources.limits or ()) else "requests"
        return Finding(
            reason=flaw.reason,
            place=f"{kind} {quote(self.container.name)}",
            field=f'spec.{group}[{self.position}].resources.{section}["{escaped(name)}"]',
            what=flaw.what,
            remedy=flaw.remedy,
        )


def asking_containers(
    init_containers: Sequence[ContainerSpec],
    containers: Sequence[ContainerSpec],
    names: ResourceNames,
) -> Iterator[AskingContainer]:
    """Yield the containers that name resources of ours, in the order of the pod."""
    for of_init, group in ((True, init_containers), (False, containers)):
        for position, container in enumerate(group):
            resources = container.resources
            if resources is None:
                continue
            amounts = names.own_amounts(resources.requests, resources.limits)
            if amounts:
                yield AskingContainer(
                    container=container,
                    resources=resources,
                    position=position,
                    of_init=of_init,
                    amounts=amounts,
                    known_names=names.known_names(amounts),
                )


def container_request(
    container: AskingContainer, names: ResourceNames
) -> ContainerRequest | list[Finding]:
    """Return what *container* asks for, or the list of what is wrong with it.

    An empty list means that it asks for nothing.
    """
    numbers: dict[ResourceRole, int] = {}
    flaws = [*islice(_unknown_names(container, names), MOST_FINDINGS)]
    if not flaws:
        for resource in container.known_names:
            number = amount(resource, container.amounts[resource.name])
            if isinstance(number, PartialFinding):
                flaws.append((resource.name, number))
            else:
                numbers[resource.role] = number
        flaws += islice(_request_flaws(container), MOST_FINDINGS)
    if not flaws:
        flaws += _duplicate_requests(container, numbers, names)
        flaws += _clashes(numbers, container.known_names)
    if flaws:
        return [container.finding(name, flaw) for name, flaw in flaws]
    if not _asks(numbers):
        return []
    vocabulary = container.known_names[0].vocabulary
    built = build_request(
        container.container,
        vocabulary,
        numbers,
        position=container.position,
        of_init=container.of_init,
    )
    memory = _memory_in_bytes(container)
    return built if memory is None else msgspec.structs.replace(built, memory=memory)


def _memory_in_bytes(container: AskingContainer) -> MiB | None:
    """Return the memory that a container asks for in bytes, ``None`` where it asks in units."""
    amounts = (
        bytes_in_mib(resource, container.amounts[resource.name])
        for resource in container.known_names
    )
    return next((MiB(found) for found in amounts if found is not None), None)


def conflicting_names(first: str, second: str) -> PartialFinding:
    """Return the flaw of asking for GPUs by two names that do not go together."""
    return PartialFinding(
        reason=Reason.CONFLICTING,
        what=f"both {escaped(first)} and {escaped(second)} ask for GPUs",
        remedy=_KEEP_ONE,
    )


def unserved_name(name: str, vocabulary: Vocabulary) -> PartialFinding:
    """Return the flaw of asking by *name* where its vocabulary is not served."""
    return PartialFinding(
        reason=Reason.UNSERVED,
        what=f"{escaped(name)} belongs to the vocabulary {vocabulary.name}, which this cluster"
        " does not serve",
        remedy=f"ask by the names of another vocabulary, such as {VOLCANO.memory}, or ask the"
        f" administrators to add {vocabulary.name} to the setting vocabularies",
    )


def build_request(
    container: ContainerSpec,
    vocabulary: Vocabulary,
    numbers: Mapping[ResourceRole, int],
    *,
    position: int,
    of_init: bool,
) -> ContainerRequest:
    """Return what *container* asks for; *numbers* must not contradict each other."""
    count, percent = numbers.get(_COUNT, 0), numbers.get(_PERCENT) or None
    units = numbers.get(_MEMORY, 0) or (0 if percent else vocabulary.default_memory)
    whole = (vocabulary.whole and count > 0) or _is_exclusive(vocabulary, numbers)
    priority = numbers.get(_PRIORITY)
    return ContainerRequest(
        name=container.name,
        index=position,
        stage=_stage(container) if of_init else Stage.APP,
        count=count or vocabulary.default_count,
        memory=MiB(units * vocabulary.memory_factor) if units else None,
        percent=percent,
        cores=WHOLE_GPU if whole else CorePercent(numbers.get(_CORES, vocabulary.default_cores)),
        priority=None if priority is None else Priority(priority),
    )


def _is_exclusive(vocabulary: Vocabulary, numbers: Mapping[ResourceRole, int]) -> bool:
    """Say whether a container gets whole GPUs because it says nothing of cores, nor of less memory.

    An amount of 0 says something. So does the memory that the cluster gives who names none.
    """
    if not vocabulary.exclusive or _CORES in numbers or _MEMORY in numbers:
        return False
    percent = numbers.get(_PERCENT)
    return percent == int(WHOLE_GPU) or (percent is None and not vocabulary.default_memory)


def _asks(numbers: Mapping[ResourceRole, int]) -> bool:
    """Say whether amounts ask for a GPU; a priority alone does not."""
    return any(number for role, number in numbers.items() if role is not _PRIORITY)


def _stage(container: ContainerSpec) -> Stage:
    """Return when an init container runs."""
    return Stage.SIDECAR if container.restart_policy == "Always" else Stage.INIT


def _unknown_names(
    container: AskingContainer, names: ResourceNames
) -> Iterator[tuple[str, PartialFinding]]:
    """Yield names that no vocabulary has, and the first name of a second vocabulary."""
    for name in container.amounts:
        if name not in names.by_name:
            known = names.closest_name(name)
            yield (
                name,
                PartialFinding(
                    reason=Reason.MALFORMED,
                    what=f"{escaped(name)} is not a known resource",
                    remedy=f"use {known}" if known else f"use {', '.join(names.by_name)}",
                ),
            )
    for resource in container.known_names:
        if resource.vocabulary is not container.known_names[0].vocabulary:
            yield resource.name, conflicting_names(container.known_names[0].name, resource.name)
            return


def _request_flaws(container: AskingContainer) -> Iterator[tuple[str, PartialFinding]]:
    """Yield requests without or unlike their limit; the API server would refuse them later.

    It says "Limit must be set for non overcommitable resources", whatever the amount.
    """
    limits, requests = container.resources.limits or {}, container.resources.requests or {}
    for name in container.amounts:
        if name not in limits:
            flaw = PartialFinding(
                reason=Reason.MALFORMED,
                what=f"{name.rpartition('/')[2]} is in requests only, and the API server wants a "
                "limit for it",
                remedy=f"set {name} in limits",
            )
            yield name, flaw
        elif name in requests and not _is_same(limits[name], requests[name]):
            flaw = PartialFinding(
                reason=Reason.CONFLICTING,
                what=f"{name.rpartition('/')[2]} is {quote(limits[name])} in limits "
                f"and {quote(requests[name])} in requests",
                remedy=f"leave {name} out of requests",
            )
            yield name, flaw


def _is_same(one: str | int, other: str | int) -> bool:
    if one == other:
        return True
    first, second = parse(one), parse(other)
    return first is not None and second is not None and first.value == second.value


def _duplicate_requests(
    container: AskingContainer, numbers: Mapping[ResourceRole, int], names: ResourceNames
) -> Iterator[tuple[str, PartialFinding]]:
    """Yield names that ask for GPUs a second time, outside the vocabulary of the container."""
    slot, first, asks = names.slot, container.known_names[0], _asks(numbers)
    if (
        slot is not None
        and slot.name in container.amounts
        and slot.vocabulary is not first.vocabulary
    ):
        expected = (numbers.get(_COUNT) or first.vocabulary.default_count) if asks else 0
        if amount(slot, container.amounts[slot.name]) != expected:
            yield slot.name, conflicting_names(first.name, slot.name)
    if asks:
        for name, text in (container.resources.limits or {}).items():
            foreign = name.startswith(names.foreign_prefixes) and name not in container.amounts
            if foreign and text not in ZERO:
                unserved = names.unserved_vocabulary(name)
                yield (
                    name,
                    conflicting_names(first.name, name)
                    if unserved is None
                    else unserved_name(name, unserved),
                )
                return


def _clashes(
    numbers: Mapping[ResourceRole, int], known_names: Sequence[ResourceName]
) -> Iterator[tuple[str, PartialFinding]]:
    """Yield amounts that contradict each other."""
    count, memory, percent = numbers.get(_COUNT), numbers.get(_MEMORY), numbers.get(_PERCENT)
    if _PRIORITY in numbers and len(numbers) == 1:
        yield _priority_alone(known_names)
    part = next(
        (w for w in known_names if numbers[w.role] and w.role not in {_COUNT, _PRIORITY}), None
    )
    if part is not None and count == 0:
        yield _none_and_part(_resource_of(known_names, _COUNT), part, numbers)
    if part is not None and count and part.vocabulary.whole:
        yield _conflict(_resource_of(known_names, _COUNT), part, numbers)
    if memory and percent:
        yield _conflict(
            _resource_of(known_names, _MEMORY), _resource_of(known_names, _PERCENT), numbers
        )
    if percent == 0 and not memory and (count or part):
        resource = _resource_of(known_names, _PERCENT)
        flaw = PartialFinding(
            reason=Reason.MALFORMED,
            what=f"{resource.suffix} 0 is outside 1 to 100",
            remedy=f"ask for at least 1, or remove {resource.name}",
        )
        yield resource.name, flaw


def _priority_alone(known_names: Sequence[ResourceName]) -> tuple[str, PartialFinding]:
    resource = _resource_of(known_names, _PRIORITY)
    flaw = PartialFinding(
        reason=Reason.MALFORMED,
        what=f"{resource.suffix} is of no use without a GPU",
        remedy=f"ask for {resource.vocabulary.count} too, or remove {resource.name}",
    )
    return resource.name, flaw


def _resource_of(known_names: Sequence[ResourceName], role: ResourceRole) -> ResourceName:
    return next(resource for resource in known_names if resource.role is role)


def _conflict(
    first: ResourceName, second: ResourceName, numbers: Mapping[ResourceRole, int]
) -> tuple[str, PartialFinding]:
    what = f"both {first.suffix} {numbers[first.role]} and {second.suffix} {numbers[second.role]}"
    return second.name, PartialFinding(reason=Reason.CONFLICTING, what=what, remedy=_KEEP_ONE)


def _none_and_part(
    count: ResourceName, part: ResourceName, numbers: Mapping[ResourceRole, int]
) -> tuple[str, PartialFinding]:
    flaw = PartialFinding(
        reason=Reason.CONFLICTING,
        what=f"{count.suffix} 0 asks for no GPU, but {part.suffix} {numbers[part.role]} for one",
        remedy=f"ask for {count.suffix} 1, or remove {part.name}",
    )
    return count.name, flaw
