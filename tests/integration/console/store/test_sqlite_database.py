"""The file of SQLite: damaged, locked, read-only, of another release, on a full disk, killed."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from console.records.query import EVERYTHING, DecisionFilter, PageRequest, RecordFilter
from console.store import sqlite_database
from console.store.opening import open_store
from console.store.sql.schema import RECORD_SIZE, VERSION, VERSIONS
from console.store.sql.sql_store import SqlStore
from console.store.sqlite_database import SqliteDatabase
from console.store.store import Retention, StoreError
from tests.builders.records import bound, mutated, refused, stored, validated
from tests.cluster.gate import unable

ALL = DecisionFilter()
_SIZES = f"SELECT ns, sum({RECORD_SIZE}) FROM record GROUP BY 1 ORDER BY 1"  # noqa: S608 -- ours


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "records.db"


def filled(file: Path, count: int = 300) -> None:
    store = open_store(str(file))
    store.append(stored(*(refused(n, digest=f"d-{n}") for n in range(count))))
    store.close()


def read_all(file: Path) -> int:
    store = open_store(str(file))
    try:
        store.decisions(EVERYTHING, ALL, PageRequest(size=1000))
        return len(list(store.export(EVERYTHING, RecordFilter())))
    finally:
        store.close()


@pytest.mark.parametrize("opened_before", [False, True], ids=["new", "opened-again"])
def test_connections_are_set_up_alike(file: Path, *, opened_before: bool) -> None:
    """A commit waits for the disk, free pages can go, and no function runs from a schema."""
    if opened_before:
        filled(file)
    database = SqliteDatabase(file)
    with contextlib.closing(database):
        with database.writing() as writer, database.reading() as reader:
            for transaction in (writer, reader):
                found = [
                    transaction.rows(f"PRAGMA {name}")[0][0]
                    for name in ("synchronous", "trusted_schema", "auto_vacuum", "journal_mode")
                ]
                assert found == [2, 0, 2, "wal"]  # FULL, off, INCREMENTAL
        with pytest.raises(StoreError, match="readonly"), database.reading() as reader:
            reader.run("DELETE FROM record")


def test_a_read_sees_one_moment(file: Path) -> None:
    """What is written between two of its questions is not in the second answer."""
    filled(file)
    database = SqliteDatabase(file)
    count = "SELECT count(*) FROM record"
    with contextlib.closing(database):
        with database.reading() as reader:
            before = reader.rows(count)
            with database.writing() as writer:
                writer.run("DELETE FROM record")
            assert reader.rows(count) == before
        with database.reading() as reader:
            assert reader.rows(count) == [(0,)]


def test_a_thread_reads_by_one_connection(file: Path) -> None:
    """However often it asks."""
    database = SqliteDatabase(file)
    with contextlib.closing(database):
        open_files = []
        for _ in range(10):
            with database.reading() as reader:
                reader.rows("SELECT count(*) FROM record")
            open_files.append(len(list(Path("/proc/self/fd").iterdir())))

    assert len(set(open_files)) == 1


def test_what_fails_in_the_middle_is_not_there(file: Path) -> None:
    """And the next may write."""
    filled(file)
    database = SqliteDatabase(file)

    def fail() -> None:
        with database.writing() as writer:
            writer.run("DELETE FROM record")
            writer.run("no SQL")

    with contextlib.closing(database):
        with pytest.raises(StoreError):
            fail()
        with database.writing() as writer:
            assert writer.rows("SELECT count(*) FROM record") == [(300,)]


def test_a_truncated_file_is_an_error_that_names_it(file: Path) -> None:
    """The error says what would help, wherever the file ends."""
    filled(file)
    whole = file.read_bytes()
    for size in (len(whole) // 2, 5000, 100, 10):
        file.write_bytes(whole[:size])
        with pytest.raises(StoreError, match=rf"{file}: .*(damaged|no SQLite database)"):
            read_all(file)


def test_a_file_that_is_no_database_stays_as_it_is(file: Path) -> None:
    """Nothing of somebody else's is written over."""
    file.write_text("notes of somebody\n" * 100)
    with pytest.raises(StoreError, match="no SQLite database"):
        open_store(str(file))
    assert file.read_text().startswith("notes of somebody")


def test_a_database_of_another_program_is_refused(file: Path) -> None:
    """Its tables are not ours."""
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE songs (title TEXT)")
    other.close()
    with pytest.raises(StoreError, match="holds tables of another program"):
        open_store(str(file))


def test_a_store_of_the_first_release_is_taken_over(file: Path, tmp_path: Path) -> None:
    """With all records, and where each is."""
    filled(file)
    with contextlib.closing(open_store(str(file))) as store:
        before = list(store.export(EVERYTHING, RecordFilter()))
    old = tmp_path / "old.db"
    with contextlib.closing(sqlite3.connect(old, isolation_level=None)) as first:
        for statement in VERSIONS[0]:
            if not statement.startswith("INSERT"):
                first.execute(statement.format(id="", seq=""))
        first.execute("ATTACH ? AS now", (str(file),))
        for (name,) in first.execute("SELECT name FROM sqlite_schema WHERE type = 'table'"):
            first.execute(f"INSERT INTO {name} SELECT * FROM now.{name}")  # noqa: S608 -- ours
        first.execute("PRAGMA user_version = 1")

    with contextlib.closing(open_store(str(old))) as store:
        assert list(store.export(EVERYTHING, RecordFilter())) == before
        with contextlib.closing(sqlite3.connect(old)) as now:
            counted = now.execute("SELECT ns, bytes FROM namespace_size").fetchall()
            assert counted == now.execute(_SIZES).fetchall()
            assert counted
        assert store.append(before) == 0
        assert store.append([replace(one, sender="another") for one in before]) == len(before)


