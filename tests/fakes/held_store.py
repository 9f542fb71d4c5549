"""A store of records whose writes a test can hold up or make fail."""

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence

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
from console.store.store import Retention, StoreError


class HeldRecordStore:
    """Satisfies :class:`console.store.store.RecordStore`; it is written, and read as a list."""

    def __init__(self) -> None:
        self.kept: dict[str, StoredRecord] = {}
        self.threads: set[int] = set()  # that wrote
        self.error: StoreError | None = None
        self.go = threading.Event()  # cleared: writes wait
        self.go.set()
        self.prunable = 0
        self.pruned: list[str] = []  # the time of each call
        self.closed = False

    def append(self, records: Sequence[StoredRecord]) -> int:
        self.threads.add(threading.get_ident())
        assert self.go.wait(10)
        if self.error is not None:
            raise self.error
        new = {stored.record.id: stored for stored in records if stored.record.id not in self.kept}
        self.kept |= new
        return len(new)

    def prune(self, retention: Retention, now: str) -> int:
        del retention
        self.threads.add(threading.get_ident())
        self.pruned.append(now)
        if self.error is not None:
            raise self.error
        part = min(self.prunable, 10)
        self.prunable -= part
        return part

    def records(
        self, scope: Scope, query: RecordFilter, page: PageRequest
    ) -> RowPage[StoredRecord]:
        del scope, query, page
        return RowPage(rows=tuple(self.kept.values()))

    def decisions(
        self, scope: Scope, query: DecisionFilter, page: PageRequest
    ) -> RowPage[DecisionRow]:
        raise AssertionError((scope, query, page))

    def facets(self, scope: Scope, query: DecisionFilter) -> dict[str, dict[str, int]]:
        raise AssertionError((scope, query))

    def decision(self, scope: Scope, digest: str, pod_uid: str = "") -> DecisionRow | None:
        raise AssertionError((scope, digest, pod_uid))

    def life(self, scope: Scope, row: DecisionRow) -> tuple[StoredRecord, ...]:
        raise AssertionError((scope, row))

    def usage(self, scope: Scope, since: str, until: str) -> tuple[UsageRow, ...]:
        raise AssertionError((scope, since, until))

    def overview(self, scope: Scope, since: str) -> OverviewRow:
        raise AssertionError((scope, since))

    def settings(self, digest: str) -> SettingsRecord | None:
        raise AssertionError(digest)

    def snapshot(self, digest: str) -> SnapshotRecord | None:
        raise AssertionError(digest)

    def bound_nodes(self, pod_uids: Collection[str]) -> dict[str, frozenset[str]]:
        raise AssertionError(pod_uids)

    def figures(self) -> StoreFigures:
        return StoreFigures(records=len(self.kept), decisions=0, size=0, oldest="", newest="")

    def export(self, scope: Scope, query: RecordFilter) -> Iterator[StoredRecord]:
        raise AssertionError((scope, query))

    def insert(self, records: Iterable[StoredRecord]) -> int:
        return self.append(list(records))

    def close(self) -> None:
        self.closed = True
