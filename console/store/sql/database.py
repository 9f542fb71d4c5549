"""What the store asks of a database: rows for SQL, in transactions.

SQL is written once, with ``?`` for values, in what SQLite and PostgreSQL both understand.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

Values = Sequence[Any]
Row = tuple[Any, ...]


class Transaction(Protocol):
    """One transaction: what is read in it belongs together."""

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        """Run *sql* and return its rows."""

    def run(self, sql: str, values: Values = ()) -> int:
        """Run *sql* and return how many rows it changed."""

    def run_many(self, sql: str, rows: Iterable[Values]) -> None:
        """Run *sql* once for each of *rows*."""


class Database(Protocol):
    """A database of one engine. Every method raises :class:`StoreError`."""

    def reading(self) -> AbstractContextManager[Transaction]:
        """Begin to read; several threads may at once."""

    def writing(self) -> AbstractContextManager[Transaction]:
        """Begin to write, one at a time; what was written is on disk when the block ends.

        A block that raises leaves everything as it was.
        """

    def used_bytes(self) -> int:
        """Return how much room the rows and their indexes take."""

    def give_back(self) -> None:
        """Return a bounded part of the room of removed rows to the file system."""

    def close(self) -> None:
        """Close all connections."""


def marks(count: int) -> str:
    """Return as many ``?`` for a list in SQL."""
    return ",".join("?" * count)
