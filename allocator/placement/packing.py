"""Packing: a search for room for several containers at once, bounded, best options first."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

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
    one_numa: bool = False,
) -> Iterator[tuple[Chosen, ...]]:
    """Yield ways to serve all *container_requests* together, in their order.

    The best options of the first come first, and ways that differ only in which of several
    equal GPUs they use come once. Ends early when *budget*, which counts attempts, runs out. With
    *one_numa* the GPUs of each container are on one NUMA node.
    """
    if not container_requests:
        yield ()
        return
    first, *rest = container_requests
    before: list[Chosen] = []  # most often the first choice will do, whatever it is like
    tried: set[object] = set()
    found = options(first, headrooms)
    parts = numa_parts(found, headrooms) if one_numa and first.count > 1 else (found,)
    for chosen in chain.from_iterable(_combinations(part, first.count) for part in parts):
        if next(budget, None) is None:
            return
        if before or tried:
            tried.update(_shape(earlier, headrooms, one_numa) for earlier in before)
            before.clear()
            if _shape(chosen, headrooms, one_numa) in tried:
                continue
        before.append(chosen)
        if not rest:
            yield (chosen,)
            continue
        left = occupy(headrooms, chosen)
        for others in packings(rest, left, options=options, budget=budget, one_numa=one_numa):
            yield (chosen, *others)


def numa_parts(options: Iterable[Option], headrooms: Headrooms) -> Iterable[Sequence[Option]]:
    """Return *options* by the NUMA nodes of their GPUs, the node of the best option first.

    GPUs of which the node is not known count as on one.
    """
    parts: dict[int | None, list[Option]] = {}
    for option in options:
        parts.setdefault(headrooms[option.position].gpu.numa, []).append(option)
    return parts.values()


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


def _shape(chosen: Chosen, headrooms: Headrooms, one_numa: bool) -> object:  # noqa: FBT001 -- private
    """Return what is equal of choices that differ only in which of several equal GPUs they use."""
    return frozenset(Counter(_likeness(option, headrooms, one_numa) for option in chosen).items())


def _likeness(
    option: Option,
    headrooms: Headrooms,
    one_numa: bool,  # noqa: FBT001 -- private
) -> tuple[object, ...]:
    grant, headroom = option.grant, headrooms[option.position]
    numa = headroom.gpu.numa if one_numa else None
    return headroom.likeness, numa, grant.placed, grant.memory, grant.cores
