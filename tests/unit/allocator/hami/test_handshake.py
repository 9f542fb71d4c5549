"""The handshake is answered as HAMi's plugins up to 2.9 do."""

from datetime import UTC, datetime

import pytest

from allocator.hami.handshake import asks_for_report, encode_report, was_asked

NOW = datetime(2026, 11, 25, 3, 0, 0, tzinfo=UTC)


def test_a_report_is_no_question() -> None:
    """What we write is never taken for a scheduler's question."""
    report = encode_report(NOW)

    assert report.startswith("Reported 2026-11-25 03:00:00")
    assert "Requesting" not in report
    assert not asks_for_report(report)
    assert not was_asked(report)


@pytest.mark.parametrize(
    ("text", "asks", "asked"),
    [
        ("", True, False),
        ("Requesting_2026-11-25 03:00:00", True, True),
        ("Requesting_", True, True),
        ("Requesting", True, True),
        ("Deleted_2026-11-25 03:00:00", True, True),
        ("Reported 2026-11-25 03:00:00.1 +0000 UTC m=+3", False, False),
        ("requesting_2026", False, False),
        ("x" * 100_000, False, False),
        ("\x1b[2JRequesting_", False, False),
        ("\ud800", False, False),
        ("null", False, False),
    ],
)
def test_only_schedulers_ask(text: str, *, asks: bool, asked: bool) -> None:
    """A missing handshake wants a report; anything that nobody of HAMi's writes does not."""
    assert asks_for_report(text) is asks
    assert was_asked(text) is asked
