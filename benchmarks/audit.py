"""The store of audit records with a million decisions: how fast, how large, how safe.

The store is SQLite, as the console has it by default. Questions are asked by a process of its own,
whose memory is measured.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.audit_fill import FilledStore, append_all, fill, in_order
from benchmarks.audit_kill import lost_after_kills
from benchmarks.audit_records import RecordMaker
from benchmarks.report import Bar, conclude, parser, table
from console.records.times import rfc3339
from console.store.opening import open_store

AT_MOST: Final = {
    "decisions_p95_ms": 150.0,
    "pod_life_p95_ms": 100.0,
    "overview_p95_ms": 300.0,
    "bytes_per_decision": 2500.0,
    "lost_after_kill": 0.0,
    "console_rss_mb": 200.0,
}
AT_LEAST: Final = {"ingest_per_s": 5000.0}
NODES: Final = 5000
_AGAIN: Final = 5000  # decisions that are appended to the full store
_LONGEST: Final = 1200  # seconds of all questions


def main(arguments: Sequence[str]) -> int:
    """Fill, measure, print a table, judge; return the exit code."""
    command = parser("Measure the store of audit records with many decisions.")
    command.add_argument(
        "--decisions", type=int, default=1_000_000, help="decisions to store (1,000,000)"
    )
    command.add_argument("--folder", type=Path, help="where the store is made; a temporary one")
    options = command.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="audit-", dir=options.folder) as folder:
        figures = measure(Path(folder), options.decisions)
    rows = [(name, f"{value:,.1f}") for name, value in figures.items() if isinstance(value, float)]
    print(table(("figure", "value"), rows) + "\n")
    return conclude(bars(figures), figures, options.json)


def measure(folder: Path, decisions: int) -> dict[str, Any]:
    """Return all figures."""
    filled = fill(folder / "records.db", decisions=decisions, nodes=NODES)
    print(
        f"{filled.decisions:,} decisions, {filled.records:,} records"
        f" ({filled.copied_seconds:.0f} s to copy rows)",
        flush=True,
    )
    store = open_store(str(filled.file))
    size = store.figures().size
    store.close()
    asked = _ask(filled)
    full = ingest_of_full_store(filled)
    return {
        "decisions": filled.decisions,
        "records": filled.records,
        "bytes_per_decision": size / filled.decisions,
        "ingest_of_empty_store_per_s": filled.ingest_per_s,
        "ingest_per_s": min(filled.ingest_per_s, full),
        "ingest_of_full_store_per_s": full,
        "lost_after_kill": float(lost_after_kills(folder / "killed.db")),
        **asked,
    }


def ingest_of_full_store(filled: FilledStore) -> float:
    """Return how many records per second go into the store when it is full."""
    maker = RecordMaker(seed=2, start=filled.end - 12 * 3_600_000, step=1000)
    now = time.time_ns() // 1_000_000
    records = [one for one in in_order(maker.decisions(_AGAIN)) if one.record.at < rfc3339(now)]
    return len(records) / append_all(filled.file, records)


def _ask(filled: FilledStore) -> Mapping[str, Any]:
    """Ask all questions in a process of its own."""
    program = [sys.executable, "-m", "benchmarks.audit_reader"]
    done = subprocess.run(
        [*program, str(filled.file), str(filled.begin), str(filled.end)],
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
        ),
        *(Bar(name=name, value=figures[name], limit=limit) for name, limit in AT_LEAST.items()),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
