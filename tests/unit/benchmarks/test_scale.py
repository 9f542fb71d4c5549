"""The scale benchmark: how it copies what an API server stored, what it makes, how it judges."""

from dataclasses import replace

import pytest

from benchmarks.scale import ScaleRun, bars
from benchmarks.scale_cluster import Fleet
from benchmarks.scale_store import copied, field_of, fields_of

RUN = ScaleRun(
    nodes=5000,
    pods=72_000,
    ready_s=4.0,
    ready_cpu_s=3.0,
    rss_mb=200,
    highest_rss_mb=210,
    idle_cpu_pct=2,
    bind_p50_ms=10,
    bind_p99_ms=30,
    relist_s=5,
    relisted_bind_p50_ms=10,
    relisted_bind_p99_ms=40,
)


def test_a_fleet_is_divided_as_the_pods_of_a_large_cluster() -> None:
    """All pods are of one kind, and each bound one has a node."""
    fleet = Fleet(nodes=5000, pods=72_000)

    assert (fleet.bound, fleet.pending, fleet.others) == (20_000, 2_000, 50_000)
    assert (fleet.node(0), fleet.node(5000), fleet.node(4999)) == (
        "gpu-00000",
        "gpu-00000",
        "gpu-04999",
    )


def test_a_copy_has_other_names_of_the_same_length() -> None:
    """Else the lengths that the stored bytes state would be wrong."""
    raw = field_of(b"\x0a", b"pod-a") + field_of(b"\x12", b"uid-a of pod-a")

    copy = copied(raw, {"pod-a": "pod-b", "uid-a": "uid-b"})

    assert list(fields_of(copy)) == [(1, b"pod-b"), (2, b"uid-b of pod-b")]


@pytest.mark.parametrize("names", [{"pod-a": "pod-bb"}, {"pod-c": "pod-d"}])
def test_a_copy_that_cannot_be_made_is_none(names: dict[str, str]) -> None:
    """A name of another length, or one that is not there."""
    with pytest.raises(ValueError, match="no copy"):
        copied(field_of(b"\x0a", b"pod-a"), names)


def test_long_fields_are_read_back() -> None:
    """Lengths of more than seven bits take several bytes, and numbers are passed over."""
    raw = b"\x08\x96\x01" + field_of(b"\x12", b"x" * 300)

    assert list(fields_of(raw)) == [(2, b"x" * 300)]


def test_the_large_cluster_is_judged() -> None:
    """By the slower of the binds before and after a new list."""
    slow = replace(RUN, nodes=1000, idle_cpu_pct=50)

    judged = {bar.name: (bar.value, bar.holds) for bar in bars([slow, RUN])}

    assert judged == {
        "ready_s": (4.0, True),
        "rss_mb": (200, True),
        "idle_cpu_pct": (2, True),
        "bind_p99_ms": (40, True),
    }
    assert not bars([replace(RUN, ready_s=5.1)])[0].holds
