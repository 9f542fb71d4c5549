"""Conditions in SQL for scopes and filters; every value is passed beside the SQL."""

from dataclasses import dataclass, field
from typing import Any, Final

from console.records.limits import term
from console.records.query import DecisionFilter, RecordFilter, Scope
from console.records.times import EARLIEST, LATEST, milliseconds
from console.store.sql.database import Transaction, marks
from console.store.sql.schema import CLUSTER_KINDS, KINDS
from console.store.sql.terms import Terms
from console.store.store import StoreError

_TERMS: Final = {  # fields of a filter by the column that holds the number of the text
    "namespace": "ns",
    "verdict": "verdict",
    "reason": "reason",
    "mode": "mode",
    "node": "node",
    "state": "state",
    "requester": "requester",
}
_TEXTS: Final = ("pod", "owner", "digest")
PREFIX: Final = "*"  # at the end of the name of a pod or an owner: all that begin so
_LAST_CHARACTER: Final = "\U0010ffff"


@dataclass(slots=True)
class Conditions:
    """Conditions that all hold; ``impossible`` says that no row can meet them."""

    sql: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    equal: dict[str, int] = field(default_factory=dict)  # columns with the number of a text
    texts: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)  # by column
    namespaces: list[int] = field(default_factory=list)  # to which the scope keeps
    index: str = ""
    impossible: bool = False

    def add(self, sql: str, *values: object) -> None:
        """Add one condition."""
        self.sql.append(sql)
        self.values += values

    @property
    def where(self) -> str:
        """Return all conditions as one."""
        return " AND ".join(self.sql) or "1 = 1"


def decision_conditions(
    transaction: Transaction, terms: Terms, *, scope: Scope, query: DecisionFilter
) -> Conditions:
    """Return what rows of decisions must be to be within *scope* and match *query*.

    Raises :class:`StoreError` for a time that cannot be read.
    """
    found = Conditions()
    found.add("listed = 1")
    scope_of_decisions(transaction, terms, scope=scope, found=found)
    if query.requester and not scope.people:
        found.impossible = True
    wanted = {name: getattr(query, name) for name in _TERMS if getattr(query, name)}
    numbers = terms.numbers(transaction, wanted.values())
    for name, text in wanted.items():
        if text not in numbers:
            found.impossible = True
            continue
        column = _TERMS[name]
        found.equal[column] = numbers[text]
        found.add(_is_number(column), numbers[text])
    for name in _TEXTS:
        text = getattr(query, name)
        if text:
            sql, values = _text_condition(name, term(text))
            found.texts[name] = sql, values
            found.add(sql, *values)
    add_period(found, "last", since=query.since, until=query.until)
    return found


def _is_number(column: str) -> str:
    """Return a condition in the words of the partial indexes, which leave out the empty text."""
    return f"{column} = ? AND {column} > 0"


def _text_condition(column: str, text: str) -> tuple[str, tuple[str, ...]]:
    if column != "digest" and text.endswith(PREFIX):
        prefix = text.removesuffix(PREFIX)
        between = f"{column} >= ? AND {column} < ? AND {column} <> ''"
        return between, (prefix, prefix + _LAST_CHARACTER)
    return f"{column} = ? AND {column} <> ''", (text,)


def scope_of_decisions(
    transaction: Transaction, terms: Terms, *, scope: Scope, found: Conditions
) -> None:
    """Keep to the namespaces of *scope*; a row without a namespace is nobody's."""
    if scope.namespaces is None:
        if not scope.cluster:
            found.add("ns > 0")
        return
    numbers = namespace_numbers(transaction, terms, scope)
    if not numbers:
        found.impossible = True
    else:
        found.add(f"ns > 0 AND ns IN ({marks(len(numbers))})", *numbers)


def namespace_numbers(transaction: Transaction, terms: Terms, scope: Scope) -> list[int]:
    """Return the numbers of the namespaces of *scope* that records name."""
    names = [name for name in scope.namespaces or () if name]
    return sorted(set(terms.numbers(transaction, names).values()))


def add_period(found: Conditions, column: str, *, since: str, until: str) -> None:
    """Add the times from *since* on and before *until*; raises :class:`StoreError`."""
    if since:
        found.add(f"{column} >= ?", moment("since", since))
    if until:
        found.add(f"{column} < ?", moment("until", until))


def moment(name: str, text: str) -> int:
    """Return a time of a query in milliseconds; raises :class:`StoreError`."""
    try:
        return min(max(milliseconds(text), EARLIEST), LATEST)
    except ValueError as error:
        raise StoreError(f"{name}: {error}") from error


def record_conditions(
    transaction: Transaction, terms: Terms, *, scope: Scope, query: RecordFilter
) -> Conditions:
    """Return what records must be to be within *scope* and match *query*.

    Raises :class:`StoreError` for a time or a kind that nothing is known of.
    """
    found = Conditions()
    _scope_of_records(transaction, terms, scope=scope, found=found)
    if query.kinds:
        unknown = sorted(query.kinds - KINDS.keys())
        if unknown:
            accepted = ", ".join(sorted(KINDS))
            raise StoreError(f"kind {term(unknown[0])!r} is unknown; accepted: {accepted}")
        kinds = sorted(KINDS[kind] for kind in query.kinds)
        found.add(f"kind IN ({marks(len(kinds))})", *kinds)
    numbers = terms.numbers(transaction, filter(None, (query.namespace, query.node)))
    for column, text in (("ns", query.namespace), ("node", query.node)):
        if text and text not in numbers:
            found.impossible = True
        elif text:
            found.equal[column] = numbers[text]
            found.add(_is_number(column), numbers[text])
    add_period(found, "at", since=query.since, until=query.until)
    return found


def _scope_of_records(
    transaction: Transaction, terms: Terms, *, scope: Scope, found: Conditions
) -> None:
    kinds = marks(len(CLUSTER_KINDS))
    if scope.namespaces is None:
        if not scope.cluster:
            found.add(f"ns > 0 AND kind NOT IN ({kinds})", *CLUSTER_KINDS)
        return
    numbers = namespace_numbers(transaction, terms, scope)
    if not scope.cluster:
        found.namespaces = numbers
    if scope.cluster:
        within = f"ns IN ({marks(len(numbers))}) OR " if numbers else ""
        found.add(f"({within}ns = 0 OR kind IN ({kinds}))", *numbers, *CLUSTER_KINDS)
    elif numbers:
        found.add(
            f"ns > 0 AND ns IN ({marks(len(numbers))}) AND kind NOT IN ({kinds})",
            *numbers,
            *CLUSTER_KINDS,
        )
    else:
        found.impossible = True
