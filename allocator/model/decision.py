"""Outcomes: what stands between a request and a GPU, and what was decided."""

from dataclasses import dataclass
from enum import StrEnum

from allocator.model.request import Mode
from allocator.model.value import Value


class Reason(StrEnum):
    """Machine-readable causes. Public API: never rename, only add."""

    MALFORMED = "MalformedRequest"
    CONFLICTING = "ConflictingRequest"
    MEMORY_SHORT = "GpuMemoryShort"
    CORES_SHORT = "GpuCoresShort"
    SHARES_SHORT = "GpuSharesShort"
    NO_GEOMETRY = "NoMatchingGeometry"
    MODE_UNAVAILABLE = "ModeUnavailable"
    MODEL_UNAVAILABLE = "ModelUnavailable"
    UNHEALTHY = "GpuUnhealthy"
    TOO_MANY = "TooManyDevices"
    RESERVED_VARIABLE = "ReservedVariable"
    RESERVED_MOUNT = "ReservedMount"
    RESERVED_ANNOTATION = "ReservedAnnotation"
    NODE_NAME = "NodeNameSet"
    PRIVILEGED = "PrivilegedContainer"
    PRIORITY = "PriorityNotAllowed"
    EPHEMERAL = "EphemeralContainer"
    UNREADABLE = "UnreadablePod"
    INCOMPLETE = "IncompleteInjection"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that stands between a pod and its GPU.

    ``place`` is ``container "main"`` or ``pod``; ``what`` sets the user's number against
    ours; ``remedy`` can be pasted; ``field`` is the path in the pod. Lower case, no stop.
    """

    reason: Reason
    place: str
    field: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}; {self.remedy}"


class ModeSource(StrEnum):
    """How the mode of a pod came about; written to the pod as ``mode-source``."""

    NAMED = "named"
    ONLY = "only"
    BEST = "best"


class ModeCost(Value, frozen=True):
    """What one kind of GPU would withhold for a whole pod, in thousandths of a GPU.

    ``profiles`` names, where the mode is MIG, the smallest sufficient one per container.
    """

    mode: Mode
    cost: int
    model: str
    profiles: tuple[str, ...] = ()


class ModeChoice(Value, frozen=True):
    """The mode a pod leaves admission with, and why.

    ``why`` is in words. ``bids`` holds, for each mode that could serve, the GPU on which it
    withholds least; the chosen mode's is the first.
    """

    mode: Mode
    source: ModeSource
    why: str = ""
    bids: tuple[ModeCost, ...] = ()

    @property
    def costs(self) -> dict[str, int]:
        """Return the least cost of each mode by its name, the chosen one first."""
        return {str(bid.mode): bid.cost for bid in self.bids}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One GPU, or several that answered alike, held against one container's request."""

    node: str
    gpu: str
    model: str
    mode: Mode
    reason: Reason | None  # None: it fits
    detail: str = ""
    container: str = ""
