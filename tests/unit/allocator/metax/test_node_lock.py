"""The lock of a node names one pod, and a lock that nobody removes holds up nobody for long."""

from datetime import UTC, datetime, timedelta

import pytest

from allocator.metax.node_lock import NodeLock, is_free, parse_lock

NOW = datetime(2026, 3, 1, 8, 15, 31, tzinfo=UTC)


def held(since: datetime = NOW, pod: str = "train-0") -> str:
    """Return the annotation of a lock that a pod of team-a took."""
    return str(NodeLock(since, "team-a", pod))


def test_the_value_is_hamis() -> None:
    """A time without fractions in UTC, the namespace and the name."""
    assert held() == "2026-03-01T08:15:31Z,team-a,train-0"
    assert parse_lock(held()) == NodeLock(NOW, "team-a", "train-0")


def test_a_time_of_another_zone_is_read() -> None:
    """HAMi writes the local time of its scheduler."""
    lock = parse_lock("2026-03-01T16:15:31+08:00,team-a,train-0")

    assert lock is not None
    assert lock.since == NOW


@pytest.mark.parametrize(
    ("text", "free"),
    [
        ("", True),
        (held(), False),
        (held(pod="mine"), True),
        (held(NOW - timedelta(seconds=299)), False),
        (held(NOW - timedelta(seconds=300)), True),
        (held(NOW + timedelta(seconds=59)), False),
        (held(NOW + timedelta(hours=1)), True),
    ],
)
def test_another_live_pod_alone_holds_up_a_bind(text: str, free: bool) -> None:
    """Five minutes at most; a clock that runs ahead by more is not believed."""
    assert is_free(text, namespace="team-a", pod="mine", now=NOW) is free


@pytest.mark.parametrize(
    "text",
    [
        "x",
        ",,",
        "2026-03-01T08:15:31Z",
        "2026-03-01T08:15:31Z,team-a",
        "2026-03-01T08:15:31Z,,train-0",
        "2026-03-01T08:15:31Z,team-a,",
        "2026-03-01T08:15:31Z,team-a,train-0,more",
        "2026-03-01T08:15:31,team-a,train-0",
        "2026-13-01T08:15:31Z,team-a,train-0",
        "2026-03-01T08:15:31Z,Team_A,train-0",
        "2026-03-01T08:15:31Z,team-a,train\n0",
        "2026-03-01T08:15:31Z,team-a," + "x" * 10_000,
        "\u0662026-03-01T08:15:31Z,team-a,train-0",
    ],
)
def test_what_cannot_be_read_holds_up_nobody(text: str) -> None:
    """Otherwise one edit of a Node would close it to shares for ever."""
    assert parse_lock(text) is None
    assert is_free(text, namespace="team-a", pod="mine", now=NOW)
