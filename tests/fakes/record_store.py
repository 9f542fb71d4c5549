"""A store of records in memory, behind the protocol of the real ones: rows as they were given."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from allocator.audit.record import AdmissionRecord, SettingsRecord, SnapshotRecord
from console.records.query import (
    BadCursorError,
    DecisionFilter,
    PageRequest,
    PodOutcome,
    RecordFilter,
    Scope,
)
from console.records.rows import (
    DecisionRow,
    OverviewRow,
    R,
    RowPage,
    StoredRecord,
    StoreFigures,
    UsageRow,
    WaitingCount,
)
from console.store.store import Retention

FACETS = ("verdict", "reason", "mode", "namespace", "requester")
NODE_KINDS = frozenset({"health", "reconfigured", "settings", "certificate", "snapshot"})


@dataclass(slots=True)
class FakeRecordStore:
    """Decisions and usage are rows of a test; records are kept as they are appended."""

    rows: Sequence[DecisionRow] = ()
    stored: list[StoredRecord] = field(default_factory=list)
    usage_rows: Sequence[UsageRow] = ()

    def append(self, records: Sequence[StoredRecord]) -> int:
        known = {one.record.id for one in self.stored}
        new = [one for one in records if one.record.id not in known]
        self.stored += new
        return len(new)

    def _rows(self, scope: Scope, query: DecisionFilter) -> list[DecisionRow]:
        seen = [
            row if scope.people else replace(row, requester="", user="")
            for row in self.rows
            if scope.namespaces is None or row.namespace in scope.namespaces
        ]
        return [row for row in seen if _matches(row, query)]

    def decisions(
        self, scope: Scope, query: DecisionFilter, page: PageRequest
    ) -> RowPage[DecisionRow]:
        rows = sorted(self._rows(scope, query), key=lambda row: row.last, reverse=True)
        return _page(rows, page)

    def facets(self, scope: Scope, query: DecisionFilter) -> dict[str, dict[str, int]]:
        counted: dict[str, dict[str, int]] = {}
        for name in FACETS:
            others = replace(query, **{name: ""})
            values = (str(getattr(row, name)) for row in self._rows(scope, others))
            counted[name] = dict(Counter(filter(None, values)).most_common(50))
        return counted

    def decision(self, scope: Scope, digest: str, pod_uid: str = "") -> DecisionRow | None:
        rows = self._rows(scope, DecisionFilter())
        return next(
            (row for row in rows if row.digest == digest and pod_uid in ("", row.pod_uid)), None
        )

    def life(self, scope: Scope, row: DecisionRow) -> tuple[StoredRecord, ...]:
        seen = self._records(scope, RecordFilter())
        mine = [
            one
            for one in seen
            if (row.pod_uid and one.record.pod_uid == row.pod_uid)
            or (isinstance(one.record, AdmissionRecord) and one.record.digest == row.digest)
        ]
        return tuple(sorted(mine, key=lambda one: one.record.at)[:500])

    def _records(self, scope: Scope, query: RecordFilter) -> list[StoredRecord]:
        return [one for one in self.stored if _visible(one, scope) and _asked_for(one, query)]

    def records(
        self, scope: Scope, query: RecordFilter, page: PageRequest
    ) -> RowPage[StoredRecord]:
        found = sorted(self._records(scope, query), key=lambda one: one.record.at, reverse=True)
        return _page(found, page)

    def usage(self, scope: Scope, since: str, until: str) -> tuple[UsageRow, ...]:
        del since, until
        return tuple(
            row if scope.people else replace(row, requester="")
            for row in self.usage_rows
            if scope.namespaces is None or row.namespace in scope.namespaces
        )

    def overview(self, scope: Scope, since: str) -> OverviewRow:
        rows = self._rows(scope, DecisionFilter())
        recent = [row for row in rows if row.last >= since]
        waiting = [row for row in rows if row.state is PodOutcome.WAITING]
        reasons = Counter(row.waiting_reason for row in waiting)
        records = sorted(self._records(scope, RecordFilter()), key=lambda one: one.record.at)
        return OverviewRow(
            verdicts=dict(Counter(row.verdict for row in recent)),
            refusals=dict(Counter(row.reason for row in recent if row.verdict == "refused")),
            waiting=tuple(
                WaitingCount(
                    reason=reason,
                    pods=pods,
                    oldest=min(r.waiting_since for r in waiting if r.waiting_reason == reason),
                )
                for reason, pods in reasons.most_common()
            ),
            running=sum(row.state is PodOutcome.RUNNING for row in rows),
            violations=sum(row.violations for row in rows),
            unhealthy=("gpu-a GPU-gpu-a-2",) if scope.cluster and self.rows else (),
            last_record={str(one.record.component): one.record.at for one in records},
        )

    def settings(self, digest: str) -> SettingsRecord | None:
        return next(
            (
                one.record
                for one in self.stored
                if isinstance(one.record, SettingsRecord) and one.record.content_digest == digest
            ),
            None,
        )

    def snapshot(self, digest: str) -> SnapshotRecord | None:
        return next(
            (
                one.record
                for one in self.stored
                if isinstance(one.record, SnapshotRecord) and one.record.content_digest == digest
            ),
            None,
        )

    def bound_nodes(self, pod_uids: Collection[str]) -> dict[str, frozenset[str]]:
        raise AssertionError(pod_uids)

    def figures(self) -> StoreFigures:
        times = sorted(one.record.at for one in self.stored) or [""]
        return StoreFigures(
            records=len(self.stored),
            decisions=len(self.rows),
            size=4096 * len(self.stored),
            oldest=times[0],
            newest=times[-1],
        )

    def prune(self, retention: Retention, now: str) -> int:
        del retention, now
        return 0

    def export(self, scope: Scope, query: RecordFilter) -> Iterator[StoredRecord]:
        yield from sorted(self._records(scope, query), key=lambda one: one.record.at)

    def insert(self, records: Iterable[StoredRecord]) -> int:
        return self.append(list(records))

    def close(self) -> None:
        """Nothing is open."""


def _page(rows: Sequence[R], page: PageRequest) -> RowPage[R]:
    if page.after and not page.after.isdecimal():
        raise BadCursorError(page.after)
    begin = int(page.after or 0)
    end = begin + page.size
    return RowPage(rows=tuple(rows[begin:end]), after=str(end) if end < len(rows) else "")


def _matches(row: DecisionRow, query: DecisionFilter) -> bool:
    owner = "" if row.owner is None else row.owner.name
    pairs = (
        (query.namespace, row.namespace),
        (query.owner, owner),
        (query.requester, row.requester),
        (query.verdict, row.verdict),
        (query.reason, row.reason),
        (query.mode, row.mode),
        (query.digest, row.digest),
        (query.node, row.node),
        (query.state, str(row.state)),
    )
    return (
        all(not wanted or wanted == value for wanted, value in pairs)
        and (not query.pod or row.pod.startswith(query.pod))
        and (not query.since or row.last >= query.since)
        and (not query.until or row.last < query.until)
    )


def _visible(stored: StoredRecord, scope: Scope) -> bool:
    record = stored.record
    if not record.namespace or type(record).__struct_config__.tag in NODE_KINDS:
        return scope.cluster
    return scope.namespaces is None or record.namespace in scope.namespaces


def _asked_for(stored: StoredRecord, query: RecordFilter) -> bool:
    record = stored.record
    pairs = (
        (query.namespace, record.namespace),
        (query.pod, record.pod),
        (query.pod_uid, record.pod_uid),
        (query.node, record.node),
        (query.digest, record.digest),
    )
    kind = str(type(record).__struct_config__.tag)
    return (
        (not query.kinds or kind in query.kinds)
        and all(not wanted or wanted == value for wanted, value in pairs)
        and (not query.since or record.at >= query.since)
        and (not query.until or record.at < query.until)
    )
