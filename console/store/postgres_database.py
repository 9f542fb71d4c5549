"""PostgreSQL: several consoles may share one database; they write one after the other."""

import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
from psycopg import sql as psycopg_sql

from console.store.sql.database import Row, Values
from console.store.sql.schema import VERSION, VERSIONS
from console.store.store import StoreError

CONNECT_SECONDS: Final = 10
_STATEMENT_MS: Final = 60_000  # after which a statement is given up
_SAMPLE: Final = 1000  # rows
# Bytes of a row beside its body, with its entries in all indexes. A decision may have a second row,
# of the request before its pod was known.
_RECORD_OVERHEAD: Final = 260
_DECISION_OVERHEAD: Final = 1500
_WRITERS: Final = 0x76677075  # the advisory lock of whoever writes; the letters vgpu
_INDEXED_BY: Final = re.compile(r" INDEXED BY [a-z_]+")
_TYPES: Final = (("BLOB", "BYTEA"), ("INTEGER", "BIGINT"), (" WITHOUT ROWID", ""))
_TEXT: Final = re.compile(r"\bTEXT\b")
_HELP: Final = {
    "42501": "the user lacks a right; it must own the database",
    "53100": "the disk of the server is full",
    "53300": "the server allows no more connections",
    "57014": "the server needed too long",
    "25006": "the server is read-only; name the primary",
}
# A connection that fails has no code.
_HELP_WITHOUT_CODE: Final = {
    "does not exist": "create the database and its user first",
    "authentication failed": "the password is wrong; PGPASSWORD or PGPASSFILE may hold it",
    "no pg_hba.conf entry": "the server does not admit this user from here",
    "connection refused": "no server listens there",
}


