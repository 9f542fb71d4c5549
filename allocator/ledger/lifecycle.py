"""The next step for the GPUNode of each Node; :mod:`allocator.controllers.gpunode` performs it.

A GPUNode is in one of these states, and only the control plane creates and deletes it:

- absent: created once the Node runs our agent or has a register annotation;
- closed: ``status.inventory`` is empty, so every commit fails, because it tests that field;
- open: ``status.inventory`` was written by the agent, or by us from the register of another plugin.
  We close it when the status describes another Node object, another boot or another plugin, and
  when the Node is gone;
- abandoned: closed, and the Node is gone or has neither agent nor register. It is deleted once
  nothing is promised or in use (docs/design.md, commit rules 2 and 4). The delete tests the
  version that was read, so a GPUNode that has changed since stays.

Earlier releases gave each GPUNode a finalizer. We remove it wherever we find it, because nobody is
left to do so once the product is uninstalled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from allocator.config.settings import NodeAgent
from allocator.families.registry import FAMILIES
from allocator.ledger.ledger import LONGEST_STATED, Ledger, describes_node
from allocator.ledger.schema import status_of
from allocator.model.gpu import Node
from allocator.placement.fit import hardware

# status.driver of a status that was read from a register annotation: whose it was.
REGISTER_DRIVER: Final[str] = NodeAgent.UPSTREAM.value
REGISTER_DRIVERS: Final = frozenset(agent.value for agent in NodeAgent if agent.is_other)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """The properties of a Node on which the state of its GPUNode depends."""

    name: str
    uid: str
    boot: str  # boot id
    agent: bool = False  # it runs our agent
    registered: Node | None = None  # the GPUs of its register annotation, None without one
    # Who describes ``registered``: a family, by its device plugin, or the plugin of the setting
    # nodeAgent; "": Volcano's register does.
    registered_by: str = ""
    registered_closed: str = ""  # why it says that none of them may be given out, if so
    # Extended resources of which kubelet has none to give, as after the end of their device plugin.
    withdrawn: frozenset[str] = frozenset()
    offered: frozenset[str] = frozenset()  # extended resources of which it has some to give
    added: frozenset[str] = frozenset()  # those that our agent offers there, as it notes
    conflict: str = ""  # why nobody may give out its GPUs, although an agent reports them


class GpuNodeAction(Enum):
    """Steps that need no content."""

    CREATE = auto()
    CLOSE = auto()  # empty status.inventory, so that commits fail until it is written again
    DELETE = auto()
    REMOVE_FINALIZER = auto()  # that an earlier release added


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write these fields of the status, as an agent would."""

    status: Mapping[str, object]


Step = GpuNodeAction | WriteStatus


def due_step(node: NodeIdentity | None, ledger: Ledger | None, *, upstream: bool) -> Step | None:
    """Return the next step for a GPUNode, ``None`` where nothing is due.

    *node* or *ledger* is ``None`` where the object does not exist. With *upstream* another plugin
    serves the nodes, and its registers are the inventory.
    """
    has_gpus = node is not None and (node.agent or node.registered is not None)
    if ledger is None:
        return GpuNodeAction.CREATE if has_gpus else None
    if ledger.has_former_finalizer:
        return GpuNodeAction.REMOVE_FINALIZER
    if ledger.deleting:  # it waits for a finalizer of somebody else's
        return None
    if node is None or not (has_gpus or ledger.inventory):
        return _abandoned_step(ledger)
    if node.registered is not None and (upstream or node.registered_by):
        return _register_status(node, node.registered, ledger)
    # Upstream: the register is gone. Ours: another plugin or an earlier boot may have written it.
    read = upstream or is_read_from_node(ledger)
    current = not read and status_is_current(
        ledger, node_uid=node.uid, boot=node.boot, upstream=False
    )
    return GpuNodeAction.CLOSE if ledger.inventory and not current else None


def status_is_current(ledger: Ledger, *, node_uid: str, boot: str, upstream: bool) -> bool:
    """Say whether the status describes its Node in this boot and comes from the right source.

    A status from a register is current only with *upstream*, which says that another plugin serves
    the nodes.
    """
    by_right_agent = upstream or ledger.driver not in REGISTER_DRIVERS
    return by_right_agent and describes_node(ledger, node_uid=node_uid, boot=boot)


def is_read_from_node(ledger: Ledger) -> bool:
    """Say whether the leader wrote the status from what a family's own device plugin reports."""
    family = FAMILIES.get(ledger.driver)
    return family is not None and family.inventory is not None


def _abandoned_step(ledger: Ledger) -> Step | None:
    if ledger.inventory:
        return GpuNodeAction.CLOSE
    return None if _is_in_use(ledger) else GpuNodeAction.DELETE


def _register_status(node: NodeIdentity, registered: Node, ledger: Ledger) -> WriteStatus | None:
    closed = node.registered_closed or _mode_conflict(registered, ledger)
    if closed:
        registered = replace(registered, gpus=())
    identity = {
        "nodeUID": node.uid,
        "bootID": node.boot,
        "driver": node.registered_by or REGISTER_DRIVER,
    }
    status = {**identity, **status_of(registered)}
    if closed:
        status["closed"] = closed[:LONGEST_STATED]
    written = (ledger.inventory, ledger.node_uid, ledger.boot, ledger.driver)
    is_unchanged = written == (status["inventory"], *identity.values()) and (
        not closed or ledger.stated == status["closed"]
    )
    return None if is_unchanged else WriteStatus({k: v for k, v in status.items() if v != ""})


def _mode_conflict(registered: Node, ledger: Ledger) -> str:
    """Return why GPUs that changed their mode under their entries take no others, if so."""
    present = {gpu.mode for gpu in registered.gpus}
    held = {hardware(g.mode) for e in ledger.entries for c in e.containers for g in c.grants}
    others = sorted(held - present) if present else []
    if not others:
        return ""
    return f"its GPUs are in mode {min(present)} now, but pods still hold them in mode {others[0]}"


def _is_in_use(ledger: Ledger) -> bool:
    """Say whether there is any entry, readable or not, or GPUs are in use without one."""
    return bool(ledger.entry_uids or ledger.unpromised)
