"""Standings: what the GPUs of a node add up to, as one value that nodes in equal state share.

A fleet has far fewer of them than nodes, and fewer kinds of GPU room than GPUs: a question about
thousands of nodes is answered once for each.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from allocator.core.fleet import Shape, shape_of
from allocator.core.headroom import headroom
from allocator.core.scores import Load, load_of
from allocator.model.gpu import Gpu, Node
from allocator.model.headroom import Headroom
from allocator.model.request import Mode


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Likeness:
    """GPUs that answer alike to whoever asks without naming a UUID; ``room`` is that of one."""

    room: Headroom


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Room:
    """So many GPUs of one likeness; nodes that are alike in it share one."""

    likeness: Likeness
    count: int


Rooms = tuple[Room, ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True, kw_only=True)
class Standing:
    """Nodes whose GPUs are alike; ``node`` is one of them.

    ``hard`` and ``soft`` are the rooms on GPUs in mode mig and in mode hami-core, the emptiest
    first, and ``first`` is the emptiest of all where anything may be promised. ``shape`` is what
    the node carries and ``sound`` what of it is healthy. ``load`` is how busy it is. ``fresh`` is
    false where some inventory could not be read, so that more may be there. ``closed`` says that
    nothing may be promised at the moment, whatever is free.
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


@dataclass(slots=True)
class Register:
    """Makes standings, one for all nodes in equal state, for as long as anybody holds it."""

    _likenesses: WeakValueDictionary[object, Likeness] = field(default_factory=WeakValueDictionary)
    _rooms: WeakValueDictionary[object, Room] = field(default_factory=WeakValueDictionary)
    _standings: WeakValueDictionary[object, Standing] = field(default_factory=WeakValueDictionary)

    def standing(self, node: Node, *, closed: bool) -> Standing:
        """Return the standing of *node*."""
        counts = Counter(map(self._likeness, node.gpus))
        key = node.fresh, closed, frozenset(counts.items())
        found = self._standings.get(key)
        if found is None:
            rooms = [self._room(likeness, count) for likeness, count in counts.items()]
            found = self._standings[key] = _standing(
                node,
                rooms,
                shape=shape_of(node.gpus),
                sound=shape_of(gpu for gpu in node.gpus if gpu.healthy),
                closed=closed,
            )
        return found

    def _room(self, likeness: Likeness, count: int) -> Room:
        found = self._rooms.get((likeness, count))
        if found is None:
            found = self._rooms[likeness, count] = Room(likeness, count)
        return found

    def _likeness(self, gpu: Gpu) -> Likeness:
        room = headroom(gpu)
        key = gpu.healthy, room.likeness
        found = self._likenesses.get(key)
        if found is None:
            found = self._likenesses[key] = Likeness(room)
        return found


def alone(node: Node, *, like: Standing) -> Standing:
    """Return a standing that *node* shares with no other, nor any of its GPUs with another.

    *like* is how the same GPUs stood, as healthy as now, with other promises on them.
    """
    same = {id(one.likeness.room.gpu): one for one in (*like.hard, *like.soft) if one.count == 1}
    rooms = [same.get(id(gpu)) or Room(Likeness(headroom(gpu)), 1) for gpu in node.gpus]
    return _standing(node, rooms, shape=like.shape, sound=like.sound, closed=False)


def _standing(
    node: Node, rooms: Iterable[Room], *, shape: Shape, sound: Shape, closed: bool
) -> Standing:
    ordered = sorted(rooms, key=_emptiness, reverse=True)
    return Standing(
        node=node,
        hard=tuple(room for room in ordered if _is_cut(room)),
        soft=tuple(room for room in ordered if not _is_cut(room)),
        first=ordered[0] if ordered and not closed else None,
        shape=shape,
        sound=sound,
        load=load_of(node),
        fresh=node.fresh,
        closed=closed,
    )


def _emptiness(room: Room) -> tuple[int, int]:
    free = room.likeness.room
    return free.memory, -free.cores


def _is_cut(room: Room) -> bool:
    return room.likeness.room.gpu.mode is Mode.MIG
