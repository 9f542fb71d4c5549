"""Why a node takes no new pods: every reason, in the words that Events and tables show.

A bind fails where ``status.inventory`` is empty or describes another Node, boot or plugin. The
agent says in ``status.closed`` why it reports none, or why none of its GPUs can be used; the
control plane writes its own reason there when it closes a node.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from allocator.catalog.vocabularies import SLOT
from allocator.ledger.ledger import Ledger
from allocator.ledger.lifecycle import REGISTER_DRIVERS, NodeIdentity
from allocator.model.untrusted import quote

_MOST_SHARED: Final = 1024  # sets of names
NO_NODE: Final = "it is no longer a node of the cluster"


def closed_reason(
    ledger: Ledger, node: NodeIdentity | None, *, upstream: bool, slot: str = SLOT
) -> str:
    """Return why the node of *ledger* takes no new pods; empty if it does.

    *node* is ``None`` where it does not exist. With *upstream* another plugin serves the nodes.
    *slot* is the resource whose devices kubelet hands out.
    """
    if ledger.deleting or not ledger.inventory:
        return NO_NODE if node is None else ledger.closed
    reason = stale_reason(ledger, node, upstream=upstream) or ledger.closed or ledger.stated
    if not reason and node is not None and slot in node.withdrawn:
        return (
            f"kubelet has no {slot} to give: the device plugin of the node is not running, "
            "or cannot register; look at the plugin's pod there (ours: DaemonSet vgpu-agent)"
        )
    return reason


def stale_reason(ledger: Ledger, node: NodeIdentity | None, *, upstream: bool) -> str:
    """Return why the status does not describe its Node as it is now; empty if it does.

    A uid or boot id that either side lacks is not compared.
    """
    if node is None:
        return NO_NODE
    if node.conflict:
        return node.conflict
    if not upstream and ledger.driver in REGISTER_DRIVERS:
        return "its GPUs were registered by another device plugin, and no agent has reported them"
    if ledger.node_uid and node.uid and ledger.node_uid != node.uid:
        return "its GPUs were reported before its Node was created anew"
    if ledger.boot and node.boot and ledger.boot != node.boot:
        return (
            f"its GPUs were reported in the boot {quote(ledger.boot)}, "
            f"but its Node is in the boot {quote(node.boot)}"
        )
    return ""


def withdrawn_resources(allocatable: Mapping[str, str]) -> frozenset[str]:
    """Return the extended resources in a Node's *allocatable* of which nothing is left.

    Kubelet writes 0 when the device plugin of a resource has ended, and removes nothing.
    """
    return _shared(
        frozenset(name for name, amount in allocatable.items() if amount == "0" and "/" in name)
    )


def offered_resources(allocatable: Mapping[str, str]) -> frozenset[str]:
    """Return the extended resources in a Node's *allocatable* of which there is some."""
    return _shared(
        frozenset(name for name, amount in allocatable.items() if amount != "0" and "/" in name)
    )


@lru_cache(maxsize=_MOST_SHARED)
def _shared(names: frozenset[str]) -> frozenset[str]:
    """Return *names*, for equal names mostly the same object: many nodes offer the same."""
    return names
