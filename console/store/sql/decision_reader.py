"""Lists of decisions: pages, counts, single ones."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from console.records.decision_row import RowContext, decision_row, digest_of
from console.records.fold import SubjectKey
from console.records.query import LARGEST_PAGE, DecisionFilter, PageRequest, Scope
from console.records.rows import DecisionRow, RowPage
from console.records.state import DecisionState, Subject
from console.store.cursor import opened_cursor, sealed_cursor
from console.store.sql.conditions import Conditions, decision_conditions, moment
from console.store.sql.database import Row, Transaction, marks
from console.store.sql.decision_rows import state_of
from console.store.sql.tally import TALLIED, is_tallied, tallied
from console.store.sql.terms import Terms

_CURSOR: Final = "decisions"
_RARE: Final = 20_000  # rows; so few are sorted faster than a common index is searched
_MOST_FACETS: Final = 50
_CHUNK: Final = 500
_FACETS: Final = {
    "verdict": "verdict", "reason": "reason", "mode": "mode", "namespace": "ns",
    "requester": "requester",
}  # fmt: skip
# Columns that have an index of their own, the most telling ones first.
_INDEXED: Final = ("node", "requester", "reason", "state", "ns", "mode", "verdict")


class DecisionReader:
    """Reads decisions within one transaction."""

    def __init__(self, transaction: Transaction, terms: Terms, cursor_key: bytes) -> None:
        """Work within *transaction*; cursors are sealed with *cursor_key*."""
        self._transaction = transaction
        self._terms = terms
        self._cursor_key = cursor_key

    def page(self, scope: Scope, query: DecisionFilter, page: PageRequest) -> RowPage[DecisionRow]:
        """Return one page, the latest first; raises :class:`BadCursorError`."""
        place = opened_cursor(self._cursor_key, _CURSOR, page.after)
        found = decision_conditions(self._transaction, self._terms, scope=scope, query=query)
        if found.impossible:
            return RowPage(rows=())
        size = min(max(page.size, 1), LARGEST_PAGE)
        index = self._index(found)
        if place is not None:
            found.add("(last, id) < (?, ?)", *place)
        sql = (
            f"SELECT id, last FROM decision {index} WHERE {found.where}"
            " ORDER BY last DESC, id DESC LIMIT ?"
        )
        ids = self._transaction.rows(sql, (*found.values, size + 1))
        rows = self._rows([number for number, _ in ids[:size]], scope)
        after = ""
        if len(ids) > size:
            number, last = ids[size - 1]
            after = sealed_cursor(self._cursor_key, _CURSOR, (last, number))
        return RowPage(rows=rows, after=after)

    def _index(self, found: Conditions) -> str:
        """Return which index to read: that of the filter that leaves the fewest rows."""
        if "digest" in found.texts:
            return "INDEXED BY decision_digest"
        for column in ("pod", "owner"):
            if column in found.texts and self._is_rare(column, found):
                return f"INDEXED BY decision_{column}"
        common = ""
        for column in _INDEXED:
            if column in found.equal and found.equal[column] > 0:
                if self._has_few(column, found.equal[column]):
                    return f"INDEXED BY decision_{column}"
                common = common or column
        return f"INDEXED BY decision_{common or 'last'}"

    def _has_few(self, column: str, number: int) -> bool:
        sql = (
            f"SELECT count(*) FROM (SELECT 1 FROM decision INDEXED BY decision_{column}"
            f" WHERE listed = 1 AND {column} = ? AND {column} > 0 LIMIT ?) AS few"
        )
        [[count]] = self._transaction.rows(sql, (number, _RARE))
        return bool(count < _RARE)

    def _is_rare(self, column: str, found: Conditions) -> bool:
        condition, values = found.texts[column]
        sql = (
            f"SELECT count(*) FROM (SELECT 1 FROM decision INDEXED BY decision_{column}"
            f" WHERE {condition} LIMIT ?) AS few"
        )
        [[count]] = self._transaction.rows(sql, (*values, _RARE))
        return bool(count < _RARE)

    def _rows(self, numbers: Sequence[int], scope: Scope) -> tuple[DecisionRow, ...]:
        found: dict[int, Row] = {}
        for start in range(0, len(numbers), _CHUNK):
            part = numbers[start : start + _CHUNK]
            names = "id, requester, source, key, active, body"
            sql = f"SELECT {names} FROM decision WHERE id IN ({marks(len(part))})"
            found.update((row[0], row) for row in self._transaction.rows(sql, part))
        texts = self._terms.texts(
            self._transaction, {n for row in found.values() for n in (row[1], row[2])}
        )
        states = {number: state_of(*row[3:]) for number, row in found.items()}
        requests = self._requests(states.values())
        return tuple(
            decision_row(
                states[number],
                RowContext(
                    requester=texts[found[number][1]],
                    source=texts[found[number][2]],
                    request=requests.get(digest_of(states[number])),
                    people=scope.people,
                ),
            )
            for number in numbers
            if number in found
        )

    def _requests(self, states: Iterable[DecisionState]) -> dict[str, DecisionState]:
        """Return by digest what the pods of *states* asked for."""
        digests = {
            digest_of(state)
            for state in states
            if state.subject is Subject.POD and not state.admission.asked
        }
        keys = [SubjectKey(Subject.PENDING, digest).database_key for digest in digests if digest]
        found: dict[str, DecisionState] = {}
        for start in range(0, len(keys), _CHUNK):
            part = keys[start : start + _CHUNK]
            sql = f"SELECT key, active, body FROM decision WHERE key IN ({marks(len(part))})"
            for row in self._transaction.rows(sql, part):
                state = state_of(*row)
                found[state.digest] = state
        return found

    def one(self, scope: Scope, digest: str, pod_uid: str) -> DecisionRow | None:
        """Return one decision, the latest with *digest* where no pod is named."""
        query = DecisionFilter(digest=digest)
        found = decision_conditions(self._transaction, self._terms, scope=scope, query=query)
        if found.impossible or not digest:
            return None
        if pod_uid:
            key = SubjectKey(Subject.POD, pod_uid)
            found.add("key = ?", key.database_key)
        sql = f"SELECT id FROM decision WHERE {found.where} ORDER BY last DESC, id DESC LIMIT 1"
        ids = self._transaction.rows(sql, found.values)
        if not ids:
            return None
        [[number]] = ids
        [row] = self._rows([number], scope)
        return row

    def facets(self, scope: Scope, query: DecisionFilter) -> dict[str, dict[str, int]]:
        """Count decisions by each field within all other filters."""
        counted: dict[str, dict[str, int]] = {}
        for name, column in _FACETS.items():
            if name == "requester" and not scope.people:
                counted[name] = {}
                continue
            counted[name] = self._facet(scope, query, name=name, column=column)
        return counted

    def _facet(
        self, scope: Scope, query: DecisionFilter, *, name: str, column: str
    ) -> dict[str, int]:
        others = replace(query, **{name: ""})
        found = decision_conditions(self._transaction, self._terms, scope=scope, query=others)
        if found.impossible:
            return {}
        if column in TALLIED and is_tallied(others):
            counts = self._tallied(scope, others, column)
        else:
            index = self._index(found)
            if column == "requester" and index.endswith("_last") and not others.since:
                index = "INDEXED BY decision_requester"  # has them in order
            counts = self._counted(found, index, column)
        texts = self._terms.texts(self._transaction, counts)
        most = sorted(counts.items(), key=lambda pair: (-pair[1], texts[pair[0]]))
        return {texts[number]: count for number, count in most[:_MOST_FACETS]}

    def _counted(self, found: Conditions, index: str, column: str) -> Counter[int]:
        """Count rows one by one."""
        sql = (
            f"SELECT {column}, count(*) FROM decision {index} WHERE {found.where}"
            f" AND {column} > 0 GROUP BY {column}"
        )
        return Counter(dict(self._transaction.rows(sql, found.values)))

    def _tallied(self, scope: Scope, query: DecisionFilter, column: str) -> Counter[int]:
        whole = replace(query, since="", until="")
        found = decision_conditions(self._transaction, self._terms, scope=scope, query=whole)
        period = (
            moment("since", query.since) if query.since else None,
            moment("until", query.until) if query.until else None,
        )
        return tallied(self._transaction, found, column=column, period=period)
