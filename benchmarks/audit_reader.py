"""The process that holds the store: answers questions to it as pages ask them, and times them."""

import contextlib
import json
import random
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any, Final, TypeVar

import psycopg

from benchmarks.audit_records import NAMESPACES, REASONS, USERS
from console.records.query import EVERYTHING, DecisionFilter, PageRequest, RecordFilter, Scope
from console.records.rows import DecisionRow
from console.records.times import rfc3339
from console.store.cursor import sealed_cursor
from console.store.opening import SCHEMES, open_store
from console.store.store import RecordStore

T = TypeVar("T")
QUESTIONS: Final = 400
LIVES: Final = 300
OVERVIEWS: Final = 40
_DAY: Final = 24 * 3_600_000  # milliseconds


def p95(figures: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return quantiles(figures, n=20)[18]


def resident_mb(process: int | str = "self") -> float:
    """Return how much memory a process had at most, in MB, by its id."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024 / 1_000_000


def measure(address: str, begin: int, end: int) -> dict[str, object]:
    """Ask everything that pages ask; return figures in milliseconds and MB."""
    store, draw = open_store(address), random.Random(7)
    key, newest = _cursor_parts(address)
    questions = [_question(draw, begin, end) for _ in range(QUESTIONS)]
    timed: list[tuple[float, str]] = []
    rows: list[DecisionRow] = []
    for query, scope in questions:
        after = ""
        if draw.random() < 0.5:  # noqa: PLR2004 -- half of all pages lie somewhere in the list
            after = sealed_cursor(key, "decisions", (draw.randrange(begin, end), newest))
        page = PageRequest(size=draw.choice((50, 100)), after=after)
        seconds, found = _timed(lambda q=query, s=scope, p=page: store.decisions(s, q, p))  # type: ignore[misc]
        timed.append((seconds * 1000, f"{query} {len(scope.namespaces or ())}"))
        rows += found.rows[:2]
    draw.shuffle(rows)
    lives = [
        _timed(lambda r=row: _life(store, r.digest, r.pod_uid))[0] * 1000  # type: ignore[misc]
        for row in rows[:LIVES]
    ]
    sums = _sums(store, draw, end)
    store.close()
    slowest = sorted(timed, reverse=True)[:3]
    return {
        "decisions_p95_ms": p95([ms for ms, _ in timed]),
        "decisions_max_ms": slowest[0][0],
        "slowest": [f"{ms:.0f} ms {what}" for ms, what in slowest],
        "pod_life_p95_ms": p95(lives),
        **sums,
        "reader_rss_mb": resident_mb(),
    }


def _sums(store: RecordStore, draw: random.Random, end: int) -> dict[str, float]:
    """Time the overview, and what has no bar of its own."""
    day, week = rfc3339(end - _DAY), rfc3339(end - 7 * _DAY)
    scopes = [EVERYTHING, EVERYTHING, _scope(draw, 1), _scope(draw, 40)]
    many = DecisionFilter(since=day)
    asked: dict[str, Callable[[Scope], object]] = {
        "overview_p95_ms": lambda scope: store.overview(scope, day),
        "facets_of_a_day_p95_ms": lambda scope: store.facets(scope, many),
        "records_p95_ms": lambda scope: store.records(scope, RecordFilter(), PageRequest()),
    }
    figures = {
        name: p95([_timed(lambda s=s: ask(s))[0] * 1000 for s in scopes * (OVERVIEWS // 4)])  # type: ignore[misc] # noqa: B023 -- called at once
        for name, ask in asked.items()
    }
    figures["facets_of_all_ms"] = (
        _timed(lambda: store.facets(EVERYTHING, DecisionFilter()))[0] * 1000
    )
    figures["usage_of_a_week_ms"] = (
        _timed(lambda: store.usage(EVERYTHING, week, rfc3339(end)))[0] * 1000
    )
    return figures


def _life(store: RecordStore, digest: str, pod_uid: str) -> None:
    row = store.decision(EVERYTHING, digest, pod_uid)
    if row is not None:
        store.life(EVERYTHING, row)


def _timed(ask: Callable[[], T]) -> tuple[float, T]:
    started = time.perf_counter()
    answer = ask()
    return time.perf_counter() - started, answer


def _scope(draw: random.Random, count: int) -> Scope:
    names = draw.sample(range(NAMESPACES), count)
    return Scope(namespaces=frozenset(f"team-{name:03}" for name in names), people=True)


def _question(draw: random.Random, begin: int, end: int) -> tuple[DecisionFilter, Scope]:
    """Return up to four filters together, likely or contradictory, and a reader's scope."""
    at = draw.randrange(begin, end)
    values = {
        "namespace": f"team-{draw.randrange(NAMESPACES):03}",
        "pod": draw.choice((f"train-{draw.randrange(1000)}-*", "train-*", "train-1-2-abcde")),
        "owner": f"train-{draw.randrange(1000)}-{draw.randrange(9)}",
        "requester": f"user-{draw.randrange(USERS)}@example.com",
        "verdict": draw.choice(("rewritten", "refused", "error", "untouched")),
        "reason": draw.choice(REASONS),
        "mode": draw.choice(("mig", "hami-core")),
        "digest": "abcdefghij",
        "node": f"gpu-{draw.randrange(5000):04}",
        "state": draw.choice(("over", "running", "refused", "waiting", "bound", "admitted")),
        "since": rfc3339(at),
        "until": rfc3339(min(end, at + draw.choice((1, 7)) * _DAY)),
    }
    chosen = draw.sample(sorted(values), draw.choice((0, 1, 1, 2, 2, 3, 4)))
    scope = draw.choice((EVERYTHING, EVERYTHING, _scope(draw, 1), _scope(draw, 40)))
    return DecisionFilter(**{name: values[name] for name in chosen}), scope


def _cursor_parts(address: str) -> tuple[bytes, int]:
    database: Any = (
        psycopg.connect(address) if address.startswith(SCHEMES) else sqlite3.connect(address)
    )
    with contextlib.closing(database):
        [key] = database.execute("SELECT value FROM meta WHERE name = 'cursor-key'").fetchone()
        [newest] = database.execute("SELECT max(id) FROM decision").fetchone()
    return bytes(key), int(newest)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
