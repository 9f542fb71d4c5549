"""Budgets: what is used comes back with time."""

import pytest

from console.access.budgets import Budgets


def budgets(*, units: int = 4, most: int = 8) -> Budgets[str]:
    return Budgets(units=units, refill_seconds=10.0, most=most)


def test_all_units_may_be_used_at_once() -> None:
    """Then the next comes back after its time."""
    made = budgets()
    for _ in range(4):
        assert made.wait("a", 100.0) == 0.0
        made.spend("a", 100.0)

    assert made.wait("a", 100.0) == 10.0
    assert made.wait("a", 107.5) == 2.5
    assert made.wait("a", 110.0) == 0.0
    assert made.wait("b", 100.0) == 0.0


def test_several_units_are_used_like_one_after_another() -> None:
    """More than are left may be used too; then the wait is longer."""
    made = budgets()
    made.spend("a", 0.0, units=3)
    assert made.wait("a", 0.0) == 0.0
    made.spend("a", 0.0, units=6)

    assert made.wait("a", 0.0) == 60.0
    assert made.wait("a", 60.0) == 0.0


def test_no_more_comes_back_than_was_used() -> None:
    """However long nothing was."""
    made = budgets()
    made.spend("a", 0.0)
    made.spend("a", 10_000.0, units=4)

    assert made.wait("a", 10_000.0) == 10.0


@pytest.mark.parametrize("key", ["a", "", "\x00"])
def test_of_too_many_the_oldest_begins_anew(key: str) -> None:
    """Memory is bounded, whoever comes."""
    made = budgets()
    made.spend(key, 0.0, units=9)
    for number in range(8):
        made.spend(f"other-{number}", 0.0)

    assert len(made) == 8
    assert made.wait(key, 0.0) == 0.0
