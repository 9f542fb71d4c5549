"""Containers: what the resources of one container ask for, and how they may contradict."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol

from allocator.catalog.vocabularies import FOREIGN, Vocabulary
from allocator.model.decision import Finding, Reason
from allocator.model.request import ContainerRequest, Stage
from allocator.model.units import NO_CORES, WHOLE_GPU, CorePercent, MiB
from allocator.model.untrusted import escaped, quote
from allocator.request.amounts import PartialFinding, amount
from allocator.request.quantity import parse
from allocator.request.resource_names import Amounts, ResourceName, ResourceNames, ResourceRole

MOST_FINDINGS: Final = 16  # nobody mends more at a time; names may come by the thousand
_COUNT, _MEMORY, _PERCENT, _CORES = ResourceRole
_KEEP_ONE: Final = "keep one"
_ZERO: Final = frozenset({0, "0"})


class ResourceSpec(Protocol):
    """What a container may use, by resource name."""

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


class AskingContainer(NamedTuple):  # the cheapest value to build; there is one for every container
    """A container that names resources of ours.

    *told* holds them, from limits rather than requests; *spoken* are those that we know.
    """

    container: ContainerSpec
    resources: ResourceSpec
    position: int
    of_init: bool
    amounts: Amounts
    spoken: Sequence[ResourceName]

    def finding(self, name: str, flaw: PartialFinding) -> Finding:
        """Say that *flaw* is at the resource *name* of this container."""
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


def spots(
    init_containers: Sequence[ContainerSpec],
    containers: Sequence[ContainerSpec],
    lexicon: ResourceNames,
) -> Iterator[AskingContainer]:
    """Yield the containers that name resources of ours, in the order of the pod."""
    for of_init, group in ((True, init_containers), (False, containers)):
        for position, container in enumerate(group):
            resources = container.resources
            if resources is None:
                continue
            told = lexicon.own_amounts(resources.requests, resources.limits)
            if told:
                yield AskingContainer(
                    container=container,
                    resources=resources,
                    position=position,
                    of_init=of_init,
                    amounts=told,
                    spoken=lexicon.known_names(told),
                )


def container_request(
    container: AskingContainer, lexicon: ResourceNames
) -> ContainerRequest | list[Finding]:
    """Return what the container at *spot* asks for.

    A list holds what is wrong; an empty one says that it asks for nothing.
    """
    numbers: dict[ResourceRole, int] = {}
    flaws = [*islice(_unknown_names(container, lexicon), MOST_FINDINGS)]
    if not flaws:
        for word in container.spoken:
            number = amount(word, container.amounts[word.name])
            if isinstance(number, PartialFinding):
                flaws.append((word.name, number))
            else:
                numbers[word.role] = number
        flaws += _unequal_limits(container)
    if not flaws:
        flaws += _duplicate_requests(container, numbers, lexicon)
        flaws += _clashes(numbers, container.spoken)
    if flaws:
        return [container.finding(name, flaw) for name, flaw in flaws]
    if not any(numbers.values()):
        return []
    vocabulary = container.spoken[0].vocabulary
    return build_request(
        container.container,
        vocabulary,
        numbers,
        position=container.position,
        of_init=container.of_init,
    )


def conflicting_names(first: str, second: str) -> PartialFinding:
    """Return the flaw of asking for GPUs by two names that do not go together."""
    return PartialFinding(
        reason=Reason.CONFLICTING,
        what=f"both {escaped(first)} and {escaped(second)} ask for GPUs",
        remedy=_KEEP_ONE,
    )


def build_request(
    container: ContainerSpec,
    vocabulary: Vocabulary,
    numbers: Mapping[ResourceRole, int],
    *,
    position: int,
    of_init: bool,
) -> ContainerRequest:
    """Return what *container* asks for by *numbers* that do not contradict each other."""
    count = numbers.get(_COUNT, 0)
    memory = numbers.get(_MEMORY, 0) * vocabulary.memory_factor
    whole = vocabulary.whole and count > 0
    return ContainerRequest(
        name=container.name,
        index=position,
        stage=_stage(container) if of_init else Stage.APP,
        count=count or 1,
        memory=MiB(memory) if memory else None,
        percent=numbers.get(_PERCENT) or None,
        cores=WHOLE_GPU if whole else CorePercent(numbers.get(_CORES, NO_CORES)),
    )


def _stage(container: ContainerSpec) -> Stage:
    """Return when an init container runs."""
    return Stage.SIDECAR if container.restart_policy == "Always" else Stage.INIT


def _unknown_names(
    container: AskingContainer, lexicon: ResourceNames
) -> Iterator[tuple[str, PartialFinding]]:
    """Find names that we do not know, and names of two vocabularies."""
    for name in container.amounts:
        if name not in lexicon.words:
            known = lexicon.closest_name(name)
            yield (
                name,
                PartialFinding(
                    reason=Reason.MALFORMED,
                    what=f"{escaped(name)} is not a known resource",
                    remedy=f"use {known}" if known else f"use {', '.join(lexicon.words)}",
                ),
            )
    for word in container.spoken:
        if word.vocabulary is not container.spoken[0].vocabulary:
            yield word.name, conflicting_names(container.spoken[0].name, word.name)
            return


def _unequal_limits(container: AskingContainer) -> Iterator[tuple[str, PartialFinding]]:
    """Find requests that differ from their limit; the API server refuses them after us."""
    limits, requests = container.resources.limits, container.resources.requests
    if not limits or not requests:
        return
    for name in container.amounts:
        if name in limits and name in requests and not _is_same(limits[name], requests[name]):
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
    container: AskingContainer, numbers: Mapping[ResourceRole, int], lexicon: ResourceNames
) -> Iterator[tuple[str, PartialFinding]]:
    """Find a second request for GPUs beside the one that was read."""
    slot, first, asks = lexicon.slot, container.spoken[0], any(numbers.values())
    if (
        slot is not None
        and slot.name in container.amounts
        and slot.vocabulary is not first.vocabulary
    ):
        expected = (numbers.get(_COUNT) or 1) if asks else 0
        if amount(slot, container.amounts[slot.name]) != expected:
            yield slot.name, conflicting_names(first.name, slot.name)
    if asks:
        for name, text in (container.resources.limits or {}).items():
            if name.startswith(FOREIGN) and name not in container.amounts and text not in _ZERO:
                yield name, conflicting_names(first.name, name)
                return


def _clashes(
    numbers: Mapping[ResourceRole, int], spoken: Sequence[ResourceName]
) -> Iterator[tuple[str, PartialFinding]]:
    """Find values that contradict each other."""
    count, memory, percent = numbers.get(_COUNT), numbers.get(_MEMORY), numbers.get(_PERCENT)
    part = next((w for w in spoken if numbers[w.role] and w.role is not _COUNT), None)
    if part is not None and count == 0:
        yield _none_and_part(_word(spoken, _COUNT), part, numbers)
    if part is not None and count and part.vocabulary.whole:
        yield _conflict(_word(spoken, _COUNT), part, numbers)
    if memory and percent:
        yield _conflict(_word(spoken, _MEMORY), _word(spoken, _PERCENT), numbers)
    if percent == 0 and not memory and (count or part):
        word = _word(spoken, _PERCENT)
        flaw = PartialFinding(
            reason=Reason.MALFORMED,
            what=f"{word.suffix} 0 is outside 1 to 100",
            remedy=f"ask for at least 1, or remove {word.name}",
        )
        yield word.name, flaw


def _word(spoken: Sequence[ResourceName], role: ResourceRole) -> ResourceName:
    return next(word for word in spoken if word.role is role)


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
