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

    headroom: Headroom


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class GpuGroup:
    """So many GPUs of one likeness; nodes that are alike in it share one."""

    gpu_class: GpuClass
    count: int


GpuGroups = tuple[GpuGroup, ...]


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
    mig_groups: GpuGroups
    shared_groups: GpuGroups
    emptiest: GpuGroup | None
    shape: Shape
    healthy_shape: Shape
    load: NodeLoad
    fresh: bool
    closed: bool


@dataclass(slots=True)
class NodeClasses:
    """Makes standings, one for all nodes in equal state, for as long as anybody holds it."""

    _gpu_classes: WeakValueDictionary[object, GpuClass] = field(default_factory=WeakValueDictionary)
    _gpu_groups: WeakValueDictionary[object, GpuGroup] = field(default_factory=WeakValueDictionary)
    _node_classes: WeakValueDictionary[object, NodeClass] = field(
        default_factory=WeakValueDictionary
    )

    def class_of(self, node: Node, *, closed: bool) -> NodeClass:
        """Return the standing of *node*."""
        counts = Counter(map(self._gpu_class, node.gpus))
        key = node.fresh, closed, frozenset(counts.items())
        node_class = self._node_classes.get(key)
        if node_class is None:
            groups = [self._gpu_group(likeness, count) for likeness, count in counts.items()]
            node_class = self._node_classes[key] = _node_class(
                node,
                groups,
                shape=shape_of(node.gpus),
                healthy_shape=shape_of(gpu for gpu in node.gpus if gpu.healthy),
                closed=closed,
            )
        return node_class

    def _gpu_group(self, gpu_class: GpuClass, count: int) -> GpuGroup:
        gpu_group = self._gpu_groups.get((gpu_class, count))
        if gpu_group is None:
            gpu_group = self._gpu_groups[gpu_class, count] = GpuGroup(gpu_class, count)
        return gpu_group

    def _gpu_class(self, gpu: Gpu) -> GpuClass:
        free = headroom(gpu)
        key = gpu.healthy, free.likeness
        gpu_class = self._gpu_classes.get(key)
        if gpu_class is None:
            gpu_class = self._gpu_classes[key] = GpuClass(free)
        return gpu_class


def single_node_class(node: Node, *, like: NodeClass) -> NodeClass:
    """Return a standing that *node* shares with no other, nor any of its GPUs with another.

    *like* is how the same GPUs stood, as healthy as now, with other promises on them.
    """
    group_by_gpu = {
        id(one.gpu_class.headroom.gpu): one
        for one in (*like.mig_groups, *like.shared_groups)
        if one.count == 1
    }
    groups = [
        group_by_gpu.get(id(gpu)) or GpuGroup(GpuClass(headroom(gpu)), 1) for gpu in node.gpus
    ]
    return _node_class(
        node, groups, shape=like.shape, healthy_shape=like.healthy_shape, closed=False
    )


def _node_class(
    node: Node, groups: Iterable[GpuGroup], *, shape: Shape, healthy_shape: Shape, closed: bool
) -> NodeClass:
    ordered = sorted(groups, key=_emptiness, reverse=True)
    return NodeClass(
        node=node,
        mig_groups=tuple(group for group in ordered if _is_mig(group)),
        shared_groups=tuple(group for group in ordered if not _is_mig(group)),
        emptiest=ordered[0] if ordered and not closed else None,
        shape=shape,
        healthy_shape=healthy_shape,
        load=load_of(node),
        fresh=node.fresh,
        closed=closed,
    )


def _emptiness(group: GpuGroup) -> tuple[int, int]:
    free = group.gpu_class.headroom
    return free.memory, -free.cores


def _is_mig(group: GpuGroup) -> bool:
    return group.gpu_class.headroom.gpu.mode is Mode.MIG
