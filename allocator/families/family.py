"""Families: what differs between makes of GPU, as values that the rest of the product asks.

Nothing else decides by the name of a family. A new one is a module here, or a folder of its own
beside this one where it needs several, an element of :data:`allocator.families.registry.FAMILIES`,
and a vocabulary in :mod:`allocator.catalog.vocabularies` by which pods ask for it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from allocator.config.settings import NodeAgent, Settings
from allocator.model.allocation import Assignment
from allocator.model.gpu import Gpu, Node
from allocator.model.problem import Problem
from allocator.model.request import Mode, PodRequest, Vocabulary


@dataclass(frozen=True, slots=True)
class LinkDistances:
    """How far the GPUs of a node are from each other."""

    kinds: tuple[int, ...]  # of each GPU; those of one kind are equally far from every other GPU
    # Between GPUs of two kinds, and within one; empty where nothing is known. Each is an index into
    # allocator.placement.topology.WORTH: 0 is closest.
    distances: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryFacts:
    """What a family is given of a Node: the parts that its :class:`NodeInventory` names."""

    name: str
    family: str
    annotations: Mapping[str, str]
    allocatable: Mapping[str, str] = field(default_factory=dict)  # by resource, as kubelet reports


@dataclass(frozen=True, slots=True)
class ReadInventory:
    """A node as its device plugin describes it."""

    node: Node | None  # None: the plugin describes no GPU
    problems: Sequence[Problem] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInventory:
    """How the GPUs of a node are read from what another device plugin writes on its Node.

    The text is untrusted. ``read`` bounds it, raises nothing, and leaves out what it cannot read.
    """

    annotations: tuple[str, ...]  # keys that are read; one of them must be there
    resources: tuple[str, ...] = ()  # whose allocatable amounts are read
    read: Callable[[InventoryFacts], ReadInventory]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPod:
    """What a pod got, for the annotations by which its device plugin learns of it."""

    assignment: Assignment
    request: PodRequest
    node: Node  # as it was decided on, without the pod
    containers: tuple[str, ...]  # names in spec.containers, in their order
    init_containers: tuple[str, ...]
    vocabularies: Sequence[Vocabulary]  # as the cluster configures them
    ours: bool  # our agent serves the node, so that no other plugin reads the annotations
    now: datetime  # aware


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One make of GPU."""

    name: str
    gpu_modes: tuple[Mode, ...]  # that its GPUs may be in
    # Tried where a request names no mode, the strongest isolation first. Several are weighed
    # against each other (allocator.placement.mode.weigh), which knows mig and hami-core.
    default_modes: tuple[Mode, ...]
    # None: our agent reports the GPUs in GPUNode.status. With ``nodeAgent: upstream`` those of
    # Volcano's register count. Otherwise the leader writes GPUNode.status from the Node.
    inventory: NodeInventory | None = None
    # The annotations that a device plugin, or people, read of a bound pod. They are written with
    # the Binding.
    binding_annotations: Callable[[BoundPod], Mapping[str, str]]
    # How far GPUs of one node, all of this family, are apart.
    link_distances: Callable[[Sequence[Gpu]], LinkDistances]

    def served_by(self, settings: Settings) -> NodeAgent:
        """Return whose agent or device plugin serves nodes with its GPUs."""
        return settings.node_agent if self.inventory is None else NodeAgent.UPSTREAM
