"""Upkeep: what is to be done about the GPUNode of each Node, as values that a shell carries out.

Only the control plane makes and unmakes GPUNodes. One outlives its Node until the last promise is
gone, and is shut before any of them goes: a commit tests ``status.inventory``, so what was read
before can no longer be written (docs/design.md, commit rules 2 and 4).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from allocator.config.settings import NodeAgent
from allocator.ledger.ledger import Ledger, is_accounted
from allocator.ledger.schema import status_of
from allocator.model.gpu import Node

REGISTER_DRIVER: Final[str] = (
    NodeAgent.UPSTREAM.value
)  # stands for the driver in a status that was read off a register


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """A Node of the cluster, as far as its GPUNode goes by it.

    ``agent`` says that it runs ours. ``announced`` is what its register annotation lists, ``None``
    where it has none.
    """

    name: str
    uid: str
    boot: str
    agent: bool = False
    registered: Node | None = None


class GpuNodeAction(Enum):
    """What may be done to a GPUNode without a status to write."""

    CREATE = auto()
    CLOSE = auto()  # no commit until the inventory is written anew
    DELETE = auto()
    REMOVE_FINALIZER = auto()  # take the finalizer off


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write these fields of the status, as its agent would."""

    status: Mapping[str, object]


Step = GpuNodeAction | WriteStatus


def due_step(node: NodeIdentity | None, ledger: Ledger | None, *, upstream: bool) -> Step | None:
    """Return the next step for a GPUNode, ``None`` where it is as it should be.

    ``None`` as *machine* or *ledger* is one that does not exist. *upstream* says that another
    plugin serves the nodes and their registers are their inventory.
    """
    if ledger is None:
        has_gpus = node is not None and (node.agent or node.registered is not None)
        return GpuNodeAction.CREATE if has_gpus else None
    if ledger.deleting:
        return None if _has_entries(ledger) else GpuNodeAction.REMOVE_FINALIZER
    if node is None:
        return _orphan_step(ledger)
    if upstream and node.registered is not None:
        return _register_status(node, node.registered, ledger)
    # The plugin that served it has left nothing to read, or its word or an earlier life's is here.
    current = not upstream and status_is_current(
        ledger, node_uid=node.uid, boot=node.boot, upstream=False
    )
    return GpuNodeAction.CLOSE if ledger.inventory and not current else None


def status_is_current(ledger: Ledger, *, node_uid: str, boot: str, upstream: bool) -> bool:
    """Say whether the status is of its Node as it runs now, told by who is to serve it.

    What a register told stands as long as its plugin serves the nodes, which *upstream* says.
    """
    by_right_agent = upstream or ledger.driver != REGISTER_DRIVER
    return by_right_agent and is_accounted(ledger, node_uid=node_uid, boot=boot)


def _orphan_step(ledger: Ledger) -> Step | None:
    if ledger.inventory:
        return GpuNodeAction.CLOSE
    return None if _has_entries(ledger) else GpuNodeAction.DELETE


def _register_status(node: NodeIdentity, registered: Node, ledger: Ledger) -> WriteStatus | None:
    identity = {"nodeUID": node.uid, "bootID": node.boot, "driver": REGISTER_DRIVER}
    status = {**identity, **status_of(registered)}
    written = (ledger.inventory, ledger.node_uid, ledger.boot, ledger.driver)
    same = written == (status["inventory"], *identity.values())
    return None if same else WriteStatus({k: v for k, v in status.items() if v != ""})


def _has_entries(ledger: Ledger) -> bool:
    """Say whether anything is promised, also what cannot be read."""
    return bool(ledger.entry_uids)
