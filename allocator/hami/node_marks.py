"""What HAMi's programs, or we in their place, have written on a Node."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from allocator.catalog.hami_keys import (
    HANDSHAKE_ANNOTATION,
    LOCK_ANNOTATION,
    REGISTER_ANNOTATION,
)
from allocator.catalog.keys import HAMI_REGISTER_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class HamiMarks:
    """HAMi's annotations of a Node, empty where it has none, and what its plugin offers."""

    register: str = ""
    handshake: str = ""
    lock: str = ""
    digest: str = ""  # our annotation: of the register that we wrote
    # Extended resources of which some is allocatable. Kubelet takes back those of a plugin that is
    # gone.
    offered: frozenset[str] = frozenset()

    def is_alive(self, count: str) -> bool:
        """Say whether the plugin runs whose resource *count* is, ``nvidia.com/gpu`` by default."""
        return count in self.offered


UNMARKED: Final = HamiMarks()


def hami_marks(annotations: Mapping[str, str], offered: frozenset[str]) -> HamiMarks:
    """Return the marks of a Node that has *offered* extended resources to give."""
    marks = HamiMarks(
        register=annotations.get(REGISTER_ANNOTATION, ""),
        handshake=annotations.get(HANDSHAKE_ANNOTATION, ""),
        lock=annotations.get(LOCK_ANNOTATION, ""),
        digest=annotations.get(HAMI_REGISTER_KEY, ""),
        offered=offered,
    )
    return UNMARKED if marks == UNMARKED else marks
