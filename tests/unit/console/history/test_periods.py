"""Ages and times, as people type them."""

from datetime import UTC, datetime

import pytest

from console.history.periods import moment

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("90s", "2026-11-21T11:58:30.000Z"),
        ("30m", "2026-11-21T11:30:00.000Z"),
        ("12h", "2026-11-21T00:00:00.000Z"),
        ("7d", "2026-11-14T12:00:00.000Z"),
        ("2w", "2026-11-07T12:00:00.000Z"),
        ("2026-05-01T08:00:00Z", "2026-05-01T08:00:00.000Z"),
        ("2026-05-01T10:00:00+02:00", "2026-05-01T08:00:00.000Z"),
    ],
)
def test_an_age_or_a_time_is_a_time_in_utc(text: str, time: str) -> None:
    """Records are compared by their text, so every time has the same form."""
    assert moment(text, NOW) == time


@pytest.mark.parametrize(
    "text", ["", "1", "h", "1y", "-1h", "1.5h", "999999w", "yesterday", "2026-05-01", "1h30m", "٣h"]
)
def test_what_is_neither_is_refused(text: str) -> None:
    """A date without a zone would mean another day elsewhere; too long ago is no time at all."""
    assert moment(text, NOW) is None
