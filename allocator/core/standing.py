"""Standings: what the GPUs of a node add up to, as one value that nodes in equal state share.

A fleet has far fewer of them than nodes, and fewer kinds of GPU room than GPUs: a question about
thousands of nodes is answered once for each.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from allocator.core.fleet import Shape, shape_of
from allocator.core.headroom import Headroom, headroom
from allocator.core.scores import Load, load_of
from allocator.model.gpu import Gpu, Node
from allocator.model.request import Mode


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Likeness:
    """GPUs that answer alike to whoever asks without naming a UUID; ``room`` is that of one."""

    room: Headroom


Room = tuple[Likeness, int]  # so many GPUs of one likeness
Rooms = tuple[Room, ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True, kw_only=True)
class Standing:
    """Nodes whose GPUs are alike; ``node`` is one of them.

    ``hard`` and ``soft`` are the rooms on GPUs in mode mig and in mode hami-core, the emptiest
    first, and ``first`` is the emptiest of all where anything may be promised. ``shape`` is what
    the node carries and ``sound`` what of it is healthy. ``load`` is how busy it is. ``fresh`` is
    false where some inventory could not be read, so that more may be there. ``closed`` says that
    nothing may be promised at the moment, whatever is free. ``scores`` fills with what each way of
    scoring makes of the load.
    """

    node: Node
    hard: Rooms
    soft: Rooms
    first: Room | None
    shape: Shape
    sound: Shape
    load: Load
    fresh: bool
    closed: bool
    scores: dict[Callable[[Load], int], int] = field(default_factory=dict)


@dataclass(slots=True)
class Register:
    """Makes standings, one for all nodes in equal state, for as long as anybody holds it."""

    _likenesses: WeakValueDictionary[object, Likeness] = field(default_factory=WeakValueDictionary)
    _standings: WeakValueDictionary[object, Standing] = field(default_factory=WeakValueDictionary)

    def standing(self, node: Node, *, closed: bool) -> Standing:
        """Return the standing of *node*."""
        counts = Counter(map(self._likeness, node.gpus))
        key = node.fresh, closed, frozenset(counts.items())
        found = self._standings.get(key)
        if found is None:
            found = self._standings[key] = _standing(node, counts, closed=closed)
        return found

    def _likeness(self, gpu: Gpu) -> Likeness:
        room = headroom(gpu)
        key = gpu.healthy, room.likeness
        found = self._likenesses.get(key)
        if found is None:
            found = self._likenesses[key] = Likeness(room)
        return found


def alone(node: Node) -> Standing:
    """Return a standing that *node* shares with no other, nor any of its GPUs with another."""
    return _standing(node, {Likeness(headroom(gpu)): 1 for gpu in node.gpus}, closed=False)


def _standing(node: Node, counts: Mapping[Likeness, int], *, closed: bool) -> Standing:
    ordered = sorted(counts.items(), key=_emptiness, reverse=True)
    return Standing(
        node=node,
        hard=tuple(item for item in ordered if _is_cut(item)),
        soft=tuple(item for item in ordered if not _is_cut(item)),
        first=ordered[0] if ordered and not closed else None,
        shape=shape_of(node.gpus),
        sound=shape_of(gpu for gpu in node.gpus if gpu.healthy),
        load=load_of(node),
        fresh=node.fresh,
        closed=closed,
    )


def _emptiness(item: Room) -> tuple[int, int]:
    room = item[0].room
    return room.memory, -room.cores


def _is_cut(item: Room) -> bool:
    return item[0].room.gpu.mode is Mode.MIG
