"""Waiting is jittered, grows and is capped."""

import pytest

from tests.fakes.kube_clock import FakeClock


@pytest.mark.parametrize(
    ("failures", "chance", "expected"),
    [
        pytest.param(1, 0.0, 0.5, id="first-at-least-half"),
        pytest.param(1, 1.0, 1.0, id="first-at-most-whole"),
        pytest.param(3, 1.0, 4.0, id="doubles"),
        pytest.param(9, 1.0, 30.0, id="capped"),
        pytest.param(10**6, 0.0, 15.0, id="for-ever"),
    ],
)
def test_backoff(failures: int, chance: float, expected: float) -> None:
    """The pause doubles from *first* to *most*; at least half of it is always waited."""
    clock = FakeClock(chance=chance).clock()

    assert clock.backoff(failures, first=1.0, most=30.0) == expected
