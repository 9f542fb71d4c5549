"""Packing: a search for room for several containers at once, bounded, best options first."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from allocator.model.allocation import Option
from allocator.model.request import ContainerRequest
from allocator.placement.fit import Headroom, with_grant

Headrooms = tuple[Headroom, ...]
Chosen = tuple[Option, ...]  # one container's: as many as it asks for, on distinct GPUs
Options = Callable[[ContainerRequest, Headrooms], Sequence[Option]]


def packings(
    container_requests: Sequence[ContainerRequest],
    headrooms: Headrooms,
    *,
    options: Options,
    budget: Iterator[int],
) -> Iterator[tuple[Chosen, ...]]:
    """Yield ways to serve all *container_requests* together, in their order.

    The best options of the first come first, and ways that differ only in which of several
    equal GPUs they use come once. Ends early when *budget*, which counts attempts, runs out.
    """
    if not container_requests:
        yield ()
        return
    first, *rest = container_requests
    before: list[Chosen] = []  # most often the first choice will do, whatever it is like
    tried: set[object] = set()
    for chosen in _combinations(options(first, headrooms), first.count):
        if next(budget, None) is None:
            return
        if before or tried:
            tried.update(_shape(earlier, headrooms) for earlier in before)
            before.clear()
            if _shape(chosen, headrooms) in tried:
                continue
        before.append(chosen)
        if not rest:
            yield (chosen,)
            continue
        left = occupy(headrooms, chosen)
        for others in packings(rest, left, options=options, budget=budget):
            yield (chosen, *others)


def occupy(headrooms: Headrooms, options: Iterable[Option]) -> Headrooms:
    """Return *headrooms* once *options* are taken; the rooms given stay as they are."""
    left = list(headrooms)
    for option in options:
        left[option.position] = with_grant(left[option.position], option.grant)
    return tuple(left)


def gpu_count(options: Iterable[Option]) -> int:
    """Count the GPUs that *options* are on."""
    return len({option.position for option in options})


def _combinations(options: Sequence[Option], count: int) -> Iterator[Chosen]:
    """Yield every choice of *count* options on distinct GPUs, earlier options first."""
    if count == 0:
        yield ()
        return
    for number, option in enumerate(options):
        if gpu_count(options[number:]) < count:
            return
        others = [o for o in options[number + 1 :] if o.position != option.position]
        for tail in _combinations(others, count - 1):
            yield (option, *tail)


def _shape(chosen: Chosen, headrooms: Headrooms) -> object:
    """Return what is equal of choices that differ only in which of several equal GPUs they use."""
    return frozenset(Counter(_likeness(option, headrooms) for option in chosen).items())


def _likeness(option: Option, headrooms: Headrooms) -> tuple[object, ...]:
    grant = option.grant
    return headrooms[option.position].likeness, grant.placed, grant.memory, grant.cores
