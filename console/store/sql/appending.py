"""Appending: records become rows, and change the rows of the decisions that they are about."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from allocator.audit.record import (
    AdmissionRecord,
    AnyRecord,
    BindRecord,
    HealthRecord,
    SettingsRecord,
    SnapshotRecord,
    WorkloadRecord,
)
from console.records.fold import SubjectKey, absorb, confirm, confirmed_key, subject_key
from console.records.limits import term
from console.records.requester import uid_number
from console.records.rows import StoredRecord
from console.records.state import Subject
from console.records.times import milliseconds
from console.store.body import RecordColumns, packed_body, shared_texts
from console.store.sql.database import Transaction, marks
from console.store.sql.decision_rows import DecisionWriter, StateRow
from console.store.sql.retention import trim_versions
from console.store.sql.schema import KINDS, record_size
from console.store.sql.tally import count_records
from console.store.sql.terms import Terms, next_numbers

_CHUNK: Final = 500
SETTINGS_CONTENT: Final = 1
SNAPSHOT_CONTENT: Final = 2


@dataclass(slots=True)
class NewRecord:
    """A record on its way into the store."""

    record: AnyRecord
    sender: str
    at: int
    key: SubjectKey | None = None
    confirms: SubjectKey | None = None
    seq: int = 0
    columns: RecordColumns = field(default_factory=RecordColumns)


def content_of(record: AnyRecord) -> tuple[str, int] | None:
    """Return the digest of what *record* itself holds, and which kind of content that is."""
    if isinstance(record, SnapshotRecord):
        return record.content_digest, SNAPSHOT_CONTENT
    if isinstance(record, SettingsRecord):
        return record.content_digest, SETTINGS_CONTENT
    return None


class Appending:
    """One batch of records, within one transaction."""

    def __init__(self, transaction: Transaction, terms: Terms) -> None:
        """Write through *transaction*; *terms* knows the numbers of texts."""
        self._transaction = transaction
        self._terms = terms

    def append(self, records: Sequence[StoredRecord]) -> int:
        """Store what is not stored yet; return how many records that were."""
        unknown = self._unknown(records)
        self._latest(unknown)
        new = self._without_known_snapshots(unknown)
        if not new:
            return 0
        first = next_numbers(self._transaction, "record", len(new))
        for seq, one in enumerate(new, first):
            one.seq = seq
            one.key, one.confirms = subject_key(one.record), confirmed_key(one.record)
        self._contents(new)
        self._workloads(new)
        rows = self._fold(new)
        self._insert(new, rows)
        return len(new)

    def _unknown(self, records: Sequence[StoredRecord]) -> list[NewRecord]:
        """Return the records that are not stored, each once, by time.

        Two senders may use one id: an agent that takes that of a webhook's record hides nothing.
        """
        by_key = {(one.record.id, term(one.sender)): one for one in reversed(records)}
        known = self._known_keys(by_key)
        new = [
            NewRecord(stored.record, stored.sender, milliseconds(stored.record.at))
            for key, stored in by_key.items()
            if key not in known
        ]
        new.sort(key=lambda one: (one.at, one.record.id, one.sender))
        return new

    def _known_keys(self, keys: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return which of *keys*, an id and its sender each, are stored."""
        senders = self._terms.numbers(self._transaction, {sender for _, sender in keys})
        names = {number: sender for sender, number in senders.items()}
        ids, known = list(dict.fromkeys(one for one, _ in keys)), set[tuple[str, str]]()
        for start in range(0, len(ids), _CHUNK):
            part = [bytes.fromhex(one) for one in ids[start : start + _CHUNK]]
            sql = f"SELECT id, sender FROM record WHERE id IN ({marks(len(part))})"
            for raw, number in self._transaction.rows(sql, part):
                if number in names:
                    known.add((bytes(raw).hex(), names[number]))
        return known

    def _without_known_snapshots(self, new: list[NewRecord]) -> list[NewRecord]:
        """Leave out snapshots whose content another record brought; it is stored once."""
        digests = {
            one.record.content_digest for one in new if isinstance(one.record, SnapshotRecord)
        }
        if not digests:
            return new
        sql = (
            "SELECT digest FROM content WHERE kind = ? AND seq IS NOT NULL"
            f" AND digest IN ({marks(len(digests))})"
        )
        rows = self._transaction.rows(sql, (SNAPSHOT_CONTENT, *digests))
        seen = {str(digest) for (digest,) in rows}
        kept: list[NewRecord] = []
        for one in new:
            if isinstance(one.record, SnapshotRecord):
                if one.record.content_digest in seen:
                    continue
                seen.add(one.record.content_digest)
            kept.append(one)
        return kept

    def _contents(self, new: Iterable[NewRecord]) -> None:
        """Note where contents are, and when records named them last."""
        used: dict[tuple[str, int], int] = {}
        held: dict[tuple[str, int], int] = {}
        for one in new:
            record = one.record
            content = content_of(record)
            if content is not None:
                held.setdefault(content, one.seq)
                used[content] = max(used.get(content, 0), one.at)
            if isinstance(record, AdmissionRecord | BindRecord):
                for digest, kind in (
                    (record.settings, SETTINGS_CONTENT),
                    (record.snapshot, SNAPSHOT_CONTENT),
                ):
                    if digest:
                        used[digest, kind] = max(used.get((digest, kind), 0), one.at)
        greatest = "CASE WHEN excluded.used > content.used THEN excluded.used ELSE content.used END"
        self._transaction.run_many(
            "INSERT INTO content (digest, kind, seq, used) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (digest, kind) DO UPDATE SET"
            f" seq = COALESCE(content.seq, excluded.seq), used = {greatest}",
            [
                (digest.replace("\0", "\ufffd"), kind, held.get((digest, kind)), at)
                for (digest, kind), at in used.items()
            ],
        )

    def _workloads(self, new: Iterable[NewRecord]) -> None:
        records = [
            (one.at, one.record)
            for one in new
            if isinstance(one.record, WorkloadRecord) and one.record.object.uid
        ]
        if not records:
            return
        users = self._terms.made(self._transaction, [record.user for _, record in records])
        self._transaction.run_many(
            "INSERT INTO workload (uid, at, id, author, template, owner_uid)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (uid, at, id) DO NOTHING",
            [
                (
                    uid_number(record.object.uid),
                    at,
                    bytes.fromhex(record.id),
                    users[record.user],
                    uid_number(record.template),
                    uid_number(record.owners[0].uid if record.owners else ""),
                )
                for at, record in records
            ],
        )
        for uid in {uid_number(record.object.uid) for _, record in records}:
            trim_versions(self._transaction, uid)

    def _fold(self, new: Sequence[NewRecord]) -> dict[SubjectKey, StateRow]:
        """Fold *new* into the states that they are about, and write those."""
        keys = {key for one in new for key in (one.key, one.confirms) if key is not None}
        writer = DecisionWriter(self._transaction, self._terms)
        rows = writer.load(keys)
        for one in new:
            if one.key is not None:
                absorb(rows[one.key].state, one.record, one.at)
            if one.confirms is not None and one.confirms != one.key:
                confirm(rows[one.confirms].state, one.at)
        writer.save(rows.values())
        changed = {
            uid_number(one.record.object.uid): one.at
            for one in reversed(new)  # the earliest stays
            if isinstance(one.record, WorkloadRecord) and one.record.object.uid
        }
        if changed:
            known = {row.number for row in rows.values()}
            writer.find_requesters_again(changed, known=known)
        return rows

    def _insert(self, new: Sequence[NewRecord], rows: dict[SubjectKey, StateRow]) -> None:
        texts = {one.sender for one in new}
        texts.update(one.record.namespace for one in new)
        texts.update(one.record.node for one in new)
        for one in new:
            texts.update(shared_texts(one.record))
        numbers = self._terms.made(self._transaction, texts)
        exact = {text: number for text, number in numbers.items() if term(text) == text}
        inserted = [
            (
                one.seq,
                bytes.fromhex(one.record.id),
                one.at,
                KINDS[kind_of(one.record)],
                numbers[one.record.namespace],
                numbers[one.record.node],
                None if one.key is None else rows[one.key].number,
                numbers[one.sender],
                packed_body(one.record, _columns(one), exact),
            )
            for one in new
        ]
        self._transaction.run_many(
            "INSERT INTO record (seq, id, at, kind, ns, node, decision, sender, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            inserted,
        )
        count_records(
            self._transaction,
            (
                (numbers[one.record.namespace], record_size(row[-1]))
                for one, row in zip(new, inserted, strict=True)
            ),
        )

    def _latest(self, new: Iterable[NewRecord]) -> None:
        """Note the health of GPUs, and when each component was heard of last."""
        seen: dict[str, int] = {}
        for one in new:
            name = one.record.component.value
            seen[name] = max(seen.get(name, 0), one.at)
        self._transaction.run_many(
            "INSERT INTO component (name, at) VALUES (?, ?) ON CONFLICT (name) DO UPDATE"
            " SET at = excluded.at WHERE excluded.at > component.at",
            list(seen.items()),
        )
        health = [
            (
                _clean(one.record.node),
                _clean(one.record.gpu),
                one.at,
                one.record.id,
                int(one.record.healthy),
            )
            for one in new
            if isinstance(one.record, HealthRecord)
        ]
        if health:
            self._transaction.run_many(
                "INSERT INTO gpu (node, gpu, at, id, healthy) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (node, gpu) DO UPDATE SET at = excluded.at, id = excluded.id,"
                " healthy = excluded.healthy WHERE excluded.at > gpu.at"
                " OR (excluded.at = gpu.at AND excluded.id > gpu.id)",
                health,
            )


def kind_of(record: AnyRecord) -> str:
    """Return the kind of *record*."""
    tag = type(record).__struct_config__.tag
    return str(tag)


def _clean(value: object) -> object:
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


def _columns(one: NewRecord) -> RecordColumns:
    """Return what columns say of a record in exactly its own words."""
    record, key = one.record, one.key
    return RecordColumns(
        pod_uid=key.identity if key and key.subject is Subject.POD else "",
        digest=key.identity if key and key.subject is not Subject.POD else "",
        namespace=_exact(record.namespace),
        node=_exact(record.node),
    )


def _exact(text: str) -> str:
    return "" if "\0" in text else text