def test_a_newer_release_is_named(file: Path) -> None:
    """An older release does not touch what it does not know."""
    filled(file)
    with sqlite3.connect(file) as newer:
        newer.execute(f"PRAGMA user_version = {VERSION + 1}")
    newer.close()
    with pytest.raises(StoreError, match=rf"written by a newer release \(version {VERSION + 1} "):
        open_store(str(file))


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    """The folder of the volume must exist."""
    with pytest.raises(StoreError, match="its folder must exist and be writable"):
        open_store(str(tmp_path / "none" / "records.db"))


def test_a_process_that_keeps_the_file_locked_is_an_error(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while the writer gives up, stores nothing, and may try again."""
    monkeypatch.setattr(sqlite_database, "BUSY_SECONDS", 0.1)
    store = open_store(str(file))
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="a file belongs to one console"):
        store.append(stored(mutated()))
    assert store.decisions(EVERYTHING, ALL, PageRequest()).rows == ()  # reading goes on
    other.execute("ROLLBACK")
    other.close()
    assert store.append(stored(mutated())) == 1
    store.close()


def test_a_full_disk_loses_nothing_that_was_acknowledged(full_disk: Path) -> None:
    """The append that finds no room fails as a whole; all before it are there, and readable."""
    file = full_disk / "records.db"
    store = open_store(str(file))
    acknowledged = 0
    why = ""
    while not why:
        batch = [refused(n, digest=f"d-{n}", user=os.urandom(200).hex()) for n in range(50)]
        try:
            acknowledged += store.append(stored(*batch))
        except StoreError as error:
            why = str(error)
        assert acknowledged < 1_000_000
    assert "the disk is full" in why
    assert acknowledged > 0
    assert store.figures().records == acknowledged
    store.close()
    assert read_all(file) == acknowledged


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system of 4 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        unable("no tmpfs can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


_WRITER = """
import sys
from console.store.opening import open_store
from tests.builders.records import refused, stored
store = open_store(sys.argv[1])
for batch in range(10000):
    records = stored(*(refused(n, id=f"{batch:016x}{n:016x}", digest=f"d-{n}") for n in range(20)))
    store.append(records)
    print(batch, flush=True)
"""


def test_what_was_acknowledged_survives_a_kill(file: Path) -> None:
    """A writer that is killed in the middle loses at most the batch that it was at."""
    root = Path(__file__).parents[4]
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(file)], stdout=subprocess.PIPE, cwd=root
    )
    assert writer.stdout is not None
    acknowledged = [writer.stdout.readline() for _ in range(8)]
    writer.send_signal(signal.SIGKILL)
    acknowledged += writer.stdout.readlines()
    writer.stdout.close()
    writer.wait(timeout=30)
    batches = sum(line.endswith(b"\n") for line in acknowledged)
    store = open_store(str(file))
    ids = {one.record.id for one in store.export(EVERYTHING, RecordFilter())}
    expected = {f"{batch:016x}{n:016x}" for batch in range(batches) for n in range(20)}
    assert expected <= ids
    assert len(ids) - len(expected) in {0, 20}
    store.close()


def test_readers_of_several_threads_see_whole_batches(file: Path) -> None:
    """While one thread writes, others read; none sees half a batch."""
    store = open_store(str(file))
    assert isinstance(store, SqlStore)
    ended, wrong = threading.Event(), list[object]()

    def read() -> None:
        while not ended.is_set():
            try:
                count = len(store.records(EVERYTHING, RecordFilter(), PageRequest(size=1000)).rows)
            except StoreError as error:
                wrong.append(error)
                return
            if count % 3:
                wrong.append(count)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    for n in range(60):
        assert time.monotonic() < deadline
        store.append(stored(mutated(n), validated(n, pod=n), bound(n, pod=n)))
    ended.set()
    for thread in threads:
        thread.join(timeout=60)
    store.close()
    assert wrong == []


def test_removed_rows_shorten_the_file(file: Path) -> None:
    """Pages of removed rows go back to the file system, a part at a time."""
    filled(file, 5000)
    store = open_store(str(file))
    assert isinstance(store, SqlStore)
    before = store.figures().size
    while store.prune(Retention(), "2027-06-01T00:00:00Z"):
        pass
    assert store.figures().size < before / 4
    store.close()
    assert file.stat().st_size < before / 2


def test_what_is_sorted_does_not_fill_the_memory(file: Path) -> None:
    """It goes to a file in the folder of the store, the only one that must be writable."""
    program = (
        "import os, sys; from pathlib import Path\n"
        "from console.store.sqlite_database import SqliteDatabase\n"
        "file = Path(sys.argv[1])\n"
        "database = SqliteDatabase(file)\n"
        "assert str(file) == ':memory:' or os.environ['SQLITE_TMPDIR'] == str(file.parent)\n"
        "numbers = 'SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400000'\n"
        "asked = 'SELECT max(i), hex(i) || hex(-i) FROM n GROUP BY 2 ORDER BY 1 LIMIT 1'\n"
        "with database.reading() as transaction:\n"
        "    transaction.rows(f'WITH RECURSIVE n(i) AS ({numbers}) {asked}')\n"
        "[line] = [one for one in open('/proc/self/status') if one.startswith('VmHWM')]\n"
        "print(line.split()[1])\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "SQLITE_TMPDIR"}

    def most_kib(store: str) -> int:
        command = [sys.executable, "-c", program, store]
        done = subprocess.run(command, check=True, capture_output=True, env=environment, timeout=60)
        return int(done.stdout)

    assert most_kib(str(file)) + 8 * 1024 < most_kib(":memory:")
