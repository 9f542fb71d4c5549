"""Sums over decisions and records: usage, the overview, what the store holds."""

from collections.abc import Sequence
from typing import Final

from console.records.query import DecisionFilter, PodOutcome, Scope
from console.records.rows import OverviewRow, StoreFigures, UsageRow, WaitingCount
from console.records.times import rfc3339
from console.store.sql.conditions import (
    Conditions,
    decision_conditions,
    moment,
    namespace_numbers,
    scope_of_decisions,
)
from console.store.sql.database import Transaction, marks
from console.store.sql.schema import KINDS
from console.store.sql.terms import Terms

_HOUR: Final = 3_600_000  # milliseconds
_MOST_ILL: Final = 1000
_MOST_REASONS: Final = 50


class ReportReader:
    """Reads sums within one transaction."""

    def __init__(self, transaction: Transaction, terms: Terms) -> None:
        """Work within *transaction*; *terms* knows the numbers of texts."""
        self._transaction = transaction
        self._terms = terms

    def overview(self, scope: Scope, since: str) -> OverviewRow:
        """Return what is the matter now, and what was decided since a time."""
        found = Conditions(sql=["listed = 1"])
        scope_of_decisions(self._transaction, self._terms, scope=scope, found=found)
        health = self._unhealthy() if scope.cluster else ()
        seen = self._last_records() if scope.cluster else {}
        if found.impossible:
            return OverviewRow(unhealthy=health, last_record=seen)
        lately = Conditions(sql=[*found.sql], values=[*found.values])
        lately.add("last >= ?", moment("since", since) if since else 0)
        return OverviewRow(
            verdicts=self._counts("verdict", lately),
            refusals=self._counts("reason", lately),
            waiting=self._waiting(found),
            running=self._running(found),
            violations=self._violations(scope, since),
            unhealthy=health,
            last_record=seen,
        )

    def _counts(self, column: str, found: Conditions) -> dict[str, int]:
        rows = self._transaction.rows(
            f"SELECT {column}, count(*) FROM decision INDEXED BY decision_last"
            f" WHERE {found.where} AND {column} > 0 GROUP BY {column} ORDER BY 2 DESC, 1 LIMIT ?",
            (*found.values, _MOST_REASONS),
        )
        texts = self._terms.texts(self._transaction, [number for number, _ in rows])
        return {texts[number]: int(count) for number, count in rows}

    def _waiting(self, found: Conditions) -> tuple[WaitingCount, ...]:
        numbers = self._terms.numbers(self._transaction, [PodOutcome.WAITING.value])
        if not numbers:
            return ()
        rows = self._transaction.rows(
            "SELECT waiting, count(*), min(waiting_since) FROM decision"
            f" INDEXED BY decision_state WHERE {found.where} AND state = ?"
            " GROUP BY waiting ORDER BY 2 DESC, 1 LIMIT ?",
            (*found.values, *numbers.values(), _MOST_REASONS),
        )
        texts = self._terms.texts(self._transaction, [reason for reason, _, _ in rows])
        return tuple(
            WaitingCount(reason=texts[reason], pods=int(pods), oldest=rfc3339(oldest))
            for reason, pods, oldest in rows
        )

    def _running(self, found: Conditions) -> int:
        numbers = self._terms.numbers(self._transaction, [PodOutcome.RUNNING.value])
        if not numbers:
            return 0
        [[count]] = self._transaction.rows(
            "SELECT count(*) FROM decision INDEXED BY decision_state"
            f" WHERE {found.where} AND state = ?",
            (*found.values, *numbers.values()),
        )
        return int(count)

    def _violations(self, scope: Scope, since: str) -> int:
        found = Conditions()
        found.add("kind = ? AND kind >= 32", KINDS["violation"])
        found.add("at >= ?", moment("since", since) if since else 0)
        if scope.namespaces is not None:
            numbers = namespace_numbers(self._transaction, self._terms, scope)
            if not numbers:
                return 0
            found.add(f"ns IN ({marks(len(numbers))})", *numbers)
        elif not scope.cluster:
            found.add("ns > 0")
        sql = f"SELECT count(*) FROM record INDEXED BY record_kind WHERE {found.where}"
        [[count]] = self._transaction.rows(sql, found.values)
        return int(count)

    def _unhealthy(self) -> tuple[str, ...]:
        rows = self._transaction.rows(
            "SELECT node, gpu FROM gpu WHERE healthy = 0 ORDER BY node, gpu LIMIT ?", (_MOST_ILL,)
        )
        return tuple(f"{node} {gpu}" for node, gpu in rows)

    def _last_records(self) -> dict[str, str]:
        rows = self._transaction.rows("SELECT name, at FROM component ORDER BY name")
        return {str(name): rfc3339(at) for name, at in rows}

    def usage(self, scope: Scope, since: str, until: str) -> tuple[UsageRow, ...]:
        """Return what was promised between two times, by namespace and requester."""
        found = decision_conditions(
            self._transaction, self._terms, scope=scope, query=DecisionFilter()
        )
        if found.impossible:
            return ()
        begin, end = moment("since", since), moment("until", until)
        person = "requester" if scope.people else "0"
        names = (PodOutcome.REFUSED, PodOutcome.BOUND, PodOutcome.RUNNING)
        numbers = self._terms.numbers(self._transaction, [name.value for name in names])
        refused, bound, running = (numbers.get(name.value, -1) for name in names)
        # The greatest of two and the least of two, in the words of both engines.
        left = "CASE WHEN bound > ? THEN bound ELSE ? END"
        right = "CASE WHEN over IS NULL OR over > ? THEN ? ELSE over END"
        span = f"(CASE WHEN bound IS NULL OR {right} <= {left} THEN 0 ELSE {right} - {left} END)"
        within = (end, end, begin, begin, end, end, begin, begin)
        rows = self._transaction.rows(
            f"SELECT ns, {person} AS person,"
            f" sum(CASE WHEN last >= ? AND last < ? AND state <> ? THEN 1 ELSE 0 END),"
            f" sum(CASE WHEN last >= ? AND last < ? AND state = ? THEN 1 ELSE 0 END),"
            f" sum(CASE WHEN state IN (?, ?) THEN 1 ELSE 0 END),"
            f" sum(CASE WHEN state IN (?, ?) THEN mib ELSE 0 END),"
            f" sum(CASE WHEN state IN (?, ?) THEN cores ELSE 0 END),"
            f" sum(mib * {span}), sum(cores * {span})"
            f" FROM decision WHERE {found.where}"
            f" AND (last >= ? OR over >= ? OR (over IS NULL AND bound IS NOT NULL)) AND last < ?"
            f" GROUP BY 1, 2",
            (
                *(begin, end, refused, begin, end, refused),
                *(bound, running, bound, running, bound, running),
                *within, *within, *found.values, begin, begin, end,
            ),
        )  # fmt: skip
        return self._usage_rows(rows)

    def _usage_rows(self, rows: Sequence[tuple[int, ...]]) -> tuple[UsageRow, ...]:
        texts = self._terms.texts(self._transaction, {n for row in rows for n in row[:2]})
        found = [
            UsageRow(
                namespace=texts[ns],
                requester=texts[person],
                admitted=int(admitted),
                refused=int(refused),
                running=int(running),
                promised_mib=int(mib),
                promised_cores_percent=int(cores),
                mib_hours=float(mib_time) / _HOUR,
                core_hours=float(core_time) / _HOUR / 100,
            )
            for ns, person, admitted, refused, running, mib, cores, mib_time, core_time in rows
        ]
        return tuple(sorted(found, key=lambda row: (row.namespace, row.requester)))

    def figures(self, size: int) -> StoreFigures:
        """Return how much is stored; *size* is what the database takes, in bytes."""
        [[records, oldest, newest]] = self._transaction.rows(
            "SELECT (SELECT value FROM counter WHERE name = 'records'),"
            " (SELECT min(at) FROM record), (SELECT max(at) FROM record)"
        )
        [[decisions]] = self._transaction.rows("SELECT value FROM counter WHERE name = 'decisions'")
        return StoreFigures(
            records=int(records), decisions=int(decisions), size=size,
            oldest=rfc3339(oldest), newest=rfc3339(newest),
        )  # fmt: skip
