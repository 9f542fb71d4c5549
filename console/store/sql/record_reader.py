"""Lists of records, and the life of one decision."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from allocator.audit.record import (
    AdmissionRecord,
    AnyRecord,
    BindRecord,
    SettingsRecord,
    WorkloadRecord,
)
from console.records.fold import SubjectKey, parse_key
from console.records.limits import term
from console.records.own_reviews import LATER_MS, LONGEST_MS, own_reviews
from console.records.query import LARGEST_PAGE, PageRequest, RecordFilter, Scope
from console.records.rows import DecisionRow, RowPage, StoredRecord
from console.records.state import Subject
from console.records.times import milliseconds, rfc3339
from console.store.body import RecordColumns, unpacked_body
from console.store.cursor import Place, opened_cursor, sealed_cursor
from console.store.packing import BadBodyError
from console.store.sql.conditions import Conditions, record_conditions
from console.store.sql.database import Row, Transaction, marks
from console.store.sql.schema import FIRST_RARE, KINDS
from console.store.sql.terms import Terms
from console.store.store import StoreError

MOST_OF_A_LIFE: Final = 500
_HALF: Final = MOST_OF_A_LIFE // 2
_CURSOR: Final = "records"
_MOST_PODS: Final = 5000  # whose records one list of a name or a digest holds
_BATCH: Final = 1000
_LATEST_FIRST: Final = "ORDER BY at DESC, seq DESC"
_EARLIEST_FIRST: Final = "ORDER BY at, seq"
_CHUNK: Final = 500
_RARE: Final = 20_000  # records; so few are sorted faster than all are searched
_BINDS: Final = (KINDS["bind"], KINDS["late-commit"])
_EARLIER: Final = 2  # reviews of a pod before its name and uid were known
_MOST_NEAR: Final = 256  # reviews of any pod that are searched for those of one
_LOAD: Final = (
    "SELECT r.seq, r.id, r.at, r.ns, r.node, r.sender, d.key, r.body"
    " FROM record AS r LEFT JOIN decision AS d ON d.id = r.decision WHERE r.seq IN"
)


class RecordReader:
    """Reads records within one transaction."""

    def __init__(self, transaction: Transaction, terms: Terms, cursor_key: bytes) -> None:
        """Work within *transaction*; cursors are sealed with *cursor_key*."""
        self._transaction = transaction
        self._terms = terms
        self._cursor_key = cursor_key

    def page(self, scope: Scope, query: RecordFilter, page: PageRequest) -> RowPage[StoredRecord]:
        """Return one page, the latest first; raises :class:`BadCursorError`."""
        place = opened_cursor(self._cursor_key, _CURSOR, page.after)
        found = self._conditions(scope, query)
        if found.impossible:
            return RowPage(rows=())
        size = min(max(page.size, 1), LARGEST_PAGE)
        if place is not None:
            found.add("(at, seq) < (?, ?)", *place)
        places = self._places(found, _LATEST_FIRST, size + 1)
        after = ""
        if len(places) > size:
            after = sealed_cursor(self._cursor_key, _CURSOR, places[size - 1])
        return RowPage(rows=tuple(self._stored(places[:size], scope)), after=after)

    def batch(
        self, scope: Scope, query: RecordFilter, after: Place | None
    ) -> tuple[list[StoredRecord], Place | None]:
        """Return records after a place, the earliest first, and the place of the last of them."""
        found = self._conditions(scope, query)
        if found.impossible:
            return [], None
        if after is not None:
            found.add("(at, seq) > (?, ?)", *after)
        places = self._places(found, _EARLIEST_FIRST, _BATCH)
        return list(self._stored(places, scope)), places[-1] if places else None

    def life(self, scope: Scope, row: DecisionRow) -> tuple[StoredRecord, ...]:
        """Return the records of a decision and its pod, the earliest first.

        Of more than ``MOST_OF_A_LIFE`` the first and the last ones are returned.
        """
        key, pending = _keys_of(row)
        places = self._places_of(scope, key, _EARLIEST_FIRST, most=MOST_OF_A_LIFE + 1)
        if len(places) > MOST_OF_A_LIFE:
            last = self._places_of(scope, key, _LATEST_FIRST, most=_HALF)
            places = [*places[:_HALF], *reversed(last)]
        if pending is not None and row.first:
            places += self._own_reviews(scope, row, pending)
            places.sort()
        return tuple(self._stored(places, scope))

    def _own_reviews(self, scope: Scope, row: DecisionRow, pending: SubjectKey) -> list[Place]:
        """Return the places of the reviews of a pod before its name and uid were known.

        Pods of one template share a digest, so these are told apart from those of its siblings.
        """
        first = milliseconds(row.first)
        near = [
            *self._reviews_of(scope, pending, (first - LONGEST_MS, first), order=_LATEST_FIRST),
            *self._reviews_of(scope, pending, (first + 1, first + LATER_MS), order=_EARLIEST_FIRST),
        ]
        reviews = [
            (place, stored.record)
            for place, stored in zip(near, self._stored(near, None), strict=True)
            if isinstance(stored.record, AdmissionRecord)
        ]
        own = own_reviews((record for _, record in reviews), row.pod_uid)
        if own:
            return [place for place, record in reviews if record.id in own]
        # Of a pod that was confirmed late, or by a replica whose clock differs.
        return self._places_of(scope, pending, _LATEST_FIRST, most=_EARLIER, until=first)

    def _reviews_of(
        self, scope: Scope, pending: SubjectKey, period: tuple[int, int], *, order: str
    ) -> list[Place]:
        """Return the places of the reviews of a request in a short *period*, in milliseconds.

        Only so many reviews of whatever pods are searched. A request whose pod is known is not
        found by its digest any more, only by its key.
        """
        found = record_conditions(self._transaction, self._terms, scope=scope, query=RecordFilter())
        if found.impossible:
            return []
        found.add("kind = ? AND at BETWEEN ? AND ?", KINDS["admission"], *period)
        inner = (
            f"SELECT at, seq, decision FROM record INDEXED BY record_at WHERE {found.where}"
            f" {order} LIMIT ?"
        )
        sql = (
            f"SELECT r.at, r.seq FROM ({inner}) AS r JOIN decision AS d ON d.id = r.decision"
            " WHERE d.digest = ? OR d.key = ?"
        )
        values = (*found.values, _MOST_NEAR, term(pending.identity), pending.database_key)
        rows = self._transaction.rows(sql, values)
        return [(at, seq) for at, seq in rows]

    def _places_of(
        self, scope: Scope, key: SubjectKey, order: str, *, most: int, until: int | None = None
    ) -> list[Place]:
        """Return the places of the records of one decision."""
        found = record_conditions(self._transaction, self._terms, scope=scope, query=RecordFilter())
        if found.impossible:
            return []
        found.index = "INDEXED BY record_decision"
        found.add("decision = (SELECT id FROM decision WHERE key = ?)", key.database_key)
        if until is not None:
            found.add("at <= ?", until)
        return self._places(found, order, most)

    def content(self, digest: str, kind: int) -> AnyRecord | None:
        """Return the record that holds a content, by its digest."""
        sql = "SELECT seq FROM content WHERE digest = ? AND kind = ? AND seq IS NOT NULL"
        rows = self._transaction.rows(sql, (digest.replace("\0", "\ufffd"), kind))
        found = list(self._stored([(0, seq) for (seq,) in rows], None))
        return found[0].record if found else None

    def _conditions(self, scope: Scope, query: RecordFilter) -> Conditions:
        found = record_conditions(self._transaction, self._terms, scope=scope, query=query)
        if query.pod_uid or query.digest or query.pod:
            numbers = self._numbers_of(query)
            if not numbers:
                found.impossible = True
            else:
                found.add(f"decision IN ({marks(len(numbers))})", *numbers)
        found.index = self._index(found, query)
        return found

    def _index(self, found: Conditions, query: RecordFilter) -> str:
        """Return which index to read: the one that leaves the fewest records."""
        if query.pod_uid or query.digest or query.pod:
            return "INDEXED BY record_decision"
        if query.kinds and all(KINDS[kind] >= FIRST_RARE for kind in query.kinds):
            found.add(f"kind >= {FIRST_RARE}")
            return "INDEXED BY record_kind"
        for column in ("node", "ns"):
            number = found.equal.get(column)
            if number is not None and self._has_few(column, [number]):
                return f"INDEXED BY record_{column}"
        for column in ("node", "ns"):
            if column in found.equal:
                return f"INDEXED BY record_{column}"
        if found.namespaces and self._has_few("ns", found.namespaces):
            return "INDEXED BY record_ns"
        return "INDEXED BY record_at"

    def _has_few(self, column: str, numbers: Sequence[int]) -> bool:
        sql = (
            f"SELECT count(*) FROM (SELECT 1 FROM record INDEXED BY record_{column}"
            f" WHERE {column} > 0 AND {column} IN ({marks(len(numbers))}) LIMIT ?) AS few"
        )
        [[count]] = self._transaction.rows(sql, (*numbers, _RARE))
        return bool(count < _RARE)

    def _numbers_of(self, query: RecordFilter) -> list[int]:
        """Return the numbers of the decisions that a pod, its uid or a digest names."""
        sql, values = ["1 = 1"], list[object]()
        if query.pod_uid:
            sql.append("key = ?")
            values.append(SubjectKey(Subject.POD, query.pod_uid).database_key)
        if query.digest:
            sql.append("digest = ? AND digest <> ''")
            values.append(term(query.digest))
        if query.pod:
            sql.append("pod = ? AND pod <> ''")
            values.append(term(query.pod))
        rows = self._transaction.rows(
            f"SELECT id FROM decision WHERE {' AND '.join(sql)} ORDER BY last DESC LIMIT ?",
            (*values, _MOST_PODS),
        )
        return [number for (number,) in rows]

    def bound_nodes(self, pod_uids: Collection[str]) -> dict[str, frozenset[str]]:
        """Return the nodes that binds of pods name, by uid; a pod without a bind is left out."""
        keys = {SubjectKey(Subject.POD, uid).database_key: uid for uid in pod_uids}
        nodes: dict[str, set[int]] = {}
        for start in range(0, len(keys), _CHUNK):
            part = list(keys)[start : start + _CHUNK]
            sql = (
                "SELECT DISTINCT d.key, r.node FROM decision AS d JOIN record AS r"
                " ON r.decision = d.id WHERE r.node > 0 AND r.kind IN (?, ?)"
                f" AND d.key IN ({marks(len(part))})"
            )
            for key, node in self._transaction.rows(sql, (*_BINDS, *part)):
                nodes.setdefault(keys[bytes(key)], set()).add(node)
        texts = self._terms.texts(self._transaction, set().union(*nodes.values()))
        return {uid: frozenset(texts[node] for node in found) for uid, found in nodes.items()}

    def _places(self, found: Conditions, order: str, most: int) -> list[Place]:
        sql = f"SELECT at, seq FROM record {found.index} WHERE {found.where} {order} LIMIT ?"
        return [(at, seq) for at, seq in self._transaction.rows(sql, (*found.values, most))]

    def _stored(self, places: Sequence[Place], scope: Scope | None) -> Iterator[StoredRecord]:
        """Yield the records at *places* in that order."""
        for start in range(0, len(places), _CHUNK):
            wanted = [seq for _, seq in places[start : start + _CHUNK]]
            rows = self._transaction.rows(f"{_LOAD} ({marks(len(wanted))})", wanted)
            by_seq = {row[0]: row for row in rows}
            numbers = {number for row in rows for number in row[3:6]}
            texts = self._terms.texts(self._transaction, numbers)
            for row in (by_seq[seq] for seq in wanted if seq in by_seq):
                stored = self._stored_record(row, texts)
                hidden = scope is not None and not scope.people
                yield _without_people(stored) if hidden else stored

    def _stored_record(self, row: Row, texts: Mapping[int, str]) -> StoredRecord:
        """Return a row as a record; raises :class:`StoreError` where it is damaged."""
        _, raw, at, ns, node, sender, key, body = row
        try:
            record = unpacked_body(
                bytes(body),
                _columns(bytes(key) if key else b"", texts[ns], texts[node]),
                record_id=bytes(raw).hex(),
                at=rfc3339(at),
                text=lambda number: self._terms.texts(self._transaction, [number])[number],
            )
        except BadBodyError as error:
            raise StoreError(f"{error}; the database is damaged, restore a backup") from error
        return StoredRecord(record=record, sender=texts[sender])


def _keys_of(row: DecisionRow) -> tuple[SubjectKey, SubjectKey | None]:
    """Return the key of a row's decision, and of the pending request that a pod began as."""
    if row.pod_uid:
        pending = SubjectKey(Subject.PENDING, row.digest) if row.digest else None
        return SubjectKey(Subject.POD, row.pod_uid), pending
    subject = {"refused": Subject.REFUSED, "error": Subject.FAILED}
    return SubjectKey(subject.get(row.verdict, Subject.PENDING), row.digest), None


def _columns(key: bytes, namespace: str, node: str) -> RecordColumns:
    """Return what columns say of a record, as the writer knew it."""
    if not key:
        return RecordColumns(namespace=namespace, node=node)
    parsed = parse_key(key)
    pod = parsed.subject is Subject.POD
    return RecordColumns(
        pod_uid=parsed.identity if pod else "",
        digest="" if pod else parsed.identity,
        namespace=namespace,
        node=node,
    )


def _without_people(stored: StoredRecord) -> StoredRecord:
    """Return *stored* without names of persons."""
    record: AnyRecord = stored.record
    match record:
        case AdmissionRecord() | BindRecord() | WorkloadRecord():
            return StoredRecord(record=replace(record, user="", groups=()), sender=stored.sender)
        case SettingsRecord():
            return StoredRecord(record=replace(record, author=""), sender=stored.sender)
        case _:
            return stored
