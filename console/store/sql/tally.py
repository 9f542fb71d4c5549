"""The tally: how many decisions there are of each day, namespace, verdict, reason, mode and state.

So lists say how many there are of each kind without a look at all of them. Of records, the tally
knows the bytes of each namespace. Both are changed with the rows that they are of, in the same
transaction.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from console.records.query import DecisionFilter
from console.store.sql.conditions import Conditions
from console.store.sql.database import Transaction, Values
from console.store.sql.terms import count

DAY: Final = 24 * 3_600_000  # milliseconds
TALLIED: Final = ("ns", "verdict", "reason", "mode", "state")
# Where the columns of a row of decisions are that are counted; schema.py has them in this order.
_LISTED, _LAST = 2, 10
_PLACES: Final = (3, 4, 5, 6, 8)
_ADD: Final = (
    f"INSERT INTO tally (day, {', '.join(TALLIED)}, decisions) VALUES (?, ?, ?, ?, ?, ?, ?)"
    f" ON CONFLICT (day, {', '.join(TALLIED)})"
    " DO UPDATE SET decisions = tally.decisions + excluded.decisions"
)
_ADD_SIZE: Final = (
    "INSERT INTO namespace_size (ns, bytes) VALUES (?, ?) ON CONFLICT (ns)"
    " DO UPDATE SET bytes = namespace_size.bytes + excluded.bytes"
)

Cell = tuple[Any, ...]
Period = tuple[int | None, int | None]  # milliseconds since 1970: from, and before


def cell_of(row: Values) -> Cell | None:
    """Return which cell of the tally a row of decisions is counted in, if it is listed."""
    if not row[_LISTED]:
        return None
    return (int(row[_LAST]) // DAY, *(row[place] for place in _PLACES))


class Tally:
    """Changes to the tally within one transaction."""

    def __init__(self) -> None:
        """Begin with no change."""
        self._changes: Counter[Cell] = Counter()
        self._more = 0

    def replace(self, before: Values | None, after: Values | None) -> None:
        """Count *after* in the place of *before*; both are rows of decisions, or none."""
        old = None if before is None else cell_of(before)
        new = None if after is None else cell_of(after)
        if old == new:
            return
        if old is not None:
            self._changes[old] -= 1
            self._more -= 1
        if new is not None:
            self._changes[new] += 1
            self._more += 1

    def write(self, transaction: Transaction) -> None:
        """Write all changes."""
        changes = [(*cell, more) for cell, more in self._changes.items() if more]
        transaction.run_many(_ADD, changes)
        if any(more < 0 for *_, more in changes):
            transaction.run("DELETE FROM tally WHERE decisions = 0")
        count(transaction, "decisions", self._more)


def is_tallied(query: DecisionFilter) -> bool:
    """Say whether the tally can tell how many decisions match *query*."""
    return not any((query.pod, query.owner, query.requester, query.digest, query.node))


def tallied(
    transaction: Transaction, found: Conditions, *, column: str, period: Period
) -> Counter[int]:
    """Count decisions by *column*, whole days by the tally and the rest row by row.

    *found* are the conditions but for the period.
    """
    where = " AND ".join(found.sql[1:]) or "1 = 1"  # the first says that the row is listed
    since, until = period
    first = None if since is None else -(-since // DAY)
    end = None if until is None else until // DAY
    if first is not None and end is not None and first > end:
        return _rows_counted(transaction, found, column=column, period=period)
    whole = Conditions(sql=[where, f"{column} > 0"], values=[*found.values])
    counts: Counter[int] = Counter()
    if first is not None:
        whole.add("day >= ?", first)
        counts += _rows_counted(transaction, found, column=column, period=(since, first * DAY))
    if end is not None:
        whole.add("day < ?", end)
        counts += _rows_counted(transaction, found, column=column, period=(end * DAY, until))
    rows = transaction.rows(
        f"SELECT {column}, sum(decisions) FROM tally WHERE {whole.where} GROUP BY {column}",
        whole.values,
    )
    return counts + Counter({number: int(decisions) for number, decisions in rows})


def _rows_counted(
    transaction: Transaction, found: Conditions, *, column: str, period: Period
) -> Counter[int]:
    rows = transaction.rows(
        f"SELECT {column}, count(*) FROM decision INDEXED BY decision_last WHERE {found.where}"
        f" AND {column} > 0 AND last >= ? AND last < ? GROUP BY {column}",
        (*found.values, *period),
    )
    return Counter({number: int(decisions) for number, decisions in rows})


def count_records(transaction: Transaction, sizes: Iterable[tuple[int, int]]) -> None:
    """Count new records, each by the number of its namespace and its size in bytes."""
    counted = list(sizes)
    transaction.run_many(_ADD_SIZE, list(_summed(counted).items()))
    count(transaction, "records", len(counted))


def count_removed_records(transaction: Transaction, sizes: Iterable[tuple[int, int]]) -> None:
    """Count records less, each by the number of its namespace and its size in bytes."""
    counted = list(sizes)
    transaction.run_many(_ADD_SIZE, [(ns, -size) for ns, size in _summed(counted).items()])
    transaction.run("DELETE FROM namespace_size WHERE bytes = 0")
    count(transaction, "records", -len(counted))


def _summed(sizes: Iterable[tuple[int, int]]) -> Counter[int]:
    total: Counter[int] = Counter()
    for ns, size in sizes:
        total[ns] += size
    return total


def dominant_namespace(transaction: Transaction) -> int | None:
    """Return the namespace that has more than half of the bytes of all records, if one does."""
    rows = transaction.rows(
        "SELECT ns FROM namespace_size WHERE ns > 0"
        " AND 2 * bytes > (SELECT sum(bytes) FROM namespace_size)"
    )
    return int(rows[0][0]) if rows else None
