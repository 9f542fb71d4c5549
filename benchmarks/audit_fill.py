"""Fills a store with the records of many decisions.

The first part goes through the store's own ``append``, which is measured. In SQLite the rest are
copies of its rows, later and under other uids, ids and names, which takes minutes instead of an
hour. In PostgreSQL all are appended.
"""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import Final

from benchmarks.audit_records import RecordMaker
from console.records.rows import StoredRecord
from console.records.times import rfc3339
from console.store.opening import SCHEMES, open_store
from console.store.sql.schema import RECORD_SIZE
from console.store.sql.tally import DAY

PERIOD: Final = 30 * 24 * 3_600_000  # milliseconds that all decisions spread over
ORIGINALS: Final = 20_000  # decisions that are appended
BATCH: Final = 1000  # records of one append
_CACHE: Final = 1024 * 1024  # KiB while rows are copied
_ID: Final = 16  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """How fast records were appended: by the clock, and by the processor time that it took."""

    per_s: float
    per_cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledStore:
    """What was filled in, and how fast; times are milliseconds since 1970."""

    store: str  # its address
    decisions: int
    records: int
    begin: int
    end: int
    ingest: Ingest
    copied_seconds: float


def fill(store: str, *, decisions: int, nodes: int, originals: int = ORIGINALS) -> FilledStore:
    """Fill *store* with *decisions* and the health of all GPUs of *nodes*.

    The first *originals* are appended, and in SQLite the others are copied from them.
    """
    end = time.time_ns() // 1_000_000 - 60_000
    begin, step = end - PERIOD, PERIOD / decisions
    count = decisions if store.startswith(SCHEMES) else min(decisions, originals)
    maker = RecordMaker(seed=1, start=begin, step=step, nodes=nodes)
    appended = in_order(maker.decisions(count), before=end)
    health = list(maker.health(begin))
    append_all(store, health)
    ingest = append_all(store, appended)
    rounds = decisions // count - 1
    started = time.perf_counter()
    records = len(health) + len(appended)
    if rounds:
        records = copy_rows(Path(store), rounds, shift=int(count * step))
    return FilledStore(
        store=store,
        decisions=count * (rounds + 1),
        records=records,
        begin=begin,
        end=end,
        ingest=ingest,
        copied_seconds=time.perf_counter() - started,
    )


def in_order(decisions: Iterable[Sequence[StoredRecord]], *, before: int) -> list[StoredRecord]:
    """Return records as they arrive: by time, so that those of one pod lie far apart.

    What a pod does later than *before*, in milliseconds since 1970, has not happened yet.
    """
    limit = rfc3339(before)
    made = (one for one in chain.from_iterable(decisions) if one.record.at < limit)
    return sorted(made, key=lambda stored: stored.record.at)


def append_all(address: str, records: Iterable[StoredRecord]) -> Ingest:
    """Append *records* in batches and return how fast that was."""
    store, rest = open_store(address), iter(records)
    seconds, cpu, count = 0.0, 0.0, 0
    while batch := list(islice(rest, BATCH)):
        started, started_cpu = time.perf_counter(), time.process_time()
        store.append(batch)
        seconds += time.perf_counter() - started
        cpu += time.process_time() - started_cpu
        count += len(batch)
    store.close()
    return Ingest(per_s=count / seconds, per_cpu_s=count / cpu)


def copy_rows(file: Path, rounds: int, *, shift: int) -> int:
    """Copy all decisions with their records *rounds* times, each *shift* milliseconds later.

    Returns how many records there are then.
    """
    database = sqlite3.connect(file, isolation_level=None)
    database.execute(f"PRAGMA cache_size = -{_CACHE}")
    database.execute("PRAGMA synchronous = OFF")
    database.create_function("copied_key", 2, _copied_key, deterministic=True)
    database.create_function("copied_id", 3, _copied_id, deterministic=True)
    [rows, first, last] = database.execute(
        "SELECT count(*), min(seq), max(seq) FROM record WHERE decision IS NOT NULL OR kind < 32"
    ).fetchone()
    [decisions] = database.execute("SELECT max(id) FROM decision").fetchone()
    [listed] = database.execute("SELECT sum(listed) FROM decision").fetchone()
    for number in range(1, rounds + 1):
        database.execute("BEGIN")
        for statement in _statements(database):
            database.execute(
                statement,
                {
                    "n": number,
                    "by": number * shift,
                    "records": number * (last - first + 1),
                    "decisions": number * decisions,
                },
            )
        database.execute("COMMIT")
    for name, more in (
        ("record", last - first + 1),
        ("decision", decisions),
        ("records", rows),
        ("decisions", listed),
    ):
        database.execute(
            "UPDATE counter SET value = value + ? WHERE name = ?", (more * rounds, name)
        )
    database.execute("DELETE FROM tally")
    database.execute(
        "INSERT INTO tally SELECT last / ?, ns, verdict, reason, mode, state, count(*)"
        " FROM decision WHERE listed = 1 GROUP BY 1, 2, 3, 4, 5, 6",
        (DAY,),
    )
    database.execute("DELETE FROM namespace_size")
    sizes = f"SELECT ns, sum({RECORD_SIZE}) FROM record GROUP BY ns"  # noqa: S608 -- ours
    database.execute(f"INSERT INTO namespace_size {sizes}")
    [total] = database.execute("SELECT value FROM counter WHERE name = 'records'").fetchone()
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    return int(total)


def _statements(database: sqlite3.Connection) -> Iterator[str]:
    """Yield what copies each table once; what is copied are the originals."""
    changes = {
        "decision": {
            "id": "id + :decisions", "key": "copied_key(key, :n)", "last": "last + :by",
            "active": "active + :by", "waiting_since": "waiting_since + :by",
            "bound": "bound + :by", "over": "over + :by", "owner_uid": "owner_uid + :n",
            "digest": "CASE digest WHEN '' THEN '' ELSE digest || :n END",
            "pod": "CASE pod WHEN '' THEN '' ELSE pod || :n END",
        },
        "record": {
            "seq": "seq + :records", "id": "copied_id(id, :n, at + :by)", "at": "at + :by",
            "decision": "decision + :decisions",
        },
        "workload": {"uid": "uid + :n", "at": "at + :by", "id": "copied_id(id, :n, at + :by)"},
    }  # fmt: skip
    originals = {
        "decision": "id <= :decisions / :n",
        "record": "seq <= (SELECT value FROM counter WHERE name = 'record')"
        " AND (decision IS NOT NULL OR kind < 32)",
        "workload": "at < (SELECT min(at) FROM workload) + :by / :n",
    }
    for table, changed in changes.items():
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        copied = ", ".join(changed.get(column, column) for column in columns)
        yield f"INSERT INTO {table} SELECT {copied} FROM {table} WHERE {originals[table]}"  # noqa: S608 -- names of ours


def _copied_key(key: bytes, number: int) -> bytes:
    if key.startswith(b"u"):
        return b"u" + blake2b(key, digest_size=_ID, salt=number.to_bytes(8, "big")).digest()
    return key + str(number).encode()


def _copied_id(record_id: bytes, number: int, at: int) -> bytes:
    rest = blake2b(record_id, digest_size=_ID - 6, salt=number.to_bytes(8, "big")).digest()
    return at.to_bytes(6, "big") + rest
