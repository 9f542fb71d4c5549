"""Opening a store by its address."""

from pathlib import Path
from typing import Final

from console.store.sql.sql_store import SqlStore
from console.store.sqlite_database import SqliteDatabase
from console.store.store import RecordStore, StoreError

SCHEMES: Final = ("postgresql://", "postgres://")


def open_store(address: str) -> RecordStore:
    """Return the store at *address*: a ``postgresql://`` URL, or a file of SQLite.

    Raises :class:`StoreError`.
    """
    if not address:
        raise StoreError("no store is named; accepted: a file, or a URL postgresql://…")
    if address.startswith(SCHEMES):
        # Its driver takes 10 MB of every console, and few have a PostgreSQL.
        from console.store.postgres_database import PostgresDatabase  # noqa: PLC0415 -- see above

        return SqlStore(PostgresDatabase(address))
    return SqlStore(SqliteDatabase(Path(address)))
