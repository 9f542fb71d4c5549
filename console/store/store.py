"""The store of audit records: what SQLite and PostgreSQL both answer, in blocking calls.

Reads may be called from several threads, ``append`` and ``prune`` from one. Every read is given a
scope, and tells nothing of what is beyond it.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from allocator.audit.record import SettingsRecord, SnapshotRecord
from console.records.query import DecisionFilter, PageRequest, RecordFilter, Scope
from console.records.rows import (
    DecisionRow,
    OverviewRow,
    RowPage,
    StoredRecord,
    StoreFigures,
    UsageRow,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is kept: records not older than ``age``, as long as all take at most ``size`` bytes."""

    age: timedelta = timedelta(days=30)
    size: int = 2 * 1024**3


class StoreError(Exception):
    """The store cannot be opened, read or written; says which, where and what would help."""


class RecordStore(Protocol):
    """Where records are kept. Every method raises :class:`StoreError`."""

    def append(self, records: Sequence[StoredRecord]) -> int:
        """Store all of *records* that are not stored yet, or none; return how many were new.

        They are on disk when this returns.
        """

    def decisions(
        self, scope: Scope, query: DecisionFilter, page: PageRequest
    ) -> RowPage[DecisionRow]:
        """Return decisions, the latest first; raises :class:`BadCursorError`."""

    def facets(self, scope: Scope, query: DecisionFilter) -> dict[str, dict[str, int]]:
        """Count decisions by ``verdict``, ``reason``, ``mode``, ``namespace`` and ``requester``.

        Each field is counted within all other filters, most frequent first, fifty values at most.
        """

    def decision(self, scope: Scope, digest: str, pod_uid: str = "") -> DecisionRow | None:
        """Return one decision, the latest with *digest* where no pod is named."""

    def life(self, scope: Scope, row: DecisionRow) -> tuple[StoredRecord, ...]:
        """Return all records of a decision and its pod, the earliest first, 500 at most."""

    def records(
        self, scope: Scope, query: RecordFilter, page: PageRequest
    ) -> RowPage[StoredRecord]:
        """Return records, the latest first; raises :class:`BadCursorError`."""

    def usage(self, scope: Scope, since: str, until: str) -> tuple[UsageRow, ...]:
        """Return what was promised between two times, by namespace and requester."""

    def overview(self, scope: Scope, since: str) -> OverviewRow:
        """Return what is the matter now, and what was decided since a time."""

    def settings(self, digest: str) -> SettingsRecord | None:
        """Return the settings with this digest of their content."""

    def snapshot(self, digest: str) -> SnapshotRecord | None:
        """Return what decisions rested on, by the digest of its content."""

    def bound_nodes(self, pod_uids: Collection[str]) -> dict[str, frozenset[str]]:
        """Return the nodes that binds of pods name, by uid; a pod without a bind is left out."""

    def figures(self) -> StoreFigures:
        """Return how much is stored."""

    def prune(self, retention: Retention, now: str) -> int:
        """Remove what need not be kept, a bounded part at a time; return how many records went.

        Settings and snapshots stay as long as a decision names them.
        """

    def export(self, scope: Scope, query: RecordFilter) -> Iterator[StoredRecord]:
        """Return all records that match, the earliest first, without holding them all."""

    def insert(self, records: Iterable[StoredRecord]) -> int:
        """Store records of an archive as :meth:`append` does, in batches."""

    def close(self) -> None:
        """Close the store."""
