"""The benchmark of the store: what it fills in is what a store of that size would hold."""

import math
from pathlib import Path

from benchmarks.audit import AT_LEAST, AT_MOST, bars
from benchmarks.audit_fill import fill
from benchmarks.audit_reader import measure
from console.records.query import EVERYTHING, DecisionFilter, PageRequest, RecordFilter
from console.records.times import rfc3339
from console.store.opening import open_store


def test_copies_are_decisions_of_their_own(tmp_path: Path) -> None:
    """Each has its own uid, its own records, and a place in time."""
    filled = fill(str(tmp_path / "records.db"), decisions=120, nodes=2, originals=40)
    store = open_store(filled.store)
    rows = store.decisions(EVERYTHING, DecisionFilter(), PageRequest(size=1000)).rows
    assert len(rows) == filled.decisions == store.figures().decisions == 120
    assert len({(row.digest, row.pod_uid) for row in rows}) == 120
    lives = [store.life(EVERYTHING, row) for row in rows]
    assert min(map(len, lives)) >= 1
    ids = [one.record.id for one in store.export(EVERYTHING, RecordFilter())]
    assert len(set(ids)) == len(ids) == filled.records == store.figures().records
    store.close()


def test_nothing_is_filled_in_that_has_not_happened_yet(tmp_path: Path) -> None:
    """The last pods of a close row would end after now, and a store refuses such records."""
    filled = fill(str(tmp_path / "records.db"), decisions=600, nodes=1)
    store = open_store(filled.store)
    times = [one.record.at for one in store.export(EVERYTHING, RecordFilter())]
    store.close()
    assert max(times) < rfc3339(filled.end)
    assert filled.records == len(times)


def test_every_bar_is_judged(tmp_path: Path) -> None:
    """What the reader measures has the names that the bars have."""
    filled = fill(str(tmp_path / "records.db"), decisions=60, nodes=1)
    figures = dict.fromkeys((*AT_MOST, *AT_LEAST), 0.0)
    figures |= measure(filled.store, filled.begin, filled.end)  # type: ignore[arg-type]
    judged = {bar.name: bar.holds for bar in bars(figures)}
    assert judged.keys() == AT_MOST.keys() | AT_LEAST.keys()
    assert judged["console_rss_mb"] in {True, False}
    assert not judged["ingest_per_s"]
    unmeasured = {bar.name for bar in bars(figures | {"webhook_ratio": math.nan})}
    assert "webhook_ratio" not in unmeasured
