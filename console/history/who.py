"""Who holds GPUs and who asked for them, by namespace and person; and the person behind a pod."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from allocator.model.units import MiB
from console.get.listing import Listing
from console.get.table import amount, word
from console.history.decision_rows import owner_text
from console.records.rows import DecisionRow, UsageRow

COLUMNS: Final = ("NAMESPACE", "BY", "PODS", "PROMISED", "CORES", "GIB-HOURS", "REFUSED")
WIDE: Final = ("ADMITTED", "CORE-HOURS")
_MIB_OF_GIB: Final = 1024


class WhoItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one person asked for and was promised in one namespace."""

    namespace: str
    requester: str  # empty: unknown, or not to be seen by whoever asks
    running: int  # pods that hold GPUs now
    promised_mib: int = msgspec.field(name="promisedMiB")  # now
    promised_cores_percent: int  # now
    gib_hours: float  # promised within the period
    core_hours: float  # 100 % for an hour is 1
    admitted: int  # pods, within the period
    refused: int  # requests, within the period


def who_listing(rows: Iterable[UsageRow]) -> Listing:
    """Return usage, those who hold most now first."""
    ordered = sorted(rows, key=lambda row: (-row.promised_mib, -row.mib_hours, row.namespace))
    return Listing(
        kind="WhoList",
        row=WhoItem,
        columns=COLUMNS,
        wide=WIDE,
        rows=[_item(row) for row in ordered],
        cells=[_cells(row) for row in ordered],
    )


def _item(row: UsageRow) -> WhoItem:
    return WhoItem(
        namespace=row.namespace,
        requester=row.requester,
        running=row.running,
        promised_mib=row.promised_mib,
        promised_cores_percent=row.promised_cores_percent,
        gib_hours=round(row.mib_hours / _MIB_OF_GIB, 3),
        core_hours=round(row.core_hours, 3),
        admitted=row.admitted,
        refused=row.refused,
    )


def _cells(row: UsageRow) -> tuple[str, ...]:
    return (
        word(row.namespace),
        word(row.requester),
        str(row.running),
        amount(MiB(row.promised_mib)),
        f"{row.promised_cores_percent}%",
        f"{row.mib_hours / _MIB_OF_GIB:.1f}",
        str(row.refused),
        str(row.admitted),
        f"{row.core_hours:.1f}",
    )


_HOW: Final = {
    "direct": "created the pod",
    "workload": "created or last changed the template of",
}


def person_text(row: DecisionRow) -> str:
    """Return who is behind a pod, and how that is known."""
    owner = owner_text(row)
    if not row.requester:
        created = f"; {row.user} created it" if row.user else ""
        through = f" for {owner}" if owner and row.user else ""
        return f"nobody is known{created}{through}"
    how = _HOW.get(row.requester_source, row.requester_source or "it is not said how that is known")
    if row.requester_source == "workload":
        return f"{row.requester}, who {how} {owner or 'its owner'}"
    return f"{row.requester}, who {how}" if row.requester_source in _HOW else f"{row.requester}"


def person_document(row: DecisionRow) -> dict[str, Any]:
    """Return the same as a document."""
    return {
        "apiVersion": "vgpu-admission.io/v1alpha1",
        "kind": "Who",
        "namespace": row.namespace,
        "pod": row.pod,
        "podUid": row.pod_uid,
        "requester": row.requester,
        "requesterSource": row.requester_source,
        "user": row.user,
        "owner": owner_text(row),
        "digest": row.digest,
    }
