"""What the controllers of HAMi's annotations work on, from the followed objects."""

from collections.abc import Iterator, Mapping

from allocator.cluster.inventory import Inventory
from allocator.cluster.objects import NodeObject
from allocator.cluster.pods import Pods
from allocator.config.settings import NodeAgent, Settings
from allocator.families.registry import FAMILIES
from allocator.hami.ownership import ownership_warning
from allocator.hami.register_controller import RegisteredNodeInputs


def hami_register_inputs(
    inventory: Inventory, pods: Pods
) -> Mapping[str, RegisteredNodeInputs] | None:
    """Return the nodes to be registered with HAMi's scheduler, or whose register must go.

    ``None`` while not all objects are known.
    """
    nodes, ledgers = inventory.nodes(), inventory.ledgers()
    if nodes is None or ledgers is None or pods.by_uid is None:
        return None
    settings = inventory.settings
    return {
        name: RegisteredNodeInputs(
            marks=node.hami,
            ledger=ledgers.get(name),
            counted=frozenset(p.uid for p in pods.on_node(name) if p.hami_counted and not p.over),
            wanted=settings.hami_register and node.has_agent,
            count=settings.hami.count_name,
        )
        for name, node in nodes.items()
        if node.hami.digest or (settings.hami_register and node.has_agent)
    }


def hami_locks(inventory: Inventory) -> Mapping[str, str] | None:
    """Return HAMi's locks on the nodes that are ours to unlock, ``None`` while not all are known.

    Those are the nodes of HAMi's plugin where the setting leaves the nodes to it, and else those of
    our agents that are registered with HAMi's scheduler. Nodes of families that lock are, too.
    """
    nodes = inventory.nodes()
    if nodes is None:
        return None
    return dict(_locks(nodes, inventory.settings))


def ownership_warnings(inventory: Inventory) -> Mapping[tuple[str, str], str]:
    """Return what is wrong with nodes that HAMi and we serve, by name and uid of the Node."""
    settings = inventory.settings
    warnings = {
        (name, node.uid): ownership_warning(node.hami, settings, has_agent=node.has_agent)
        for name, node in (inventory.nodes() or {}).items()
    }
    return {node: warning for node, warning in warnings.items() if warning}


def _locks(nodes: Mapping[str, NodeObject], settings: Settings) -> Iterator[tuple[str, str]]:
    theirs = settings.node_agent is NodeAgent.HAMI
    for name, node in nodes.items():
        ours = theirs or (settings.hami_register and node.has_agent) or _is_locked_by_family(node)
        if node.hami.lock and ours:
            yield name, node.hami.lock


def _is_locked_by_family(node: NodeObject) -> bool:
    return node.facts is not None and FAMILIES[node.facts.family].needs_lock is not None
