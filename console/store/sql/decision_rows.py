"""Rows of decisions: read as states, written back with what lists are filtered by."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from console.records.decision_row import (
    digest_of,
    is_bound,
    is_listed,
    last_of,
    mode_of,
    outcome_of,
    promised,
)
from console.records.fold import SubjectKey, new_state, parse_key
from console.records.query import PodOutcome
from console.records.requester import DEEPEST, Requester, WorkloadVersion, requester_of, uid_number
from console.records.state import DecisionState, Subject
from console.store.packing import BadBodyError, packed, unpacked
from console.store.sql.database import Row, Transaction, Values, marks
from console.store.sql.tally import Tally
from console.store.sql.terms import Terms, next_numbers
from console.store.store import StoreError

_CHUNK: Final = 400
_LONGEST_OWNER: Final = 253
_COLUMNS: Final = (
    "id",
    "key",
    "listed",
    "ns",
    "verdict",
    "reason",
    "mode",
    "node",
    "state",
    "requester",
    "last",
    "active",
    "waiting",
    "waiting_since",
    "bound",
    "over",
    "mib",
    "cores",
    "source",
    "digest",
    "pod",
    "owner",
    "owner_uid",
    "body",
)
_INSERT: Final = f"INSERT INTO decision ({', '.join(_COLUMNS)}) VALUES ({marks(len(_COLUMNS))})"
COLUMNS: Final = ", ".join(_COLUMNS)
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM decision"
_KEY, _ACTIVE, _BODY = (_COLUMNS.index(name) for name in ("key", "active", "body"))
DIGEST_PLACE: Final = _COLUMNS.index("digest")
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(DecisionState)


@dataclass(slots=True)
class StateRow:
    """A state and the number of its row."""

    key: bytes
    number: int
    state: DecisionState
    columns: Row | None = None  # as the database has them


def state_of(key: bytes, active: int, body: bytes) -> DecisionState:
    """Return the state that a row holds; raises :class:`StoreError` where it is damaged."""
    try:
        state = _DECODER.decode(unpacked(bytes(body)))
        parsed = parse_key(bytes(key))
    except (BadBodyError, ValueError) as error:
        raise StoreError(
            f"a decision cannot be read: {error}; the database is damaged, restore a backup"
        ) from error
    state.subject, state.active = parsed.subject, active
    if parsed.subject is Subject.POD:
        state.pod_uid = parsed.identity
    else:
        state.digest = parsed.identity
    return state


def _body(state: DecisionState) -> bytes:
    """Return *state* without what the key and other columns say."""
    digest = state.digest if state.subject is Subject.POD else ""
    return packed(_ENCODER.encode(replace(state, pod_uid="", digest=digest, active=0)))


class DecisionWriter:
    """Reads and writes rows of decisions within one transaction."""

    def __init__(self, transaction: Transaction, terms: Terms) -> None:
        """Work within *transaction*; *terms* knows the numbers of texts."""
        self._transaction = transaction
        self._terms = terms

    def load(self, keys: Iterable[SubjectKey]) -> dict[SubjectKey, StateRow]:
        """Return a row for each of *keys*, a new one where there is none."""
        by_bytes = {key.database_key: key for key in keys}
        wanted, found = list(by_bytes), dict[SubjectKey, StateRow]()
        for start in range(0, len(wanted), _CHUNK):
            part = wanted[start : start + _CHUNK]
            for row in self._transaction.rows(f"{_SELECT} WHERE key IN ({marks(len(part))})", part):
                found[by_bytes[bytes(row[_KEY])]] = _row(row)
        new = [(raw, key) for raw, key in by_bytes.items() if key not in found]
        if new:
            first = next_numbers(self._transaction, "decision", len(new))
            for number, (raw, key) in enumerate(new, first):
                found[key] = StateRow(raw, number, new_state(key))
        return found

    def save(self, rows: Iterable[StateRow]) -> None:
        """Write *rows*, with the requester of each."""
        saved = list(rows)
        requesters = self._requesters(saved)
        texts: set[str] = set()
        for row in saved:
            texts.update(_terms_of(row.state))
        texts.update(requester.source.value for requester in requesters)
        numbers = self._terms.made(self._transaction, texts)
        tally = Tally()
        new: list[Values] = []
        changed: dict[tuple[int, ...], list[Values]] = {}
        for row, requester in zip(saved, requesters, strict=True):
            values, before = _values(row, requester, numbers), row.columns
            tally.replace(before, values)
            if before is None:
                new.append(values)
                continue
            places = tuple(i for i, one in enumerate(before) if one != values[i])
            if places:
                changed.setdefault(places, []).append(values)
        self._transaction.run_many(_INSERT, new)
        for places, rows_changed in changed.items():
            self._update(places, rows_changed)
        tally.write(self._transaction)

    def _update(self, places: tuple[int, ...], rows: Sequence[Values]) -> None:
        """Write the columns at *places*; an index of other columns only is left alone."""
        columns = ", ".join(f"{_COLUMNS[place]} = ?" for place in places)
        self._transaction.run_many(
            f"UPDATE decision SET {columns} WHERE id = ?",
            [(*(values[place] for place in places), values[0]) for values in rows],
        )

    def find_requesters_again(self, changed: Mapping[int, int], *, known: set[int]) -> None:
        """Find anew who is behind pods that a workload of *changed* is above of.

        *changed* has the numbers of the uids of workloads, and since when something new is known
        of each. The rows with numbers in *known* are right already.
        """
        since = dict(changed)
        below = set(changed)
        for _ in range(DEEPEST):
            found: dict[int, int] = {}
            for part in _chunks(sorted(below)):
                sql = (
                    "SELECT uid, owner_uid FROM workload WHERE owner_uid <> 0"
                    f" AND owner_uid IN ({marks(len(part))})"
                )
                for uid, owner in self._transaction.rows(sql, part):
                    found[uid] = min(found.get(uid, since[owner]), since[owner])
            below = {uid for uid, at in found.items() if at < since.get(uid, at + 1)}
            since |= {uid: found[uid] for uid in below}
            if not below:
                break
        for part in _chunks(sorted(since)):
            self._save_pods_of(part, since, known)

    def _save_pods_of(self, uids: Sequence[int], since: Mapping[int, int], known: set[int]) -> None:
        sql = (
            "SELECT id, owner_uid, last FROM decision WHERE owner_uid <> 0"
            f" AND owner_uid IN ({marks(len(uids))})"
        )
        late = [
            number
            for number, owner, last in self._transaction.rows(sql, uids)
            if number not in known and last >= since[owner]
        ]
        for part in _chunks(late):
            sql = f"{_SELECT} WHERE id IN ({marks(len(part))})"
            self.save(_row(row) for row in self._transaction.rows(sql, part))

    def _requesters(self, rows: Sequence[StateRow]) -> list[Requester]:
        owners = [row.state.admission.owner for row in rows]
        direct = [row.state.admission.user for row in rows if row.state.admission.owner is None]
        users = self._terms.made(self._transaction, direct)
        histories = self._histories({uid_number(owner.uid) for owner in owners if owner})
        return [
            requester_of(
                users.get(row.state.admission.user, 0),
                owner,
                at=row.state.admission.stamp[0],
                histories=histories,
            )
            for row, owner in zip(rows, owners, strict=True)
        ]

    def _histories(self, uids: set[int]) -> Mapping[int, Sequence[WorkloadVersion]]:
        """Return the reviews of workloads with these *uids*, and of those above them."""
        histories: dict[int, list[WorkloadVersion]] = {}
        wanted = uids - {0}
        for _ in range(DEEPEST):
            part = sorted(wanted)
            wanted = set()
            for start in range(0, len(part), _CHUNK):
                for uid, version in self._versions(part[start : start + _CHUNK]):
                    histories.setdefault(uid, []).append(version)
                    if version.owner and version.owner not in histories:
                        wanted.add(version.owner)
            wanted -= histories.keys()
            if not wanted:
                break
        return histories

    def _versions(self, uids: Sequence[int]) -> list[tuple[int, WorkloadVersion]]:
        sql = (
            "SELECT uid, at, id, author, template, owner_uid FROM workload"
            f" WHERE uid IN ({marks(len(uids))})"
        )
        return [
            (int(uid), WorkloadVersion(at, bytes(record_id), author, template, owner))
            for uid, at, record_id, author, template, owner in self._transaction.rows(sql, uids)
        ]


def _chunks(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield *numbers* in parts, each few enough for one statement."""
    for start in range(0, len(numbers), _CHUNK):
        yield numbers[start : start + _CHUNK]


