"""The store of records in a database that speaks SQL."""

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final

from allocator.audit.record import SettingsRecord, SnapshotRecord
from console.records.limits import record_defect
from console.records.query import DecisionFilter, PageRequest, RecordFilter, Scope
from console.records.rows import (
    DecisionRow,
    OverviewRow,
    RowPage,
    StoredRecord,
    StoreFigures,
    UsageRow,
)
from console.store.cursor import KEY_BYTES, Place
from console.store.sql.appending import SETTINGS_CONTENT, SNAPSHOT_CONTENT, Appending
from console.store.sql.database import Database, Transaction
from console.store.sql.decision_reader import DecisionReader
from console.store.sql.record_reader import RecordReader
from console.store.sql.report_reader import ReportReader
from console.store.sql.retention import Pruning
from console.store.sql.terms import Terms
from console.store.store import Retention, StoreError

_INSERTED_AT_ONCE: Final = 1000  # records of an archive


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class SqlStore:
    """A :class:`RecordStore` in *database*."""

    def __init__(self, database: Database, *, now: Callable[[], int] = now_ms) -> None:
        """Open the store; *now* returns the time in milliseconds since 1970."""
        self._database = database
        self._now = now
        self._written_terms = Terms()
        self._read_terms = Terms()
        self._cursor_key = self._key()

    def append(self, records: Sequence[StoredRecord]) -> int:
        """Store all of *records* that are not stored yet, or none; return how many were new.

        Raises :class:`StoreError`, also for a record that ``record_defect`` has a word against.
        """
        now = self._now()
        for position, stored in enumerate(records):
            defect = record_defect(stored.record, now)
            if defect:
                raise StoreError(f"record {position} of the batch: {defect}")
        if not records:
            return 0
        with self._writing() as transaction:
            return Appending(transaction, self._written_terms).append(records)

    def decisions(
        self, scope: Scope, query: DecisionFilter, page: PageRequest
    ) -> RowPage[DecisionRow]:
        """Return decisions, the latest first; raises :class:`BadCursorError`."""
        with self._database.reading() as transaction:
            return self._decisions(transaction).page(scope, query, page)

    def facets(self, scope: Scope, query: DecisionFilter) -> dict[str, dict[str, int]]:
        """Count decisions by each field within all other filters."""
        with self._database.reading() as transaction:
            return self._decisions(transaction).facets(scope, query)

    def decision(self, scope: Scope, digest: str, pod_uid: str = "") -> DecisionRow | None:
        """Return one decision, the latest with *digest* where no pod is named."""
        with self._database.reading() as transaction:
            return self._decisions(transaction).one(scope, digest, pod_uid)

    def life(self, scope: Scope, row: DecisionRow) -> tuple[StoredRecord, ...]:
        """Return all records of a decision and its pod, the earliest first, 500 at most."""
        with self._database.reading() as transaction:
            return self._records(transaction).life(scope, row)

    def records(
        self, scope: Scope, query: RecordFilter, page: PageRequest
    ) -> RowPage[StoredRecord]:
        """Return records, the latest first; raises :class:`BadCursorError`."""
        with self._database.reading() as transaction:
            return self._records(transaction).page(scope, query, page)

    def usage(self, scope: Scope, since: str, until: str) -> tuple[UsageRow, ...]:
        """Return what was promised between two times, by namespace and requester."""
        with self._database.reading() as transaction:
            return ReportReader(transaction, self._read_terms, self._now()).usage(
                scope, since, until
            )

    def overview(self, scope: Scope, since: str) -> OverviewRow:
        """Return what is the matter now, and what was decided since a time."""
        with self._database.reading() as transaction:
            return self._reports(transaction).overview(scope, since)

    def settings(self, digest: str) -> SettingsRecord | None:
        """Return the settings with this digest of their content."""
        with self._database.reading() as transaction:
            record = self._records(transaction).content(digest, SETTINGS_CONTENT)
        return record if isinstance(record, SettingsRecord) else None

    def snapshot(self, digest: str) -> SnapshotRecord | None:
        """Return what decisions rested on, by the digest of its content."""
        with self._database.reading() as transaction:
            record = self._records(transaction).content(digest, SNAPSHOT_CONTENT)
        return record if isinstance(record, SnapshotRecord) else None

    def bound_nodes(self, pod_uids: Collection[str]) -> dict[str, frozenset[str]]:
        """Return the nodes that binds of pods name, by uid; a pod without a bind is left out."""
        with self._database.reading() as transaction:
            return self._records(transaction).bound_nodes(pod_uids)

    def figures(self) -> StoreFigures:
        """Return how much is stored."""
        size = self._database.used_bytes()
        with self._database.reading() as transaction:
            return self._reports(transaction).figures(size)

    def prune(self, retention: Retention, now: str) -> int:
        """Remove a bounded part of what need not be kept; return how many rows went.

        Call it again while something went.
        """
        used = self._database.used_bytes()
        with self._writing() as transaction:
            gone = Pruning(transaction, self._written_terms).prune(retention, now, used)
        if gone:
            self._database.give_back()
        return gone

    def export(self, scope: Scope, query: RecordFilter) -> Iterator[StoredRecord]:
        """Return all records that match, the earliest first, without holding them all."""
        place: Place | None = None
        while True:
            with self._database.reading() as transaction:
                batch, place = self._records(transaction).batch(scope, query, place)
            yield from batch
            if place is None:
                return

    def insert(self, records: Iterable[StoredRecord]) -> int:
        """Store records of an archive as :meth:`append` does, in batches."""
        rest, new = iter(records), 0
        while batch := list(islice(rest, _INSERTED_AT_ONCE)):
            new += self.append(batch)
        return new

    def close(self) -> None:
        """Close the store."""
        self._database.close()

    @contextmanager
    def _writing(self) -> Iterator[Transaction]:
        try:
            with self._database.writing() as transaction:
                yield transaction
        except BaseException:
            self._written_terms.forget()
            raise

    def _decisions(self, transaction: Transaction) -> DecisionReader:
        return DecisionReader(transaction, self._read_terms, self._cursor_key)

    def _records(self, transaction: Transaction) -> RecordReader:
        return RecordReader(transaction, self._read_terms, self._cursor_key)

    def _reports(self, transaction: Transaction) -> ReportReader:
        return ReportReader(transaction, self._read_terms, self._now())

    def _key(self) -> bytes:
        """Return the key of cursors, which all replicas share."""
        sql = "SELECT value FROM meta WHERE name = 'cursor-key'"
        with self._database.writing() as transaction:
            transaction.run(
                "INSERT INTO meta (name, value) VALUES ('cursor-key', ?)"
                " ON CONFLICT (name) DO NOTHING",
                (secrets.token_bytes(KEY_BYTES),),
            )
            [[key]] = transaction.rows(sql)
        return bytes(key)
