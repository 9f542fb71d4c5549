"""Containers: what the resources of one container ask for, and how they may contradict."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol

from allocator.catalog.vocabularies import FOREIGN, Vocabulary
from allocator.core.amounts import Flaw, amount
from allocator.core.lexicon import Amounts, Lexicon, Role, Word
from allocator.core.quantity import parse
from allocator.core.wording import quoted, shown
from allocator.model.decision import Finding, Reason
from allocator.model.request import ContainerRequest, Stage
from allocator.model.units import NO_CORES, WHOLE_GPU, CorePercent, MiB

MOST_FINDINGS: Final = 16  # nobody mends more at a time; names may come by the thousand

_COUNT, _MEMORY, _PERCENT, _CORES = Role
_KEEP_ONE: Final = "keep one"
_ZERO: Final = frozenset({0, "0"})


class Resources(Protocol):
    """What a container may use, by resource name."""

    @property
    def limits(self) -> Amounts | None:
        """Return the limits, which decide."""

    @property
    def requests(self) -> Amounts | None:
        """Return the requests, which must equal the limits."""


class Container(Protocol):
    """The parts of a container that tell what it asks for, under Kubernetes' own names."""

    @property
    def name(self) -> str:
        """Return its name, which is unique in the pod."""

    @property
    def restart_policy(self) -> str | None:
        """Return ``Always`` for an init container that is a sidecar."""

    @property
    def resources(self) -> Resources | None:
        """Return what it may use."""


class Spot(NamedTuple):  # the cheapest value to build; there is one for every container
    """A container that names resources of ours.

    *told* holds them, from limits rather than requests; *spoken* are those that we know.
    """

    container: Container
    resources: Resources
    position: int
    of_init: bool
    told: Amounts
    spoken: Sequence[Word]

    def finding(self, name: str, flaw: Flaw) -> Finding:
        """Say that *flaw* is at the resource *name* of this container."""
        kind = "init container" if self.of_init else "container"
        group = "initContainers" if self.of_init else "containers"
        section = "limits" if name in (self.resources.limits or ()) else "requests"
        return Finding(
            reason=flaw.reason,
            place=f"{kind} {quoted(self.container.name)}",
            field=f'spec.{group}[{self.position}].resources.{section}["{shown(name)}"]',
            what=flaw.what,
            remedy=flaw.remedy,
        )


def spots(
    init_containers: Sequence[Container], containers: Sequence[Container], lexicon: Lexicon
) -> Iterator[Spot]:
    """Yield the containers that name resources of ours, in the order of the pod."""
    for of_init, group in ((True, init_containers), (False, containers)):
        for position, container in enumerate(group):
            resources = container.resources
            if resources is None:
                continue
            told = lexicon.told(resources.requests, resources.limits)
            if told:
                yield Spot(
                    container=container,
                    resources=resources,
                    position=position,
                    of_init=of_init,
                    told=told,
                    spoken=lexicon.spoken(told),
                )


def request(spot: Spot, lexicon: Lexicon) -> ContainerRequest | list[Finding]:
    """Return what the container at *spot* asks for.

    A list holds what is wrong; an empty one says that it asks for nothing.
    """
    numbers: dict[Role, int] = {}
    flaws = [*islice(_misnamed(spot, lexicon), MOST_FINDINGS)]
    if not flaws:
        for word in spot.spoken:
            number = amount(word, spot.told[word.name])
            if isinstance(number, Flaw):
                flaws.append((word.name, number))
            else:
                numbers[word.role] = number
        flaws += _unequal(spot)
    if not flaws:
        flaws += _doubled(spot, numbers, lexicon)
        flaws += _clashes(numbers, spot.spoken)
    if flaws:
        return [spot.finding(name, flaw) for name, flaw in flaws]
    if not any(numbers.values()):
        return []
    vocabulary = spot.spoken[0].vocabulary
    return built(spot.container, vocabulary, numbers, position=spot.position, of_init=spot.of_init)


def mixed(first: str, second: str) -> Flaw:
    """Return the flaw of asking for GPUs by two names that do not go together."""
    return Flaw(
        reason=Reason.CONFLICTING,
        what=f"both {shown(first)} and {shown(second)} ask for GPUs",
        remedy=_KEEP_ONE,
    )


