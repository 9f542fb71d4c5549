"""What HAMi's programs, or we in their place, have written on a Node."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from allocator.catalog.hami_keys import (
    COUNT_RESOURCE,
    HANDSHAKE_ANNOTATION,
    LOCK_ANNOTATION,
    REGISTER_ANNOTATION,
)
from allocator.catalog.keys import HAMI_REGISTER_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class HamiMarks:
    """HAMi's annotations of a Node, empty where it has none, and the heartbeat of its plugin."""

    register: str = ""
    handshake: str = ""
    lock: str = ""
    digest: str = ""  # our annotation: of the register that we wrote
    # Some nvidia.com/gpu is allocatable. Kubelet takes it back when the plugin is gone.
    alive: bool = False


UNMARKED: Final = HamiMarks()


def hami_marks(annotations: Mapping[str, str], offered: frozenset[str]) -> HamiMarks:
    """Return the marks of a Node that has *offered* extended resources to give."""
    marks = HamiMarks(
        register=annotations.get(REGISTER_ANNOTATION, ""),
        handshake=annotations.get(HANDSHAKE_ANNOTATION, ""),
        lock=annotations.get(LOCK_ANNOTATION, ""),
        digest=annotations.get(HAMI_REGISTER_KEY, ""),
        alive=COUNT_RESOURCE in offered,
    )
    return UNMARKED if marks == UNMARKED else marks