class PostgresDatabase:
    """A :class:`Database` on a server; a connection for each reading thread, one for writing."""

    def __init__(self, url: str) -> None:
        """Connect, and make the tables where there are none; raises :class:`StoreError`."""
        self._url = url
        self._name = _shown(url)
        self._local = threading.local()
        self._readers: list[psycopg.Connection[Row]] = []
        self._readers_lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._writer: psycopg.Connection[Row] | None = None
        try:
            with self.writing() as transaction:
                self._prepare(transaction)
        except StoreError:
            self.close()
            raise

    @contextmanager
    def reading(self) -> Iterator["PostgresTransaction"]:
        """Begin to read with the connection of this thread; sees one moment."""
        with self._explained():
            reader: psycopg.Connection[Row] | None = getattr(self._local, "reader", None)
            if reader is None or reader.closed:
                reader = self._connection()
                reader.read_only = True
                reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                self._local.reader = reader
                with self._readers_lock:
                    self._readers = [one for one in self._readers if not one.closed]
                    self._readers.append(reader)
            with reader.transaction():
                yield PostgresTransaction(reader)

    @contextmanager
    def writing(self) -> Iterator["PostgresTransaction"]:
        """Begin to write once no other console does; ends with a commit that is on disk."""
        with self._write_lock, self._explained():
            if self._writer is None or self._writer.closed:
                self._writer = self._connection()
            with self._writer.transaction():
                self._writer.execute("SET LOCAL synchronous_commit = on")
                self._writer.execute("SELECT pg_advisory_xact_lock(%s)", (_WRITERS,))
                yield PostgresTransaction(self._writer)

    def used_bytes(self) -> int:
        """Return about how much room the rows and their indexes need.

        The size of tables is no measure: PostgreSQL keeps the room of removed rows for new ones. So
        it is estimated from how many rows there are, and how large the latest of them are.
        """
        with self.reading() as transaction:
            sizes = [
                transaction.rows(
                    "SELECT (SELECT value FROM counter WHERE name = ?),"
                    " (SELECT coalesce(avg(length(body)), 0)::bigint FROM"
                    f" (SELECT body FROM {table} ORDER BY {key} DESC LIMIT ?) AS latest)",
                    (f"{table}s", _SAMPLE),
                )[0]
                for table, key in (("record", "seq"), ("decision", "id"))
            ]
        (records, record_body), (decisions, decision_body) = sizes
        return int(
            records * (record_body + _RECORD_OVERHEAD)
            + decisions * (decision_body + _DECISION_OVERHEAD)
        )

    def give_back(self) -> None:
        """Do nothing: autovacuum lets new rows use the room of removed ones."""

    def close(self) -> None:
        """Close all connections."""
        with self._readers_lock:
            for reader in self._readers:
                reader.close()
            self._readers.clear()
        with self._write_lock:
            if self._writer is not None:
                self._writer.close()

    def _connection(self) -> psycopg.Connection[Row]:
        return psycopg.connect(
            self._url,
            autocommit=True,  # transactions are begun explicitly
            connect_timeout=CONNECT_SECONDS,
            options=f"-c statement_timeout={_STATEMENT_MS} -c timezone=UTC",
            application_name="vgpu-console",
        )

    def _prepare(self, transaction: "PostgresTransaction") -> None:
        [[encoding]] = transaction.rows("SHOW server_encoding")
        if encoding != "UTF8":
            raise StoreError(
                f"{self._name}: its encoding is {encoding}; create it with ENCODING 'UTF8'"
            )
        transaction.run("CREATE TABLE IF NOT EXISTS vgpu_version (version BIGINT NOT NULL)")
        [[version]] = transaction.rows("SELECT coalesce(max(version), 0) FROM vgpu_version")
        if version > VERSION:
            raise StoreError(
                f"{self._name}: was written by a newer release (version {version} of its tables,"
                f" this release knows {VERSION}); run that release, or restore a backup"
            )
        # Millions of rows of an earlier release are copied for minutes.
        transaction.run("SET LOCAL statement_timeout = 0")
        for number, statements in enumerate(VERSIONS[version:], version + 1):
            for statement in statements:
                transaction.run(_translated(statement))
            transaction.run("INSERT INTO vgpu_version VALUES (?)", (number,))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of the server into :class:`StoreError`, with what would help."""
        try:
            yield
        except psycopg.Error as error:
            code = error.sqlstate or ""
            reason = " ".join(str(error).split()) or type(error).__name__
            hints = (text for words, text in _HELP_WITHOUT_CODE.items() if words in reason.lower())
            help_text = _HELP.get(code, "") if code else next(hints, "")
            text = f"{self._name}: {reason}" + (f" ({code})" if code else "")
            raise StoreError(f"{text}; {help_text}" if help_text else text) from error


class PostgresTransaction:
    """A :class:`Transaction` on one connection."""

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        """Run statements on *connection*."""
        self._connection = connection

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        """Run *sql* and return its rows."""
        return self._connection.execute(_query(sql), values).fetchall()

    def run(self, sql: str, values: Values = ()) -> int:
        """Run *sql* and return how many rows it changed."""
        return self._connection.execute(_query(sql), values).rowcount

    def run_many(self, sql: str, rows: Iterable[Values]) -> None:
        """Run *sql* once for each of *rows*."""
        given = list(rows)
        if given:
            with self._connection.cursor() as cursor:
                cursor.executemany(_query(sql), given)


def _query(sql: str) -> psycopg_sql.SQL:
    """Return *sql*, which names tables and columns of ours only, as psycopg writes it."""
    text: Any = _INDEXED_BY.sub("", sql).replace("?", "%s")
    return psycopg_sql.SQL(text)


def _translated(statement: str) -> str:
    """Return a statement of the schema with the types of PostgreSQL.

    Texts compare by their characters, as in SQLite, so that prefixes can be searched for.
    """
    text = statement.format(id=", id", seq=", seq")
    for ours, theirs in _TYPES:
        text = text.replace(ours, theirs)
    return _TEXT.sub('TEXT COLLATE "C"', text)


def _shown(url: str) -> str:
    """Return *url* without its password and options."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "postgresql://"
    return f"postgresql://{parts.hostname or ''}{parts.path}"
