"""Decisions: why a request gets no GPU, and which mode a pod gets."""

from collections.abc import Sequence
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
    ISOLATION = "IsolationTooWeak"
    UNSERVED = "VocabularyNotServed"
    SHARE_CLASS = "ShareClassTaken"
    GROUP = "GroupDoesNotFit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One reason why a pod does not get its GPU. Texts are in lower case, without a full stop."""

    reason: Reason
    place: str  # 'container "main"', or "pod"
    field: str  # path in the pod
    what: str  # the user's value, compared with what we have
    remedy: str  # can be pasted

    def __str__(self) -> str:
        return f"{self.place}: {self.what}; {self.remedy}"


class Findings(Value, frozen=True):
    """Why a request is refused: at least one finding, in the order of the pod."""

    first: Finding
    rest: tuple[Finding, ...] = ()

    @property
    def all(self) -> tuple[Finding, ...]:
        """Return the first and the rest."""
        return (self.first, *self.rest)


def all_findings(findings: Sequence[Finding]) -> Findings:
    """Return *findings*, of which there is at least one, as the reason of a refusal."""
    return Findings(findings[0], tuple(findings[1:]))


def findings_of(findings: Sequence[Finding]) -> Findings | None:
    """Return *findings* as the reason of a refusal; ``None`` where there are none."""
    return all_findings(findings) if findings else None


class ModeSource(StrEnum):
    """How the mode of a pod came about; written to the pod as ``mode-source``."""

    NAMED = "named"
    ONLY = "only"
    BEST = "best"


class ModeCost(Value, frozen=True):
    """What a pod would withhold from others on one kind of GPU."""

    mode: Mode
    cost: int  # thousandths of a GPU, for the whole pod
    model: str
    profiles: tuple[str, ...] = ()  # for MIG: the smallest sufficient one per container


class ModeChoice(Value, frozen=True):
    """The mode with which a pod leaves admission, and why."""

    mode: Mode
    source: ModeSource
    why: str = ""  # the rule in words
    # The cheapest kind of GPU of each mode that could serve the pod, the chosen mode's first.
    mode_costs: tuple[ModeCost, ...] = ()
    warnings: tuple[Finding, ...] = ()  # for the user who creates the pod

    @property
    def costs(self) -> dict[str, int]:
        """Return the least cost of each mode by its name, the chosen one first."""
        return {str(mode_cost.mode): mode_cost.cost for mode_cost in self.mode_costs}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One GPU, or several with the same answer, compared with one container's request."""

    node: str
    gpu: str
    model: str
    mode: Mode
    reason: Reason | None  # None: it fits
    detail: str = ""
    container: str = ""
