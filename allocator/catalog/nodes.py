"""Nodes: what stands on a Node because an agent of ours serves it."""

from typing import Final

from allocator.catalog.vocabularies import OWN

CAPACITY_KEY: Final = f"{OWN}capacity"  # annotation: the resources whose capacity an agent wrote
NOT_READY_TAINT: Final = f"{OWN}agent-not-ready"  # put on new nodes, taken off by their agent
