"""The benchmark of the store fills either database, and asks it what pages ask."""

from benchmarks.audit import removal_of_old
from benchmarks.audit_fill import fill
from benchmarks.audit_reader import measure
from console.store.opening import open_store


def test_either_store_is_filled_and_asked(address: str) -> None:
    """All decisions are in it, questions are answered, and old records go."""
    filled = fill(address, decisions=120, nodes=2, originals=40)
    store = open_store(address)
    assert store.figures().decisions == filled.decisions == 120
    assert store.figures().records == filled.records
    store.close()

    asked = measure(address, filled.begin, filled.end)

    assert asked["decisions_p95_ms"]
    assert removal_of_old(filled)["removed_per_s"] > 0
