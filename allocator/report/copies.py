"""Copies: how many pods of one template fit at the same time, now and on the empty fleet."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from allocator.model.gpu import Node, Snapshot
from allocator.model.request import PodRequest, Stage
from allocator.model.units import WHOLE_GPU
from allocator.model.usage import peak_grants, with_grants
from allocator.placement.choose import PlacementPolicy, empty_node, place_on
from allocator.placement.fleet import snapshot_of

MOST_PLACED: Final = 4096  # pods of one template; of more, no more are placed


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """How many pods of one template are wanted at the same time, and how many of them needed."""

    wanted: int = 1
    needed: int = 1


ONE_POD: Final = Copies()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyCount:
    """How many of the pods that are ``asked`` for fit at the same time.

    Where fewer fit than are needed, ``ever`` is how many fit if nothing else runs; ``None`` says
    that this was not asked, or that no exact number is known.
    """

    asked: Copies = ONE_POD
    fitting: int = 0
    nodes: Mapping[str, int] = field(default_factory=dict)  # pods by the node that would take them
    ever: int | None = None

    @property
    def running(self) -> int:
        """Return how many of those that are wanted fit; of more than are placed, all do."""
        return self.asked.wanted if self.fitting == MOST_PLACED else self.fitting

    @property
    def is_short(self) -> bool:
        """Say whether fewer fit than are needed."""
        return self.running < self.asked.needed


@dataclass(frozen=True, slots=True)
class _Placed:
    nodes: Mapping[str, int]
    changed: Mapping[str, Node]  # with the grants of these pods

    @property
    def count(self) -> int:
        return sum(self.nodes.values())


def place_copies(
    request: PodRequest,
    snapshot: Snapshot,
    policy: PlacementPolicy,
    *,
    copies: Copies,
    first: str,
) -> tuple[CopyCount, Snapshot]:
    """Return how many pods with *request* fit in *snapshot*, and what they leave of it.

    Node after node is filled, the node *first* before the others. Nodes take pods independently,
    so the order does not change how many fit.
    """
    placed = _fill(request, snapshot, policy, wanted=copies.wanted, first=first)
    count = CopyCount(asked=copies, fitting=placed.count, nodes=placed.nodes)
    if count.is_short and snapshot.complete:
        count = replace(count, ever=_most_ever(request, snapshot, policy, needed=copies.needed))
    left = replace(snapshot, nodes=MappingProxyType({**snapshot.nodes, **placed.changed}))
    return count, left


def _fill(
    request: PodRequest, snapshot: Snapshot, policy: PlacementPolicy, *, wanted: int, first: str
) -> _Placed:
    nodes: dict[str, int] = {}
    changed: dict[str, Node] = {}
    left = min(wanted, MOST_PLACED)
    for name in sorted(snapshot.nodes, key=lambda name: (name != first, name)):
        if not left:
            break
        node = snapshot.nodes[name]
        while left and (
            assignment := place_on(node, request, policy=policy, demand=snapshot.demand)
        ):
            node = with_grants(node, peak_grants(assignment.containers))
            nodes[name] = nodes.get(name, 0) + 1
            changed[name] = node
            left -= 1
    return _Placed(nodes, changed)


def _most_ever(
    request: PodRequest, snapshot: Snapshot, policy: PlacementPolicy, *, needed: int
) -> int | None:
    """Return how many pods fit if nothing else runs; ``None`` where they may be *needed* or more.

    Pods of one GPU each are counted by filling the GPUs, which is exact: one pod is as good as
    another. For pods of several GPUs, filling may miss the best combination, so that only what
    their memory adds up to bounds them.
    """
    empty = snapshot_of(
        map(empty_node, snapshot.nodes.values()),
        version="",
        complete=snapshot.complete,
        demand=snapshot.demand,
    )
    if len(request.containers) == 1 and request.containers[0].count == 1:
        most = _fill(request, empty, policy, wanted=needed, first="").count
    else:
        share = sum(_gpus_by_memory(request, snapshot), Fraction())
        gpus = sum(len(node.gpus) for node in snapshot.nodes.values())
        most = int(gpus / share) if share else needed
    return most if most < min(needed, MOST_PLACED) else None


def _gpus_by_memory(request: PodRequest, snapshot: Snapshot) -> Iterator[Fraction]:
    """Yield the GPUs that each container takes at least, by memory alone, in parts of a GPU."""
    largest = max((gpu.memory for node in snapshot.nodes.values() for gpu in node.gpus), default=1)
    for container in request.containers:
        if container.stage is Stage.INIT:  # shares the GPUs of those that come after it
            continue
        if container.memory is not None:
            part = Fraction(container.memory, largest)
        elif container.percent is not None:
            part = Fraction(container.percent, WHOLE_GPU)
        else:
            part = Fraction(0 if request.profile is not None else 1)
        yield container.count * part
