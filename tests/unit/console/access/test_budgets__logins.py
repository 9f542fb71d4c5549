"""How often an address may fail."""

import pytest

from console.access.budgets import (
    MOST_ADDRESSES,
    MOST_FAILURES,
    REFILL_SECONDS,
    FailedAttempts,
    TooManyAttemptsError,
)


def failed(times: int, *, address: str = "a", now: float = 0.0) -> FailedAttempts:
    attempts = FailedAttempts()
    for _ in range(times):
        attempts.check(address, now)
        attempts.note_failure(address, now)
    return attempts


def test_so_many_failures_are_borne() -> None:
    """The next attempt must wait, and is told how long."""
    attempts = failed(MOST_FAILURES)

    with pytest.raises(TooManyAttemptsError) as caught:
        attempts.check("a", 0.0)
    assert caught.value.seconds == REFILL_SECONDS
    attempts.check("a", REFILL_SECONDS)
    attempts.check("b", 0.0)


@pytest.mark.parametrize("left", [0.001, 0.5, 1.0])
def test_nobody_may_try_a_moment_too_early(left: float) -> None:
    """The wait is over when it is over."""
    with pytest.raises(TooManyAttemptsError) as caught:
        failed(MOST_FAILURES).check("a", REFILL_SECONDS - left)
    assert caught.value.seconds == pytest.approx(left)


def test_attempts_come_back_one_by_one() -> None:
    """After a failure at the limit, the next must wait again."""
    attempts = failed(MOST_FAILURES)
    attempts.note_failure("a", REFILL_SECONDS)

    with pytest.raises(TooManyAttemptsError):
        attempts.check("a", REFILL_SECONDS)
    attempts.check("a", 2 * REFILL_SECONDS)


def test_addresses_without_end_take_bounded_memory() -> None:
    """The oldest are forgotten."""
    attempts = FailedAttempts()
    for number in range(3 * MOST_ADDRESSES):
        attempts.note_failure(str(number), 0.0)

    assert len(attempts) == MOST_ADDRESSES
