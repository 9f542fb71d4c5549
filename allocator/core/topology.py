"""Topology: which GPUs of a node are close to each other, as far as its inventory says so."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from allocator.core.packing import Option, Rooms
from allocator.model.gpu import Gpu


def near(options: list[Option], rooms: Rooms, *, count: int) -> list[Option]:
    """Put first the options of one NUMA node that has *count* GPUs for them, where one has.

    Of several such NUMA nodes it is the one whose best options are the best; otherwise the order
    stays. GPUs whose NUMA node is not known are close to none.
    """
    if count <= 1:
        return options
    groups: dict[int, list[Option]] = defaultdict(list)
    for option in options:
        numa = rooms[option.position].gpu.numa
        if numa is not None:
            groups[numa].append(option)
    firsts = {numa: _firsts(group, count) for numa, group in groups.items()}
    enough = {numa: first for numa, first in firsts.items() if len(first) == count}
    if not enough:
        return options
    chosen = min(enough, key=lambda numa: ([option.rank for option in enough[numa]], numa))
    return sorted(options, key=lambda option: rooms[option.position].gpu.numa != chosen)


def _firsts(options: Iterable[Option], count: int) -> list[Option]:
    """Return the first option of each GPU, of *count* GPUs at most."""
    found: dict[int, Option] = {}
    for option in options:
        found.setdefault(option.position, option)
    return list(found.values())[:count]


def together(gpus: Sequence[Gpu]) -> int | None:
    """Return how many GPUs that nobody uses sit on one NUMA node; ``None`` where none is known."""
    idle: dict[int, int] = {}
    for gpu in gpus:
        if gpu.numa is not None:
            idle.setdefault(gpu.numa, 0)
            idle[gpu.numa] += gpu.healthy and not gpu.grants
    return max(idle.values(), default=None)
