"""Sums over decisions and records: usage, the overview, what the store holds."""

from collections.abc import Mapping, Sequence
from typing import Final

from console.records.query import PodOutcome, Scope
from console.records.rows import OverviewRow, StoreFigures, UsageRow, WaitingCount
from console.records.times import rfc3339
from console.store.sql.conditions import (
    Conditions,
    moment,
    namespace_numbers,
    scope_of_decisions,
)
from console.store.sql.database import Transaction, marks
from console.store.sql.schema import KINDS
from console.store.sql.tally import tallied
from console.store.sql.terms import Terms

_HOUR: Final = 3_600_000  # milliseconds
_MOST_ILL: Final = 1000
_MOST_REASONS: Final = 50


# How long a pod held its grants within a period, in milliseconds: the lesser end less the greater
# begin, in the words of both engines.
_SPAN: Final = (
    "CASE WHEN bound IS NULL OR bound >= ? OR over <= ? THEN 0 ELSE"
    " (CASE WHEN over IS NULL OR over > ? THEN ? ELSE over END)"
    " - (CASE WHEN bound < ? THEN ? ELSE bound END) END"
)
_SUMS: Final = (
    "sum(CASE WHEN last >= ? AND last < ? AND state <> ? THEN 1 ELSE 0 END),"
    " sum(CASE WHEN last >= ? AND last < ? AND state = ? THEN 1 ELSE 0 END),"
    " sum(CASE WHEN state IN (?, ?) THEN 1 ELSE 0 END),"
    " sum(CASE WHEN state IN (?, ?) THEN mib ELSE 0 END),"
    " sum(CASE WHEN state IN (?, ?) THEN cores ELSE 0 END),"
    f" sum(mib * ({_SPAN})), sum(cores * ({_SPAN}))"
)


class ReportReader:
    """Reads sums within one transaction."""

    def __init__(self, transaction: Transaction, terms: Terms, now: int) -> None:
        """Work within *transaction*; *terms* knows the numbers of texts.

        *now* is the time in milliseconds since 1970.
        """
        self._transaction = transaction
        self._terms = terms
        self._now = now

    def overview(self, scope: Scope, since: str) -> OverviewRow:
        """Return what is the matter now, and what was decided since a time."""
        found = Conditions(sql=["listed = 1"])
        scope_of_decisions(self._transaction, self._terms, scope=scope, found=found)
        health = self._unhealthy() if scope.cluster else ()
        seen = self._last_records() if scope.cluster else {}
        if found.impossible:
            return OverviewRow(unhealthy=health, last_record=seen)
        begin = moment("since", since) if since else 0
        return OverviewRow(
            verdicts=self._counts("verdict", found, begin),
            refusals=self._counts("reason", found, begin),
            waiting=self._waiting(found),
            running=self._running(found),
            violations=self._violations(scope, since),
            unhealthy=health,
            last_record=seen,
        )

    def _counts(self, column: str, found: Conditions, since: int) -> dict[str, int]:
        counts = tallied(self._transaction, found, column=column, period=(since, None))
        texts = self._terms.texts(self._transaction, counts)
        most = sorted(counts.items(), key=lambda pair: (-pair[1], texts[pair[0]]))
        return {texts[number]: count for number, count in most[:_MOST_REASONS]}

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
        running = self._terms.numbers(self._transaction, [PodOutcome.RUNNING.value])
        counts = tallied(self._transaction, found, column="state", period=(None, None))
        return sum(counts[number] for number in running.values())

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
        found = Conditions(sql=["listed = 1"])
        scope_of_decisions(self._transaction, self._terms, scope=scope, found=found)
        if found.impossible:
            return ()
        begin, end = moment("since", since), min(moment("until", until), self._now)
        names = (PodOutcome.BOUND, PodOutcome.RUNNING)
        numbers = self._terms.numbers(self._transaction, [name.value for name in names])
        held = tuple(numbers.get(name.value, -1) for name in names)
        # Decided in the period, or before and over since it began, or before and not over yet.
        parts = (
            ("last", "last >= ? AND last < ?", (begin, end)),
            ("over", "over >= ? AND last < ?", (begin, begin)),
            ("state", "state IN (?, ?) AND over IS NULL AND last < ?", (*held, begin)),
        )
        totals: dict[tuple[int, int], Sequence[int]] = {}
        for index, condition, values in parts:
            part = Conditions(sql=[*found.sql], values=[*found.values])
            part.add(condition, *values)
            person = "requester" if scope.people else "0"
            sql = f"SELECT ns, {person}, {_SUMS} FROM decision INDEXED BY decision_{index}"
            rows = self._transaction.rows(
                f"{sql} WHERE {part.where} GROUP BY 1, 2", (*self._bounds(begin, end), *part.values)
            )
            for ns, who, *amounts in rows:
                known = totals.get((ns, who), (0,) * len(amounts))
                totals[ns, who] = [a + int(b) for a, b in zip(known, amounts, strict=True)]
        return self._usage_rows(totals)

    def _bounds(self, begin: int, end: int) -> tuple[int, ...]:
        """Return the values of ``_SUMS``."""
        names = (PodOutcome.REFUSED, PodOutcome.BOUND, PodOutcome.RUNNING)
        numbers = self._terms.numbers(self._transaction, [name.value for name in names])
        refused, bound, running = (numbers.get(name.value, -1) for name in names)
        span = (end, begin, end, end, begin, begin)
        return (
            *(begin, end, refused),
            *(begin, end, refused),
            *(bound, running) * 3,
            *span,
            *span,
        )

    def _usage_rows(self, totals: Mapping[tuple[int, int], Sequence[int]]) -> tuple[UsageRow, ...]:
        texts = self._terms.texts(self._transaction, {number for key in totals for number in key})
        found = []
        for (ns, who), amounts in totals.items():
            admitted, refused, running, mib, cores, mib_time, core_time = amounts
            found.append(
                UsageRow(
                    namespace=texts[ns],
                    requester=texts[who],
                    admitted=admitted,
                    refused=refused,
                    running=running,
                    promised_mib=mib,
                    promised_cores_percent=cores,
                    mib_hours=mib_time / _HOUR,
                    core_hours=core_time / _HOUR / 100,
                )
            )
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
