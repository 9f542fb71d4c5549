"""The store of audit records with a million decisions: how fast, how large, how safe.

The store is SQLite, as the console has it by default, or an empty database of PostgreSQL. Questions
are asked by a process of its own. Then the real console works on that store, in a cluster of 5,000
nodes, and its memory is measured.
"""

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from benchmarks.audit_console import console_memory
from benchmarks.audit_fill import PERIOD, FilledStore, Ingest, append_all, fill, in_order
from benchmarks.audit_kill import lost_after_kills
from benchmarks.audit_records import RecordMaker
from benchmarks.control_plane import control_plane
from benchmarks.report import Bar, conclude, parser, table
from benchmarks.scale_cluster import Fleet
from console.records.times import rfc3339
from console.store.opening import open_store
from console.store.store import Retention

AT_MOST: Final = {
    "decisions_p95_ms": 150.0,
    "pod_life_p95_ms": 100.0,
    "overview_p95_ms": 300.0,
    "bytes_per_decision": 2500.0,
    "lost_after_kill": 0.0,
    "console_rss_mb": 200.0,
}
AT_LEAST: Final = {"ingest_per_s": 5000.0, "webhook_ratio": 0.95}
NODES: Final = 5000
PODS: Final = 72_000  # of which 22,000 ask for vGPU
_AGAIN: Final = 5000  # decisions that are appended to the full store
_PRUNINGS: Final = 10
_LONGEST: Final = 1200  # seconds of all questions


def main(arguments: Sequence[str]) -> int:
    """Fill, measure, print a table, judge; return the exit code."""
    command = parser("Measure the store of audit records with many decisions.")
    command.add_argument(
        "--decisions", type=int, default=1_000_000, help="decisions to store (1,000,000)"
    )
    command.add_argument(
        "--store",
        help="URL of an empty PostgreSQL database, where all is appended; not SQLite then",
    )
    command.add_argument("--folder", type=Path, help="where the store is made; a temporary one")
    command.add_argument(
        "--without-webhook", action="store_true", help="do not load the webhook, which needs wrk"
    )
    command.add_argument(
        "--without-cluster",
        action="store_true",
        help="do not start the console in a cluster, which needs etcd and kube-apiserver",
    )
    options = command.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="audit-", dir=options.folder) as folder:
        figures = measure(
            Path(folder),
            options.decisions,
            store=options.store,
            webhook=not options.without_webhook,
            cluster=not options.without_cluster,
        )
    rows = [(name, f"{value:,.1f}") for name, value in figures.items() if isinstance(value, float)]
    print(table(("figure", "value"), rows) + "\n")
    return conclude(bars(figures), figures, options.json)


def measure(
    folder: Path, decisions: int, *, store: str | None, webhook: bool, cluster: bool
) -> dict[str, Any]:
    """Return all figures; writers are killed on SQLite only."""
    filled = fill(store or str(folder / "records.db"), decisions=decisions, nodes=NODES)
    print(
        f"{filled.decisions:,} decisions, {filled.records:,} records"
        f" ({filled.copied_seconds:.0f} s to copy rows)",
        flush=True,
    )
    opened = open_store(filled.store)
    size = opened.figures().size
    opened.close()
    asked = _ask(filled)
    full = ingest_of_full_store(filled)
    return {
        "decisions": filled.decisions,
        "records": filled.records,
        "bytes_per_decision": size / filled.decisions,
        "ingest_per_s": min(filled.ingest.per_s, full.per_s),
        "ingest_of_empty_store_per_s": filled.ingest.per_s,
        "ingest_of_empty_store_per_cpu_s": filled.ingest.per_cpu_s,
        "ingest_of_full_store_per_s": full.per_s,
        "ingest_of_full_store_per_cpu_s": full.per_cpu_s,
        **removal_of_old(filled),
        "lost_after_kill": math.nan if store else float(lost_after_kills(folder / "killed.db")),
        **asked,
        **(_console_memory(folder, filled) if cluster else {"console_rss_mb": math.nan}),
        "webhook_ratio": webhook_ratio(folder) if webhook else math.nan,
    }


def _console_memory(folder: Path, filled: FilledStore) -> dict[str, float]:
    """Return what the console takes; ``nan`` where there is no API server to be had."""
    programs = control_plane()
    if programs is None:
        return {"console_rss_mb": math.nan}
    fleet = Fleet(nodes=NODES, pods=PODS)
    return console_memory(programs, folder, store=filled.store, fleet=fleet)


def ingest_of_full_store(filled: FilledStore) -> Ingest:
    """Return how fast records go into the store when it is full."""
    maker = RecordMaker(seed=2, start=filled.end - 12 * 3_600_000, step=1000)
    now = time.time_ns() // 1_000_000
    return append_all(filled.store, in_order(maker.decisions(_AGAIN), before=now))


def removal_of_old(filled: FilledStore) -> dict[str, float]:
    """Return how fast the oldest records are removed, and how long others wait for it at most."""
    store = open_store(filled.store)
    day = timedelta(days=1)
    retention = Retention(age=timedelta(milliseconds=PERIOD) - day)
    now, times = rfc3339(filled.end), list[float]()
    before = store.figures().records
    for _ in range(_PRUNINGS):
        started = time.perf_counter()
        store.prune(retention, now)
        times.append(time.perf_counter() - started)
    removed = before - store.figures().records
    store.close()
    return {"removed_per_s": removed / sum(times), "longest_removal_ms": max(times) * 1000}


def webhook_ratio(folder: Path) -> float:
    """Return the webhook's throughput with records, of that without; ``nan`` without wrk."""
    file = folder / "webhook.json"
    command = [sys.executable, "-m", "benchmarks.webhook", "--json", str(file)]
    subprocess.run(command, stdout=sys.stderr, timeout=_LONGEST, check=False)
    if not file.exists():
        return math.nan
    judged = {bar["name"]: bar["value"] for bar in json.loads(file.read_text())["bars"]}
    return float(judged["audited_ratio"])


def _ask(filled: FilledStore) -> Mapping[str, Any]:
    """Ask all questions in a process of its own."""
    program = [sys.executable, "-m", "benchmarks.audit_reader"]
    done = subprocess.run(
        [*program, filled.store, str(filled.begin), str(filled.end)],
        stdout=subprocess.PIPE,
        timeout=_LONGEST,
        check=True,
    )
    answered: Mapping[str, Any] = json.loads(done.stdout)
    return answered


def bars(figures: Mapping[str, Any]) -> list[Bar]:
    """Judge what has a bar."""
    return [
        *(
            Bar(name=name, value=figures[name], limit=limit, at_most=True)
            for name, limit in AT_MOST.items()
            if not math.isnan(figures[name])  # was not measured
        ),
        *(
            Bar(name=name, value=figures[name], limit=limit)
            for name, limit in AT_LEAST.items()
            if not math.isnan(figures[name])  # was not measured
        ),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
