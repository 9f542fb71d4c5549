"""PostgreSQL: two consoles, lost connections, errors that name the database and no password."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import psycopg
import pytest

from allocator.audit.record import AnyRecord
from console.records.query import EVERYTHING, DecisionFilter, PageRequest, RecordFilter
from console.store import postgres_database
from console.store.opening import open_store
from console.store.sql.schema import RECORD_SIZE, VERSION, VERSIONS
from console.store.sql.sql_store import SqlStore
from console.store.store import StoreError
from tests.builders.records import bound, mutated, refused, started, stored, validated
from tests.harness.postgres import new_database

_NUMBERS = count()
_SIZES = f"SELECT ns, sum({RECORD_SIZE}) FROM record GROUP BY 1 ORDER BY 1"  # noqa: S608 -- ours


@pytest.fixture
def address(postgres: str) -> str:
    """Return where an empty database is."""
    return new_database(postgres, f"apart_{next(_NUMBERS)}")


def test_two_consoles_write_to_one_database(opened: Callable[[], SqlStore]) -> None:
    """What both are sent is stored once, and a pod whose records they share is one row."""
    stores, errors = [opened(), opened()], list[Exception]()
    pods: list[list[AnyRecord]] = [
        [mutated(n, digest=f"d-{n}"), validated(n, pod=n, digest=f"d-{n}"), bound(n, pod=n)]
        for n in range(20)
    ]
    ends = [started(50 + n, pod=n) for n in range(20)]

    def send(store: SqlStore, first: int) -> None:
        try:
            for n in range(20):
                batch = [*pods[n], ends[(n + first) % 20]]
                store.append(stored(*batch))
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=send, args=(store, 7 * n)) for n, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=100)
    assert errors == []
    for store in stores:
        assert store.figures().records == 80
        rows = store.decisions(EVERYTHING, DecisionFilter(state="running"), PageRequest()).rows
        assert len(rows) == 20
    first = stores[0].decisions(EVERYTHING, DecisionFilter(), PageRequest(size=5))
    after = PageRequest(size=5, after=first.after)  # a cursor of one console is one of the other
    assert stores[1].decisions(EVERYTHING, DecisionFilter(), after).rows


def test_a_lost_connection_is_an_error_once(address: str, opened: Callable[[], SqlStore]) -> None:
    """Nothing half is stored, and the next call connects again."""
    store = opened()
    store.append(stored(refused()))
    store.records(EVERYTHING, RecordFilter(), PageRequest())
    with psycopg.connect(address, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'vgpu-console' AND datname = current_database()"
        )
    with pytest.raises(StoreError, match=r"^postgresql://"):
        store.append(stored(refused(1), refused(2)))
    with pytest.raises(StoreError, match=r"^postgresql://"):
        store.records(EVERYTHING, RecordFilter(), PageRequest())
    assert store.append(stored(refused(3))) == 1
    assert len(store.records(EVERYTHING, RecordFilter(), PageRequest()).rows) == 2


def test_an_error_names_the_database_and_no_password(postgres: str) -> None:
    """A server that is not there, a database that is not, a URL that is none."""
    with pytest.raises(StoreError, match=r"^postgresql://127.0.0.1/x: ") as nobody:
        open_store("postgresql://me:secret@127.0.0.1:1/x?connect_timeout=2")
    assert "secret" not in str(nobody.value)
    with pytest.raises(StoreError, match=r"create the database and its user first"):
        open_store(postgres.replace("/postgres?", "/none?"))
    with pytest.raises(StoreError, match=r"^postgresql://"):
        open_store("postgresql://h:port/x")


def test_a_newer_release_is_named(address: str, opened: Callable[[], SqlStore]) -> None:
    """An older release does not touch what it does not know."""
    opened()
    with psycopg.connect(address, autocommit=True) as newer:
        newer.execute("INSERT INTO vgpu_version VALUES (99)")
    with pytest.raises(StoreError, match=r"written by a newer release \(version 99 "):
        opened()


def test_a_large_store_of_the_first_release_is_taken_over(
    address: str, opened: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all records, however long a statement takes."""
    store = opened()
    store.append(stored(*(refused(n, digest=f"d-{n}") for n in range(50))))
    before = list(store.export(EVERYTHING, RecordFilter()))
    store.close()
    _make_first_release(address, more=150_000)

    monkeypatch.setattr(postgres_database, "_STATEMENT_MS", 250)
    with contextlib.closing(open_store(address)):
        pass
    monkeypatch.undo()
    with psycopg.connect(address, autocommit=True) as now:
        assert now.execute("SELECT max(version) FROM vgpu_version").fetchone() == (VERSION,)
        assert (
            now.execute("SELECT ns, bytes FROM namespace_size ORDER BY 1").fetchall()
            == now.execute(_SIZES).fetchall()
        )
        assert now.execute("DELETE FROM record WHERE seq > 1000000").rowcount == 150_000
    store = opened()
    assert list(store.export(EVERYTHING, RecordFilter())) == before
    assert store.append(before) == 0
    assert store.append([replace(one, sender="another") for one in before]) == len(before)


def _make_first_release(address: str, *, more: int) -> None:
    """Make the tables those of the first release, with *more* records than there are."""
    [table] = [text for text in VERSIONS[0] if text.startswith("CREATE TABLE record ")]
    indexes = [text for text in VERSIONS[0] if text.startswith("CREATE INDEX record_")]
    columns = "at, kind, ns, node, decision, sender, body"
    numbered = "1000000 + n, decode('ff' || lpad(to_hex(n), 30, '0'), 'hex')"
    many = f"(SELECT * FROM later LIMIT 1) AS one, generate_series(1, {more}) AS n"  # noqa: S608 -- ours
    with psycopg.connect(address, autocommit=True) as first:
        for statement in (
            "ALTER TABLE record RENAME TO later",
            *("DROP INDEX " + text.split()[2] for text in indexes),
            postgres_database._translated(table),  # noqa: SLF001 -- as that release did
            f"INSERT INTO record SELECT seq, id, {columns} FROM later",  # noqa: S608 -- ours
            f"INSERT INTO record SELECT {numbered}, {columns} FROM {many}",  # noqa: S608 -- ours
            *map(postgres_database._translated, indexes),  # noqa: SLF001 -- likewise
            "DROP TABLE later",
            "DROP TABLE namespace_size",
            "DELETE FROM vgpu_version WHERE version > 1",
        ):
            first.execute(statement.encode())