def built(
    container: Container,
    vocabulary: Vocabulary,
    numbers: Mapping[Role, int],
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


def _stage(container: Container) -> Stage:
    """Return when an init container runs."""
    return Stage.SIDECAR if container.restart_policy == "Always" else Stage.INIT


def _misnamed(spot: Spot, lexicon: Lexicon) -> Iterator[tuple[str, Flaw]]:
    """Find names that we do not know, and names of two vocabularies."""
    for name in spot.told:
        if name not in lexicon.words:
            known = lexicon.closest(name)
            yield (
                name,
                Flaw(
                    reason=Reason.MALFORMED,
                    what=f"{shown(name)} is no resource here",
                    remedy=f"use {known}" if known else f"use {', '.join(lexicon.words)}",
                ),
            )
    for word in spot.spoken:
        if word.vocabulary is not spot.spoken[0].vocabulary:
            yield word.name, mixed(spot.spoken[0].name, word.name)
            return


def _unequal(spot: Spot) -> Iterator[tuple[str, Flaw]]:
    """Find requests that differ from their limit; the API server refuses them after us."""
    limits, requests = spot.resources.limits, spot.resources.requests
    if not limits or not requests:
        return
    for name in spot.told:
        if name in limits and name in requests and not _same(limits[name], requests[name]):
            flaw = Flaw(
                reason=Reason.CONFLICTING,
                what=f"{name.rpartition('/')[2]} is {quoted(limits[name])} in limits "
                f"and {quoted(requests[name])} in requests",
                remedy=f"leave {name} out of requests",
            )
            yield name, flaw


def _same(one: str | int, other: str | int) -> bool:
    if one == other:
        return True
    first, second = parse(one), parse(other)
    return first is not None and second is not None and first.value == second.value


def _doubled(
    spot: Spot, numbers: Mapping[Role, int], lexicon: Lexicon
) -> Iterator[tuple[str, Flaw]]:
    """Find a second request for GPUs beside the one that was read."""
    slot, first, asks = lexicon.slot, spot.spoken[0], any(numbers.values())
    if slot is not None and slot.name in spot.told and slot.vocabulary is not first.vocabulary:
        expected = (numbers.get(_COUNT) or 1) if asks else 0
        if amount(slot, spot.told[slot.name]) != expected:
            yield slot.name, mixed(first.name, slot.name)
    if asks:
        for name, text in (spot.resources.limits or {}).items():
            if name.startswith(FOREIGN) and name not in spot.told and text not in _ZERO:
                yield name, mixed(first.name, name)
                return


def _clashes(numbers: Mapping[Role, int], spoken: Sequence[Word]) -> Iterator[tuple[str, Flaw]]:
    """Find values that contradict each other."""
    count, memory, percent = numbers.get(_COUNT), numbers.get(_MEMORY), numbers.get(_PERCENT)
    part = next((w for w in spoken if numbers[w.role] and w.role is not _COUNT), None)
    if part is not None and count == 0:
        yield _none_and_part(_word(spoken, _COUNT), part, numbers)
    if part is not None and count and part.vocabulary.whole:
        yield _both(_word(spoken, _COUNT), part, numbers)
    if memory and percent:
        yield _both(_word(spoken, _MEMORY), _word(spoken, _PERCENT), numbers)
    if percent == 0 and not memory and (count or part):
        word = _word(spoken, _PERCENT)
        flaw = Flaw(
            reason=Reason.MALFORMED,
            what=f"{word.short} 0 is outside 1 to 100",
            remedy=f"ask for at least 1, or remove {word.name}",
        )
        yield word.name, flaw


def _word(spoken: Sequence[Word], role: Role) -> Word:
    return next(word for word in spoken if word.role is role)


def _both(first: Word, second: Word, numbers: Mapping[Role, int]) -> tuple[str, Flaw]:
    what = f"both {first.short} {numbers[first.role]} and {second.short} {numbers[second.role]}"
    return second.name, Flaw(reason=Reason.CONFLICTING, what=what, remedy=_KEEP_ONE)


def _none_and_part(count: Word, part: Word, numbers: Mapping[Role, int]) -> tuple[str, Flaw]:
    flaw = Flaw(
        reason=Reason.CONFLICTING,
        what=f"{count.short} 0 asks for no GPU, but {part.short} {numbers[part.role]} for one",
        remedy=f"ask for {count.short} 1, or remove {part.name}",
    )
    return count.name, flaw
