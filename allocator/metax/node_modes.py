"""Node modes: which nodes share their GPUs, by MetaX's ConfigMap ``metax-device-config``.

Its values are texts: ``version`` is ``v1``, ``cluster-config`` holds the mode of every node, and
``nodes-config`` a list of nodes with modes of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from allocator.config.document import DocumentError, DocumentTable, Notes, describe, read_document
from allocator.metax.names import MODES_CONFIG_MAP
from allocator.model.problem import Loaded, Rejected
from allocator.model.untrusted import quote

VERSION_KEY: Final = "version"
CLUSTER_KEY: Final = "cluster-config"
NODES_KEY: Final = "nodes-config"
_VERSION: Final = "v1"
_MOST_NODES: Final = 10_000
_MOST_PROBLEMS: Final = 16


class NodeMode(StrEnum):
    """How the GPUs of a MetaX node are given out."""

    NATIVE = "native"  # whole
    SGPU = "sgpu"  # shared


_ACCEPTED: Final = f"{NodeMode.NATIVE} or {NodeMode.SGPU}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeModes:
    """The mode of each node."""

    default: NodeMode = NodeMode.NATIVE
    nodes: Mapping[str, NodeMode] = field(default_factory=lambda: MappingProxyType({}))

    def mode_of(self, node: str) -> NodeMode:
        """Return the mode of *node*: its own, or that of the cluster."""
        return self.nodes.get(node, self.default)


def load_node_modes(data: Mapping[str, str]) -> Loaded[NodeModes] | Rejected:
    """Read the *data* of the ConfigMap; where it is rejected, callers keep the last good one.

    An unknown mode or a node that stands there twice rejects all of it, because half of it would
    share GPUs that somebody else was promised whole. Unknown keys are warnings.
    """
    notes = Notes()
    version = data.get(VERSION_KEY, "").strip()
    if version != _VERSION:
        found = f"{quote(version)} found" if VERSION_KEY in data else "missing"
        notes.error(VERSION_KEY, found, _VERSION)
    for key in sorted(data.keys() - {VERSION_KEY, CLUSTER_KEY, NODES_KEY}):
        notes.warning(
            MODES_CONFIG_MAP, f"unknown key {describe(key)}", f"{CLUSTER_KEY}, {NODES_KEY}"
        )
    default = _cluster_mode(data.get(CLUSTER_KEY, ""), notes)
    nodes = _node_modes(data.get(NODES_KEY, ""), notes)
    if notes.errors:
        return Rejected(tuple(notes.errors[:_MOST_PROBLEMS]))
    modes = NodeModes(default=default, nodes=MappingProxyType(nodes))
    return Loaded(value=modes, warnings=tuple(notes.warnings[:_MOST_PROBLEMS]))


def _cluster_mode(text: str, notes: Notes) -> NodeMode:
    value = _document(CLUSTER_KEY, text, notes)
    if value is None:
        return NodeMode.NATIVE
    table = DocumentTable.of(value, CLUSTER_KEY, notes)
    table.check_keys(("mode",), refuse=False)
    return _mode(table) if "mode" in table.values else NodeMode.NATIVE


def _node_modes(text: str, notes: Notes) -> dict[str, NodeMode]:
    value = _document(NODES_KEY, text, notes)
    modes: dict[str, NodeMode] = {}
    if value is None:
        return modes
    if not isinstance(value, list) or len(value) > _MOST_NODES:
        what = f"{len(value)} elements" if isinstance(value, list) else f"{describe(value)} found"
        notes.error(NODES_KEY, what, f"a list of at most {_MOST_NODES} nodes")
        return modes
    for index, item in enumerate(value):
        table = DocumentTable.of(item, f"{NODES_KEY}[{index}]", notes)
        table.check_keys(("nodeName", "mode"), refuse=False)
        name = table.text("nodeName")
        if name in modes:
            notes.error(table.at("nodeName"), f"{quote(name)} twice", "each node once")
        modes[name] = _mode(table)
    return modes


def _mode(table: DocumentTable) -> NodeMode:
    text = table.text("mode")
    if text in set(NodeMode):
        return NodeMode(text)
    if text:
        table.note_wrong("mode", _ACCEPTED)
    return NodeMode.NATIVE


def _document(key: str, text: str, notes: Notes) -> object:
    """Return the YAML in *text*, ``None`` where there is none or it cannot be read."""
    if not text.strip():
        return None
    try:
        return read_document(text)
    except DocumentError as error:
        notes.error(key, str(error), "YAML of at most 512 KiB")
        return None
