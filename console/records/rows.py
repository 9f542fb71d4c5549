"""Rows that the store answers with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from allocator.audit.record import AnyRecord, AskedPart, GivenPart, OwnerPart
from console.records.query import PodOutcome

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPage(Generic[R]):
    """One page of rows; ``after`` is the cursor of the next page, empty on the last one."""

    rows: tuple[R, ...]
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record, and who delivered it: how the sender was authenticated, in words."""

    record: AnyRecord
    sender: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """A decision, with what became of it.

    An admitted pod has a row of its own. A refused request that is tried again and again is one
    row, with the ``times`` that it was refused. Times are RFC 3339 in UTC, empty where nothing
    happened yet or no record says so.
    """

    digest: str
    pod_uid: str = ""
    first: str
    last: str
    times: int = 1
    verdict: str
    reason: str = ""
    text: str = ""  # the refusal, or the first warning
    namespace: str
    pod: str = ""  # its name, or the prefix of a generated one
    owner: OwnerPart | None = None
    user: str = ""  # who created the pod: often a controller
    requester: str = ""  # the person, empty where unknown or not to be seen
    requester_source: str = ""
    vocabulary: str = ""
    mode: str = ""
    mode_source: str = ""
    asked: tuple[AskedPart, ...] = ()
    given: tuple[GivenPart, ...] = ()
    node: str = ""
    state: PodOutcome
    waiting_reason: str = ""
    waiting_since: str = ""
    bound_at: str = ""
    started_at: str = ""
    over_at: str = ""
    violations: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """What the pods of one requester in one namespace asked for and were promised in a period."""

    namespace: str
    requester: str = ""
    admitted: int = 0  # pods
    refused: int = 0  # requests, a repeated one counted once
    running: int = 0  # pods that hold GPUs now
    promised_mib: int = 0  # now
    promised_cores_percent: int = 0  # now
    mib_hours: float = 0.0  # promised, from the bind to the release, within the period
    core_hours: float = 0.0  # share of compute times hours: 100 % for an hour is 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCount:
    """Pods that wait for one reason."""

    reason: str
    pods: int
    oldest: str  # since when the oldest waits


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewRow:
    """What is the matter, within a scope; ``verdicts`` counts decisions since the given time."""

    verdicts: Mapping[str, int] = field(default_factory=dict)
    refusals: Mapping[str, int] = field(default_factory=dict)  # by reason
    waiting: tuple[WaitingCount, ...] = ()
    running: int = 0
    violations: int = 0
    unhealthy: tuple[str, ...] = ()  # "node GPU-uuid"
    last_record: Mapping[str, str] = field(default_factory=dict)  # by component


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFigures:
    """What the store holds and how large it is."""

    records: int
    decisions: int
    size: int  # bytes
    oldest: str
    newest: str
