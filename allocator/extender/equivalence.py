"""Classes of equal nodes and equal GPUs: nodes whose GPUs are in equal state share one value.

A fleet has far fewer classes than nodes, so a question about thousands of nodes is answered once
for each class.
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
    """GPUs that are equal for any request which names no UUID."""

    headroom: Headroom  # of any one of them


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class GpuGroup:
    """A number of GPUs of one class on one node; nodes with equal groups share them."""

    gpu_class: GpuClass
    count: int


GpuGroups = tuple[GpuGroup, ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True, kw_only=True)
class NodeClass:
    """Nodes whose GPUs are in equal state."""

    node: Node  # any one of them
    mig_groups: GpuGroups  # of GPUs in mode mig, the emptiest first
    shared_groups: GpuGroups  # of GPUs in mode hami-core, the emptiest first
    emptiest: GpuGroup | None  # of both; None on a closed node
    shape: Shape  # kinds of all its GPUs
    healthy_shape: Shape  # kinds of its healthy GPUs
    load: NodeLoad
    fresh: bool  # false: some inventory could not be read, so it may have more GPUs
    closed: bool  # no GPUs may be given out at the moment, whatever is free


@dataclass(slots=True)
class NodeClasses:
    """Interns classes and groups: one object for equal ones, for as long as it is referenced."""

    _gpu_classes: WeakValueDictionary[object, GpuClass] = field(default_factory=WeakValueDictionary)
    _gpu_groups: WeakValueDictionary[object, GpuGroup] = field(default_factory=WeakValueDictionary)
    _node_classes: WeakValueDictionary[object, NodeClass] = field(
        default_factory=WeakValueDictionary
    )

    def class_of(self, node: Node, *, closed: bool) -> NodeClass:
        """Return the class of *node*."""
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
    """Return a class of *node* alone, which is not interned.

    *like* is the class of the same GPUs, equally healthy, with other grants; unchanged parts of it
    are reused.
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
