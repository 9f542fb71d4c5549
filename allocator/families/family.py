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
from allocator.model.problem import Loaded, Problem, Rejected
from allocator.model.request import FillPolicy, Mode, PodRequest, Vocabulary


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
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)  # by resource, as kubelet reports
    allocatable: Mapping[str, str] = field(default_factory=dict)  # the part that may be given out
    configured: str = ""  # the mode that the family's ConfigMap gives the node, if there is one


@dataclass(frozen=True, slots=True)
class ReadInventory:
    """A node as its device plugin describes it."""

    node: Node | None  # None: the plugin describes no GPU
    problems: Sequence[Problem] = ()
    closed: str = ""  # why the GPUs of the node may not be given out at the moment, if so


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInventory:
    """How the GPUs of a node are read from what another device plugin writes on its Node.

    The text is untrusted. ``read`` bounds it, raises nothing, and leaves out what it cannot read.
    """

    # A Node has such GPUs where one of these annotations or resources is there.
    annotations: tuple[str, ...]  # keys that are read
    resources: tuple[str, ...] = ()  # whose amounts are read
    labels: tuple[str, ...] = ()  # keys that are read too
    modes: "NodeModesSource | None" = None  # where a ConfigMap gives each node a mode
    read: Callable[[InventoryFacts], ReadInventory]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeModesSource:
    """A ConfigMap by which a family's operator gives each node a mode."""

    namespace: str
    name: str
    # From its data to the mode of a node by its name; a rejected one leaves the last good one.
    load: Callable[[Mapping[str, str]], Loaded[Callable[[str], str]] | Rejected]


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


def _none_listed(_: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One make of GPU."""

    name: str
    # Whose device plugin serves nodes of which no agent of ours reports the GPUs.
    plugin: str = "another project's"
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
    # The UUIDs that another scheduler wrote on a pod for its device plugin, for each container of
    # the spec, init containers first. Empty: nothing, or nothing that can be read.
    listed_uuids: Callable[[Mapping[str, str]], tuple[tuple[str, ...], ...]] = _none_listed
    # How far GPUs of one node, all of this family, are apart.
    link_distances: Callable[[Sequence[Gpu]], LinkDistances]
    # Whether our variables and our library go into containers. Otherwise NVIDIA's GPUs are hidden
    # from them, and nothing else is written.
    injects: bool = True
    # Whether the pod must hold HAMi's lock of its node from its bind to Allocate, because the
    # device plugin serves whoever holds it. None: no pod of the family.
    needs_lock: Callable[[PodRequest], bool] | None = None
    # What the links of a node are worth for a request under a policy for nodes; higher is better,
    # compared between the nodes of one question. None: the node does not say. Without it the
    # distances count.
    node_value: Callable[[Node, PodRequest, FillPolicy], int | None] | None = None

    def served_by(self, settings: Settings) -> NodeAgent:
        """Return whose agent or device plugin serves nodes with its GPUs."""
        return settings.node_agent if self.inventory is None else NodeAgent.UPSTREAM
