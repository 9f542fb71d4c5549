"""SQLite: one file in WAL mode, one writing connection, a reading one for each thread."""

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from console.store.sql.database import Row, Values
from console.store.sql.schema import VERSION, VERSIONS
from console.store.store import StoreError

MEMORY: Final = ":memory:"
BUSY_SECONDS: Final = 10.0  # to wait for another process that writes
_WRITER_CACHE: Final = 8 * 1024  # KiB
_READER_CACHE: Final = 2 * 1024  # KiB for each thread
_WAL_BYTES: Final = 64 * 1024 * 1024  # what the log is cut to once it was copied
_FREED_PAGES: Final = 2000  # given back to the file system at once
_AUTO_VACUUM: Final = 2  # incremental
_HELP: Final = {
    "SQLITE_FULL": "the disk is full; enlarge the volume, or keep less (docs/store.md)",
    "SQLITE_READONLY": "the file or its folder is read-only; the console must be able to write it",
    "SQLITE_CANTOPEN": "the file cannot be opened; its folder must exist and be writable",
    "SQLITE_BUSY": "another process writes to it; a file belongs to one console",
    "SQLITE_CORRUPT": "the file is damaged; restore a backup, or move it away to begin a new one",
    "SQLITE_NOTADB": "the file is no SQLite database; move it away to begin a new one",
    "SQLITE_IOERR": "the disk cannot be read or written",
}


class SqliteDatabase:
    """A :class:`Database` in one file, or in memory for ``:memory:`` in tests."""

    def __init__(self, file: Path) -> None:
        """Open *file*, make it where there is none; raises :class:`StoreError`."""
        self._file = file
        # What a sorted question needs beyond its cache goes to files beside the store: a million
        # rows in memory would be most of the console's. The rest of its container is read-only.
        self._temporary = "MEMORY" if str(file) == MEMORY else "FILE"
        os.environ.setdefault("SQLITE_TMPDIR", str(file.parent))
        self._local = threading.local()
        self._readers: list[sqlite3.Connection] = []
        self._readers_lock = threading.Lock()
        self._write_lock = threading.Lock()
        with self._explained():
            self._writer = self._connection(_WRITER_CACHE)
        try:
            with self._explained():
                self._prepare()
        except StoreError:
            self._writer.close()
            raise

    @contextmanager
    def reading(self) -> Iterator["SqliteTransaction"]:
        """Begin to read with the connection of this thread."""
        with self._explained():
            reader = getattr(self._local, "reader", None)
            if reader is None:
                reader = self._connection(_READER_CACHE)
                reader.execute("PRAGMA query_only = ON")
                self._local.reader = reader
                with self._readers_lock:
                    self._readers.append(reader)
            reader.execute("BEGIN")
            try:
                yield SqliteTransaction(reader)
            finally:
                reader.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator["SqliteTransaction"]:
        """Begin to write; ends with a commit that is on disk."""
        with self._write_lock, self._explained():
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield SqliteTransaction(self._writer)
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    def used_bytes(self) -> int:
        """Return the size of all pages that are in use."""
        with self._write_lock, self._explained():
            [pages], [free], [size] = (
                self._writer.execute(f"PRAGMA {name}").fetchone()
                for name in ("page_count", "freelist_count", "page_size")
            )
        return int((pages - free) * size)

    def give_back(self) -> None:
        """Shorten the file by at most ``_FREED_PAGES`` free pages, and copy the log into it."""
        with self._write_lock, self._explained():
            # Each step of this statement frees one page, and only a script takes all of them.
            self._writer.executescript(f"PRAGMA incremental_vacuum({_FREED_PAGES})")
            self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        """Close all connections; the last one copies the log into the file."""
        with self._readers_lock:
            for reader in self._readers:
                reader.close()
            self._readers.clear()
        with self._write_lock:
            self._writer.close()

    def _connection(self, cache: int) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.execute(f"PRAGMA cache_size = -{cache}")
        connection.execute("PRAGMA synchronous = FULL")  # a commit waits for the disk
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute(f"PRAGMA temp_store = {self._temporary}")
        return connection

    def _prepare(self) -> None:
        writer = self._writer
        [version] = writer.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise StoreError(
                f"{self._file}: was written by a newer release (version {version} of its tables,"
                f" this release knows {VERSION}); run that release, or restore a backup"
            )
        [tables] = writer.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if version == 0 and tables:
            raise StoreError(
                f"{self._file}: holds tables of another program; name a file of its own"
            )
        if version == 0:
            writer.execute(f"PRAGMA auto_vacuum = {_AUTO_VACUUM}")
        [journal] = writer.execute("PRAGMA journal_mode = WAL").fetchone()
        if journal not in {"wal", "memory"}:
            raise StoreError(f"{self._file}: its file system does not support WAL")
        writer.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        writer.execute("BEGIN IMMEDIATE")
        try:
            for number, statements in enumerate(VERSIONS[version:], version + 1):
                for statement in statements:
                    writer.execute(statement.format(id="", seq=""))
                writer.execute(f"PRAGMA user_version = {number}")
            writer.execute("COMMIT")
        except BaseException:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of SQLite into :class:`StoreError`, with what would help."""
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", None) or type(error).__name__
            help_text = next((text for code, text in _HELP.items() if name.startswith(code)), "")
            reason = f"{error} ({name})"
            raise StoreError(
                f"{self._file}: {reason}; {help_text}" if help_text else f"{self._file}: {reason}"
            ) from error


class SqliteTransaction:
    """A :class:`Transaction` on one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Run statements on *connection*."""
        self._connection = connection

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        """Run *sql* and return its rows."""
        return self._connection.execute(sql, values).fetchall()

    def run(self, sql: str, values: Values = ()) -> int:
        """Run *sql* and return how many rows it changed."""
        return self._connection.execute(sql, values).rowcount

    def run_many(self, sql: str, rows: Iterable[Values]) -> None:
        """Run *sql* once for each of *rows*."""
        self._connection.executemany(sql, rows)
