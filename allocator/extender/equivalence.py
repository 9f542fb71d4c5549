"""Standings: what the GPUs of a node add up to, as one value that nodes in equal state share.

A fleet has far fewer of them than nodes, and fewer kinds of GPU room than GPUs: a question about
thousands of nodes is answered once for each.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from allocator.extender.score import NodeLoad, load_of
from allocator.model.gpu import Gpu, Node
from allocator.model.request import Mode
from allocator.placement.fit import Headroom, headroom
from allocator.placement.fleet import Shape, shape_of


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class GpuClass:
    """GPUs that answer alike to whoever asks without naming a UUID; ``room`` is that of one."""

    room: Headroom


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class GpuGroup:
    """So many GPUs of one likeness; nodes that are alike in it share one."""

    likeness: GpuClass
    count: int


Rooms = tuple[GpuGroup, ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True, kw_only=True)
class NodeClass:
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
    first: GpuGroup | None
    shape: Shape
    sound: Shape
    load: NodeLoad
    fresh: bool
    closed: bool


@dataclass(slots=True)
class NodeClasses:
    """Makes standings, one for all nodes in equal state, for as long as anybody holds it."""

    _likenesses: WeakValueDictionary[object, GpuClass] = field(default_factory=WeakValueDictionary)
    _rooms: WeakValueDictionary[object, GpuGroup] = field(default_factory=WeakValueDictionary)
    _standings: WeakValueDictionary[object, NodeClass] = field(default_factory=WeakValueDictionary)

    def class_of(self, node: Node, *, closed: bool) -> NodeClass:
        """Return the standing of *node*."""
        counts = Counter(map(self._likeness, node.gpus))
        key = node.fresh, closed, frozenset(counts.items())
        node_class = self._standings.get(key)
        if node_class is None:
            rooms = [self._room(likeness, count) for likeness, count in counts.items()]
            node_class = self._standings[key] = _node_class(
                node,
                rooms,
                shape=shape_of(node.gpus),
                sound=shape_of(gpu for gpu in node.gpus if gpu.healthy),
                closed=closed,
            )
        return node_class

    def _room(self, likeness: GpuClass, count: int) -> GpuGroup:
        gpu_group = self._rooms.get((likeness, count))
        if gpu_group is None:
            gpu_group = self._rooms[likeness, count] = GpuGroup(likeness, count)
        return gpu_group

    def _likeness(self, gpu: Gpu) -> GpuClass:
        room = headroom(gpu)
        key = gpu.healthy, room.likeness
        gpu_class = self._likenesses.get(key)
        if gpu_class is None:
            gpu_class = self._likenesses[key] = GpuClass(room)
        return gpu_class


def single_node_class(node: Node, *, like: NodeClass) -> NodeClass:
    """Return a standing that *node* shares with no other, nor any of its GPUs with another.

    *like* is how the same GPUs stood, as healthy as now, with other promises on them.
    """
    same = {id(one.likeness.room.gpu): one for one in (*like.hard, *like.soft) if one.count == 1}
    rooms = [same.get(id(gpu)) or GpuGroup(GpuClass(headroom(gpu)), 1) for gpu in node.gpus]
    return _node_class(node, rooms, shape=like.shape, sound=like.sound, closed=False)


def _node_class(
    node: Node, rooms: Iterable[GpuGroup], *, shape: Shape, sound: Shape, closed: bool
) -> NodeClass:
    ordered = sorted(rooms, key=_emptiness, reverse=True)
    return NodeClass(
        node=node,
        hard=tuple(group for group in ordered if _is_cut(group)),
        soft=tuple(group for group in ordered if not _is_cut(group)),
        first=ordered[0] if ordered and not closed else None,
        shape=shape,
        sound=sound,
        load=load_of(node),
        fresh=node.fresh,
        closed=closed,
    )


def _emptiness(group: GpuGroup) -> tuple[int, int]:
    free = group.likeness.room
    return free.memory, -free.cores


def _is_cut(group: GpuGroup) -> bool:
    return group.likeness.room.gpu.mode is Mode.MIG
