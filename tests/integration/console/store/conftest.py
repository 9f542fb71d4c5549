"""Stores for tests: each test that takes ``store`` runs on SQLite and on PostgreSQL."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from console.store.opening import open_store
from console.store.sql.sql_store import SqlStore
from tests.harness.postgres import new_database, server

_NUMBERS = count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Yield the URL of a server."""
    with server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return where an empty store is."""
    if request.param == "sqlite":
        return str(tmp_path / "records.db")
    url: str = request.getfixturevalue("postgres")
    return new_database(url, f"records_{next(_NUMBERS)}")


@pytest.fixture
def opened(address: str) -> Iterator[Callable[[], SqlStore]]:
    """Return a function that opens the store at ``address`` once more."""
    stores: list[SqlStore] = []

    def opens() -> SqlStore:
        store = open_store(address)
        assert isinstance(store, SqlStore)
        stores.append(store)
        return store

    yield opens
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[[], SqlStore]) -> SqlStore:
    """Return an empty store."""
    return opened()
