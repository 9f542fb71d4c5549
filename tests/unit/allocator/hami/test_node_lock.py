"""The node lock is held by one pod, from its Binding until HAMi's plugin has served it."""

from datetime import UTC, datetime, timedelta

import pytest

from allocator.hami.node_lock import LockHolder, NodeLock, is_lock_needed, parse_node_lock

NOW = datetime(2026, 11, 25, 3, 0, 0, tzinfo=UTC)
LOCK = NodeLock(at=NOW, namespace="team-a", pod="p")
WAITING = LockHolder(node="n", over=False, started=False, phase="allocating")


def test_a_lock_is_written_as_hami_reads_it() -> None:
    """RFC 3339, namespace and pod, in that order."""
    assert str(LOCK) == "2026-11-25T03:00:00Z,team-a,p"
    assert parse_node_lock(str(LOCK)) == LOCK
    assert LOCK.is_of("team-a", "p")
    assert not LOCK.is_of("team-b", "p")


def test_local_times_are_read() -> None:
    """HAMi writes the offset of its own zone."""
    lock = parse_node_lock("2026-11-25T11:00:00+08:00,team-a,p")

    assert lock == LOCK


def test_old_releases_wrote_the_time_alone() -> None:
    """Their lock names nobody, and lasts five minutes."""
    lock = parse_node_lock("2026-11-25T03:00:00Z")

    assert lock is not None
    assert is_lock_needed(lock, None, node="n", now=NOW + timedelta(minutes=4))
    assert not is_lock_needed(lock, None, node="n", now=NOW + timedelta(minutes=5))
    assert not is_lock_needed(lock, None, node="n", now=NOW - timedelta(hours=1))  # a wrong clock


@pytest.mark.parametrize(
    ("holder", "seconds", "needed"),
    [
        (None, 0, False),
        (WAITING, 0, True),
        (WAITING, 3600, True),
        (LockHolder(node="n", over=True, started=False, phase="allocating"), 0, False),
        (LockHolder(node="n", over=False, started=True, phase="allocating"), 0, False),
        (LockHolder(node="n", over=False, started=False, phase="success"), 0, False),
        (LockHolder(node="n", over=False, started=False, phase="failed"), 0, False),
        (LockHolder(node="m", over=False, started=False, phase="allocating"), 0, False),
        (LockHolder(node="", over=False, started=False, phase=""), 14, True),
        (LockHolder(node="", over=False, started=False, phase="allocating"), 15, False),
    ],
)
def test_a_lock_is_needed_while_its_pod_waits(
    holder: LockHolder | None, seconds: int, *, needed: bool
) -> None:
    """Between Binding and Allocate however long it takes, before the Binding for seconds."""
    now = NOW + timedelta(seconds=seconds)

    assert is_lock_needed(LOCK, holder, node="n", now=now) is needed


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        ",team-a,p",
        "soon,team-a,p",
        "2026-11-25T03:00:00,team-a,p",
        "2026-11-25T03:00:00Z,team-a",
        "2026-11-25T03:00:00Z,team-a,p,q",
        "2026-11-25T03:00:00Z,,p",
        "2026-11-25T03:00:00Z,team-a,",
        "2026-11-25T03:00:00Z,../nodes,p",
        "2026-11-25T03:00:00Z,team-a,p/eviction",
        "2026-11-25T03:00:00Z,team-a,p?x=y",
        "2026-11-25T03:00:00Z,team-a,\x1b[2J",
        "2026-11-25T03:00:00Z,Team,p",
        "99999-01-01T00:00:00Z,team-a,p",
        "x" * 600,
    ],
)
def test_hostile_locks_are_none(text: str) -> None:
    """A name from a lock becomes part of a path, so it must be a name."""
    assert parse_node_lock(text) is None
