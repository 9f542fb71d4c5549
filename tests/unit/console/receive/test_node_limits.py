"""What the agent of one node may send."""

import pytest

from console.receive.node_limits import LONGEST_PAUSE, MOST_BODIES, NodeLimitError, NodeLimits

DAY = 86_400.0


def refusal(limits: NodeLimits, node: str = "a", now: float = 0.0) -> NodeLimitError | None:
    """Return why *node* may send nothing now; ``None`` if it may."""
    try:
        limits.begin(node, now)
    except NodeLimitError as error:
        return error
    limits.end(node)
    return None


def test_a_node_may_send_the_records_of_a_day_at_once() -> None:
    """Others are not concerned, and it may send again as its time goes on."""
    limits = NodeLimits(1000)
    limits.note("a", 0.0, lines=999, size=0)
    assert refusal(limits) is None
    limits.note("a", 0.0, lines=1, size=0)

    told = refusal(limits)
    assert told is not None
    assert (str(told), told.after, told.used_up) == (
        "node a has sent its 1000 records of a day", 87, True,
    )  # fmt: skip
    assert refusal(limits, "b") is None
    assert refusal(limits, now=86.3) is not None
    assert refusal(limits, now=86.4) is None
    limits.note("a", 86.4, lines=1, size=0)
    assert refusal(limits, now=86.4) is not None


def test_after_a_day_all_is_as_before() -> None:
    """And no more than that."""
    limits = NodeLimits(1000)
    limits.note("a", 0.0, lines=1000, size=0)
    limits.note("a", 2 * DAY, lines=1000, size=0)

    assert refusal(limits, now=2 * DAY) is not None


def test_nobody_is_told_to_wait_for_hours() -> None:
    """A sender would keep its records as long, and the console may have begun anew."""
    limits = NodeLimits(1000)
    limits.note("a", 0.0, lines=5000, size=0)

    told = refusal(limits)
    assert told is not None
    assert told.after == LONGEST_PAUSE


@pytest.mark.parametrize(
    ("lines", "size", "counted"),
    [
        pytest.param(3, 900, 3, id="lines"),
        pytest.param(3, 5 * 1024, 5, id="bytes"),
        pytest.param(0, 0, 1, id="nothing"),
    ],
)
def test_a_batch_counts_by_its_lines_or_by_its_bytes(lines: int, size: int, counted: int) -> None:
    """Whichever is more, so that few large records cost as much as many small ones."""
    limits = NodeLimits(1000)
    limits.note("a", 0.0, lines=lines, size=size)
    limits.note("a", 0.0, lines=1000 - counted - 1, size=0)
    assert refusal(limits) is None

    limits.note("a", 0.0, lines=1, size=0)
    assert refusal(limits) is not None


def test_a_node_sends_two_batches_at_a_time() -> None:
    """The third is told to come again soon, and whoever is refused holds no place."""
    limits = NodeLimits()
    for _ in range(MOST_BODIES):
        limits.begin("a", 0.0)
    for _ in range(3):
        told = refusal(limits)
        assert told is not None
        assert (str(told), told.after, told.used_up) == (
            "2 batches of node a are being read", 1, False,
        )  # fmt: skip
    assert refusal(limits, "b") is None
    limits.end("a")
    limits.begin("a", 0.0)
    assert refusal(limits) is not None
    for _ in range(MOST_BODIES):
        limits.end("a")

    assert refusal(limits) is None
    assert not limits._bodies  # noqa: SLF001 -- nothing else shows that nothing is left of a node


def test_the_log_names_a_node_once_a_minute() -> None:
    """Whoever asks again and again fills no log."""
    limits = NodeLimits(1000)

    assert [limits.log_is_due("a", now) for now in (0.0, 1.0, 59.9, 60.0, 61.0)] == [
        True, False, False, True, False,
    ]  # fmt: skip
    assert limits.log_is_due("b", 61.0)