def _row(row: Row) -> StateRow:
    key = bytes(row[_KEY])
    return StateRow(key, int(row[0]), state_of(key, row[_ACTIVE], row[_BODY]), columns=row)


def _terms_of(state: DecisionState) -> tuple[str, ...]:
    """Return the texts of *state* that lists are filtered by, in the order of the columns."""
    outcome = outcome_of(state)
    return (
        state.name.namespace,
        state.admission.verdict,
        state.admission.reason,
        mode_of(state),
        state.bind.node if is_bound(state) else "",
        outcome.value,
        state.waiting.reason if outcome is PodOutcome.WAITING else "",
    )


def _values(row: StateRow, requester: Requester, numbers: Mapping[str, int]) -> Values:
    state = row.state
    ns, verdict, reason, mode, node, outcome, waiting = (numbers[text] for text in _terms_of(state))
    begun = state.waiting_begun if state.waiting_begun is not None else state.waiting.stamp[0]
    mib, cores = promised(state)
    owner = None if state.confirmed else state.admission.owner
    values: Row = (
        row.number,
        row.key,
        int(is_listed(state)),
        *(ns, verdict, reason, mode, node, outcome, requester.user, last_of(state), state.active),
        waiting,
        begun if outcome_of(state) is PodOutcome.WAITING else None,
        state.bind.stamp[0] if is_bound(state) else None,
        state.over,
        *(mib, cores, numbers[requester.source.value]),
        # A confirmed request is found by its key alone, as what its pods asked for.
        "" if state.confirmed else _column(digest_of(state)),
        "" if state.confirmed else _column(state.name.pod),
        _column(owner.name if owner else ""),
        uid_number(owner.uid) if owner else 0,
        _body(state),
    )
    return values


def _column(text: str) -> str:
    """Return *text* as a column may hold it."""
    return text[:_LONGEST_OWNER].replace("\0", "\ufffd")
