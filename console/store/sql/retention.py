"""Retention: what is too old or too much is removed, a bounded part in each transaction."""

from collections.abc import Sequence
from typing import Any, Final

from console.records.fold import SubjectKey
from console.records.query import PodOutcome
from console.records.requester import WorkloadVersion, versions_to_keep
from console.records.state import Subject
from console.records.times import milliseconds
from console.store.sql.database import Row, Transaction, marks
from console.store.sql.decision_rows import COLUMNS, DIGEST_PLACE
from console.store.sql.schema import RECORD_SIZE
from console.store.sql.tally import Tally, count_removed_records, dominant_namespace
from console.store.sql.terms import Terms
from console.store.store import Retention

BATCH: Final = 2000  # records in one transaction, which then takes less than a second
MOST_VERSIONS: Final = 400  # of one workload
_CHUNK: Final = 500
_YEAR: Final = 366 * 24 * 3600 * 1000  # milliseconds that a pod may run on without any record


class Pruning:
    """Removes a part within one transaction."""

    def __init__(self, transaction: Transaction, terms: Terms) -> None:
        """Work within *transaction*; *terms* knows the numbers of texts."""
        self._transaction = transaction
        self._terms = terms

    def prune(self, retention: Retention, now: str, used: int) -> int:
        """Remove up to ``BATCH`` records and decisions; return how many rows that were.

        *used* is how many bytes the database takes. Beyond the size of *retention* the oldest
        records go, whatever their age: those of one namespace where it has more than half of all
        bytes, so that a tenant who floods the store pushes out no others.
        """
        cutoff = milliseconds(now) - int(retention.age.total_seconds() * 1000)
        gone = self._records(cutoff)
        if not gone and used > retention.size:
            if gone := self._surplus():
                return gone
            cutoff = max(cutoff, self._oldest_batch())
            gone = self._records(cutoff)
        if gone < BATCH:
            gone += self._ancient(cutoff - _YEAR)
            self._transaction.run("DELETE FROM content WHERE used < ?", (cutoff,))
            self._workloads(cutoff)
        return gone

    def _oldest_batch(self) -> int:
        """Return the time before which the oldest batch of records lies."""
        sql = "SELECT max(at) FROM (SELECT at FROM record ORDER BY at, seq LIMIT ?) AS oldest"
        [[at]] = self._transaction.rows(sql, (BATCH,))
        return 0 if at is None else int(at) + 1

    def _records(self, cutoff: int) -> int:
        """Remove records before *cutoff*, but for contents that a later record names."""
        rows = self._transaction.rows(
            f"SELECT seq, decision, ns, {RECORD_SIZE} FROM record WHERE at < ?"
            " AND seq NOT IN (SELECT seq FROM content WHERE seq IS NOT NULL AND used >= ?)"
            " ORDER BY at, seq LIMIT ?",
            (cutoff, cutoff, BATCH),
        )
        return self._delete_records(rows, cutoff)

    def _surplus(self) -> int:
        """Remove the oldest records of a namespace that has more than half of the bytes.

        There may be none. Settings and snapshots, which decisions rest on, are of no namespace.
        """
        namespace = dominant_namespace(self._transaction)
        if namespace is None:
            return 0
        rows = self._transaction.rows(
            f"SELECT seq, decision, ns, {RECORD_SIZE}, at FROM record WHERE ns > 0 AND ns = ?"
            " ORDER BY at, seq LIMIT ?",
            (namespace, BATCH),
        )
        return self._delete_records([row[:4] for row in rows], rows[-1][4] + 1 if rows else 0)

    def _delete_records(self, rows: Sequence[Row], cutoff: int) -> int:
        """Remove *rows*, each the number of a record, its decision, namespace and size."""
        if not rows:
            return 0
        self._transaction.run_many("DELETE FROM record WHERE seq = ?", [(row[0],) for row in rows])
        count_removed_records(self._transaction, ((ns, size) for _, _, ns, size in rows))
        numbers = {number for _, number, _, _ in rows if number is not None}
        self._decisions(sorted(numbers), cutoff)
        return len(rows)

    def _decisions(self, numbers: Sequence[int], cutoff: int) -> None:
        """Remove those decisions that no record is left of, but for pods that hold GPUs."""
        for start in range(0, len(numbers), _CHUNK):
            part = numbers[start : start + _CHUNK]
            rows = self._without_records(f"id IN ({marks(len(part))})", part, cutoff)
            self._remove(rows, cutoff)

    def _without_records(self, where: str, values: Sequence[Any], cutoff: int) -> list[Row]:
        """Return the decisions of *where* that no record is left of, but for held ones."""
        held = self._held()
        return self._transaction.rows(
            f"SELECT {COLUMNS} FROM decision WHERE {where} AND active < ?"
            f" AND state NOT IN ({marks(len(held))}) AND NOT EXISTS"
            " (SELECT 1 FROM record WHERE record.decision = decision.id)",
            (*values, cutoff, *held),
        )

    def _ancient(self, cutoff: int) -> int:
        """Remove pods that were bound before *cutoff* and whose end no record tells."""
        held = self._held()
        rows = self._transaction.rows(
            f"SELECT {COLUMNS} FROM decision WHERE listed = 1 AND state IN ({marks(len(held))})"
            " AND last < ? AND active < ? LIMIT ?",
            (*held, cutoff, cutoff, BATCH),
        )
        self._remove(rows, cutoff)
        return len(rows)

    def _held(self) -> list[int]:
        names = [PodOutcome.BOUND.value, PodOutcome.RUNNING.value]
        return list(self._terms.numbers(self._transaction, names).values()) or [-1]

    def _remove(self, rows: Sequence[Row], cutoff: int) -> None:
        """Remove *rows*, and what their pods asked for where no record is left of that either.

        A request is noted again by each pod that comes of it, so it may outlast its own records.
        """
        self._delete(rows)
        digests = dict.fromkeys(str(row[DIGEST_PLACE]) for row in rows if row[DIGEST_PLACE])
        keys = [SubjectKey(Subject.PENDING, digest).database_key for digest in digests]
        for start in range(0, len(keys), _CHUNK):
            part = keys[start : start + _CHUNK]
            self._delete(self._without_records(f"key IN ({marks(len(part))})", part, cutoff))

    def _delete(self, rows: Sequence[Row]) -> None:
        self._transaction.run_many("DELETE FROM decision WHERE id = ?", [(row[0],) for row in rows])
        tally = Tally()
        for row in rows:
            tally.replace(row, None)
        tally.write(self._transaction)

    def _workloads(self, cutoff: int) -> None:
        """Keep of each workload what tells who wrote its template, then and since."""
        uids = self._transaction.rows(
            "SELECT uid FROM workload WHERE at < ? GROUP BY uid HAVING count(*) > 2 LIMIT ?",
            (cutoff, BATCH // 10),
        )
        for (uid,) in uids:
            _forget_versions(self._transaction, uid, cutoff)
        self._transaction.run(
            "DELETE FROM workload WHERE at < ? AND NOT EXISTS (SELECT 1 FROM workload AS later"
            " WHERE later.uid = workload.uid AND later.at >= ?)",
            (cutoff - _YEAR, cutoff - _YEAR),
        )


def trim_versions(transaction: Transaction, uid: int) -> None:
    """Forget versions of a workload that has over ``MOST_VERSIONS``, but for the latest half.

    All of them are read for each pod below it, and a tenant makes as many as they like. *uid* is
    its number.
    """
    sql = "SELECT at FROM workload WHERE uid = ? ORDER BY at DESC, id DESC LIMIT 1 OFFSET ?"
    if transaction.rows(sql, (uid, MOST_VERSIONS)):
        [[cutoff]] = transaction.rows(sql, (uid, MOST_VERSIONS // 2))
        _forget_versions(transaction, uid, int(cutoff))


def _forget_versions(transaction: Transaction, uid: int, cutoff: int) -> None:
    """Forget the versions of a workload that tell nothing about templates since *cutoff*."""
    rows = transaction.rows(
        "SELECT at, id, author, template, owner_uid FROM workload WHERE uid = ?", (uid,)
    )
    versions = sorted(WorkloadVersion(row[0], bytes(row[1]), *row[2:]) for row in rows)
    kept = versions_to_keep(versions, cutoff)
    transaction.run_many(
        "DELETE FROM workload WHERE uid = ? AND at = ? AND id = ?",
        [(uid, one.at, one.id) for one in versions if one not in kept],
    )
