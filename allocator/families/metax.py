"""The family ``metax``: GPUs of MetaX's, whole or shared, that its own device plugin serves."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from allocator.families.family import (
    BoundPod,
    Family,
    InventoryFacts,
    NodeInventory,
    NodeModesSource,
    ReadInventory,
)
from allocator.families.nvidia import link_distances
from allocator.metax.cards import MetaxCard
from allocator.metax.inventory import UNTOLD_MODEL, MetaxGpus, PublishedGpus, metax_gpus
from allocator.metax.link_scores import best_split, exclusive_value
from allocator.metax.names import (
    GPU,
    MODES_CONFIG_MAP,
    NODE_ANNOTATIONS,
    NODE_LABELS,
    OPERATOR_NAMESPACE,
    SGPU,
)
from allocator.metax.node_modes import NodeMode, load_node_modes
from allocator.metax.pod_devices import allocated_uuids, shared_annotations, whole_annotations
from allocator.metax.topology_maps import TopologyMaps, topology_maps
from allocator.model.gpu import Gpu, Node
from allocator.model.problem import Loaded, Rejected
from allocator.model.request import METAX, ContainerRequest, FillPolicy, Mode, PodRequest
from allocator.model.sharing import AppClass, crowding, may_join, parse_share_class
from allocator.model.units import WHOLE_GPU, MiB

_MODES: Final = {NodeMode.NATIVE: Mode.NATIVE, NodeMode.SGPU: Mode.SGPU}
_UNLINKED: Final = 0  # the zone of a GPU without links


def read_inventory(facts: InventoryFacts) -> ReadInventory:
    """Return the node as MetaX's components describe it."""
    published = PublishedGpus(
        annotations=facts.annotations,
        labels=facts.labels,
        capacity=facts.capacity,
        allocatable=facts.allocatable,
    )
    configured = NodeMode(facts.configured) if facts.configured else None
    found = metax_gpus(facts.name, published, configured=configured)
    if found is None:
        return ReadInventory(None)
    maps = topology_maps(facts.annotations)
    node = Node(
        name=facts.name,
        gpus=tuple(_gpus(found)),
        fresh=not found.problems,
        link_scores=tuple(sorted(maps.scores.items())),
        link_losses=tuple(sorted(maps.losses.items())),
    )
    return ReadInventory(node, (*found.problems, *maps.problems), closed=found.closed)


def load_modes(data: Mapping[str, str]) -> Loaded[Callable[[str], str]] | Rejected:
    """Return the mode of each node by MetaX's ConfigMap."""
    loaded = load_node_modes(data)
    if isinstance(loaded, Rejected):
        return loaded
    return Loaded(value=loaded.value.mode_of, warnings=loaded.warnings)


def _gpus(found: MetaxGpus) -> list[Gpu]:
    zones: defaultdict[int | None, list[str]] = defaultdict(list)
    for card in found.cards:
        zones[card.zone].append(card.uuid)
    return [
        Gpu(
            uuid=card.uuid,
            index=index,
            model=card.model or UNTOLD_MODEL,
            memory=MiB(card.memory),
            mode=_MODES[found.mode],
            slots=card.shares,
            healthy=card.healthy,
            numa=card.numa,
            links=_links_of(card, zones),
            family=METAX,
        )
        for index, card in enumerate(found.cards)
    ]


def _links_of(card: MetaxCard, zones: Mapping[int | None, Sequence[str]]) -> tuple[str, ...]:
    if card.zone is None:
        return ()
    return tuple(uuid for uuid in zones[card.zone] if uuid != card.uuid)


def binding_annotations(bound: BoundPod) -> dict[str, str]:
    """Return what MetaX's plugin reads at Allocate, and what HAMi and its tools count by."""
    grants = {held.name: held.grants for held in bound.assignment.containers}
    containers = [grants.get(name, ()) for name in (*bound.init_containers, *bound.containers)]
    write = shared_annotations if needs_lock(bound.request) else whole_annotations
    return write(containers, node=bound.assignment.node, now=bound.now)


def needs_lock(request: PodRequest) -> bool:
    """Say whether MetaX's plugin serves the pod that holds the lock of the node: for shares."""
    return request.named_mode is Mode.SGPU


def node_value(node: Node, request: PodRequest, policy: FillPolicy) -> int | None:
    """Return what the links of *node* are worth for *request*; higher is better.

    Whole GPUs by the maps that the node publishes: by ``binpack`` the least damage counts, by
    ``spread`` the best links for the pod. Shares only where they are of whole GPUs: by link zones,
    unless the pod wants no links to count.
    Of a pod of class online what counts instead is whom it would be in the way of.
    """
    count = sum(container.count for container in request.containers)
    if request.named_mode is Mode.NATIVE:
        return TopologyMaps(dict(node.link_scores), dict(node.link_losses)).value(count, policy)
    if crowds := _least_crowding(node, request):
        return -min(crowds)
    if request.ignore_links or not all(map(_is_exclusive, request.containers)):
        return None
    free = _free_by_zone(node)
    split = best_split(free, count)
    return None if split is None else exclusive_value(free, split)


def _least_crowding(node: Node, request: PodRequest) -> list[int]:
    """Return whom a pod of class online would crowd on each GPU that it may share.

    Nothing for any other pod.
    """
    share = request.containers[0].share
    if share != AppClass.ONLINE:
        return []
    tenants = [[grant.share for grant in gpu.grants] for gpu in node.gpus if gpu.healthy]
    return [crowding(share, there) for there in tenants if all(may_join(share, t) for t in there)]


def _is_exclusive(container: ContainerRequest) -> bool:
    share = parse_share_class(container.share)
    has_class = share is not None and share.app_class is not None
    return container.cores >= WHOLE_GPU and not has_class


def _free_by_zone(node: Node) -> dict[int, int]:
    """Return how many idle GPUs each link zone has, by a number for each zone."""
    zones: dict[frozenset[str], int] = {}
    free: defaultdict[int, int] = defaultdict(int)
    for gpu in node.gpus:
        linked = frozenset((*gpu.links, gpu.uuid)) if gpu.links else frozenset()
        zone = zones.setdefault(linked, len(zones) + 1) if linked else _UNLINKED
        if gpu.healthy and not gpu.grants:
            free[zone] += 1
    return dict(free)


METAX_FAMILY: Final = Family(
    name=METAX,
    plugin="MetaX's",
    gpu_modes=(Mode.SGPU, Mode.NATIVE),
    default_modes=(Mode.SGPU,),
    injects=False,
    inventory=NodeInventory(
        annotations=NODE_ANNOTATIONS,
        labels=NODE_LABELS,
        resources=(GPU, SGPU),
        modes=NodeModesSource(namespace=OPERATOR_NAMESPACE, name=MODES_CONFIG_MAP, load=load_modes),
        read=read_inventory,
    ),
    binding_annotations=binding_annotations,
    needs_lock=needs_lock,
    listed_uuids=allocated_uuids,
    link_distances=link_distances,
    node_value=node_value,
)
