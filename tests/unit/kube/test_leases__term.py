"""Which move a Lease permits."""

import pytest

from kube.errors import UnreadableError
from kube.leases import ElectionStep, LeaseRecord, Timing, next_step, parse_lease

OTHER = LeaseRecord(resource_version="7", holder="b", term=3, duration=15)
LONG = LeaseRecord(resource_version="7", holder="b", term=3, duration=60)
SHORT = LeaseRecord(resource_version="7", holder="b", term=3, duration=5)
NOBODY = LeaseRecord(resource_version="7", holder="", term=3, duration=1)
HASTY = LeaseRecord(resource_version="7", holder="b", term=3, duration=0)


@pytest.mark.parametrize(
    ("record", "mine", "unchanged", "expected"),
    [
        pytest.param(None, False, 0, ElectionStep.CREATE, id="no-lease"),
        pytest.param(OTHER, True, 99, ElectionStep.RENEW, id="ours"),
        pytest.param(OTHER, False, 15, ElectionStep.WAIT, id="held"),
        pytest.param(OTHER, False, 15.1, ElectionStep.TAKE, id="expired"),
        pytest.param(LONG, False, 59.9, ElectionStep.WAIT, id="held-for-longer-than-ours"),
        pytest.param(LONG, False, 60.1, ElectionStep.TAKE, id="longer-than-ours-expired"),
        pytest.param(SHORT, False, 4.9, ElectionStep.WAIT, id="held-for-less-than-ours"),
        pytest.param(SHORT, False, 5.1, ElectionStep.TAKE, id="less-than-ours-expired"),
        pytest.param(NOBODY, False, 0, ElectionStep.TAKE, id="released"),
        pytest.param(HASTY, False, 14, ElectionStep.WAIT, id="without-duration"),
    ],
)
def test_move(
    *, record: LeaseRecord | None, mine: bool, unchanged: float, expected: ElectionStep
) -> None:
    """A Lease is taken only when it is free, or did not change for its own duration."""
    assert next_step(record, held_by_us=mine, unchanged_for=unchanged, duration=15) is expected


@pytest.mark.parametrize(
    ("retry_every", "renew_within", "duration"),
    [
        pytest.param(2, 15, 15, id="no-margin"),
        pytest.param(10, 10, 15, id="no-second-try"),
        pytest.param(0, 10, 15, id="no-pause"),
    ],
)
def test_unsafe_timings_are_refused(retry_every: float, renew_within: float, duration: int) -> None:
    """A timing under which two could lead at once cannot be made."""
    with pytest.raises(ValueError, match="increase in this order"):
        Timing(retry_every=retry_every, renew_within=renew_within, duration=duration)


def test_a_lease_without_spec_is_free() -> None:
    """A Lease that somebody made by hand names no holder."""
    assert parse_lease(b'{"metadata":{"resourceVersion":"9"}}') == LeaseRecord(
        resource_version="9", holder="", term=0, duration=None
    )


def test_what_is_no_lease_is_an_error_of_ours() -> None:
    """A malformed answer raises nothing foreign."""
    with pytest.raises(UnreadableError, match="not a Lease"):
        parse_lease(b'{"metadata":{"resourceVersion":9}}')
