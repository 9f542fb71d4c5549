"""Decisions as rows: who asked for what, what was decided, and what became of it."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import msgspec

from allocator.audit.record import AskedPart, GivenPart
from allocator.model.untrusted import zoned_time
from console.get.listing import LAST, Listing
from console.get.table import NONE, age, word
from console.history.amounts import asked_text, given_text
from console.records.query import PodOutcome
from console.records.rows import DecisionRow

SPACE: Final = "NAMESPACE"
COLUMNS: Final = (LAST, "POD", "BY", "STATE", "REASON", "ASKED")
WIDE: Final = ("TIMES", "GIVEN", "NODE", "MODE", "SOURCE", "OWNER", "USER", "VIOLATIONS", "DIGEST")


class DecisionItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One decision in a document. A text is empty where nothing is known."""

    namespace: str
    pod: str
    pod_uid: str
    digest: str
    first: str
    last: str
    times: int
    verdict: str
    state: str
    reason: str
    text: str
    user: str
    requester: str
    requester_source: str
    owner: str  # kind/name
    vocabulary: str
    mode: str
    mode_source: str
    asked: tuple[dict[str, Any], ...]
    given: tuple[dict[str, Any], ...]
    node: str
    waiting_reason: str
    waiting_since: str
    bound_at: str
    started_at: str
    over_at: str
    violations: int


def decision_item(row: DecisionRow) -> DecisionItem:
    """Return *row* as documents have it."""
    return DecisionItem(
        namespace=row.namespace,
        pod=row.pod,
        pod_uid=row.pod_uid,
        digest=row.digest,
        first=row.first,
        last=row.last,
        times=row.times,
        verdict=row.verdict,
        state=str(row.state),
        reason=row.reason,
        text=row.text,
        user=row.user,
        requester=row.requester,
        requester_source=row.requester_source,
        owner=owner_text(row),
        vocabulary=row.vocabulary,
        mode=row.mode,
        mode_source=row.mode_source,
        asked=tuple(map(_asked_item, row.asked)),
        given=tuple(map(_given_item, row.given)),
        node=row.node,
        waiting_reason=row.waiting_reason,
        waiting_since=row.waiting_since,
        bound_at=row.bound_at,
        started_at=row.started_at,
        over_at=row.over_at,
        violations=row.violations,
    )


def _asked_item(part: AskedPart) -> dict[str, Any]:
    return {
        "container": part.name,
        "count": part.count,
        "memoryMiB": part.memory_mib,
        "memoryPercent": part.memory_percent,
        "coresPercent": part.cores_percent,
    }


def _given_item(part: GivenPart) -> dict[str, Any]:
    devices = [
        {
            "gpu": device.gpu,
            "mode": device.mode,
            "memoryMiB": device.memory_mib,
            "coresPercent": device.cores_percent,
            "profile": device.profile,
            "start": device.start,
            "instance": device.instance,
        }
        for device in part.devices
    ]
    return {"container": part.name, "devices": devices}


def owner_text(row: DecisionRow) -> str:
    """Return the owner of the pod as ``kind/name``, empty where it has none."""
    return f"{row.owner.kind.lower()}/{row.owner.name}" if row.owner is not None else ""


def decision_listing(rows: Iterable[DecisionRow], now: datetime, *, spaces: bool) -> Listing:
    """Return decisions in their order; *spaces* says whether the table names namespaces."""
    rows = list(rows)
    return Listing(
        kind="DecisionList",
        row=DecisionItem,
        columns=(LAST, SPACE, *COLUMNS[1:]) if spaces else COLUMNS,
        wide=WIDE,
        rows=[decision_item(row) for row in rows],
        cells=[_cells(row, now, spaces=spaces) for row in rows],
        created=[zoned_time(row.last) for row in rows],
    )


def _cells(row: DecisionRow, now: datetime, *, spaces: bool) -> tuple[str, ...]:
    return (
        age(zoned_time(row.last), now),
        *((word(row.namespace),) if spaces else ()),
        word(row.pod),
        word(row.requester),
        str(row.state),
        word(_reason(row)),
        asked_text(row.asked),
        str(row.times),
        given_text(row.given),
        word(row.node),
        word(row.mode),
        word(row.requester_source),
        word(owner_text(row)),
        word(row.user),
        str(row.violations) if row.violations else NONE,
        word(row.digest),
    )


def _reason(row: DecisionRow) -> str:
    """Return why the pod is where it is: refused, or waiting."""
    return row.waiting_reason if row.state is PodOutcome.WAITING else row.reason
