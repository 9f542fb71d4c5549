"""Times of records: RFC 3339 in UTC outside, milliseconds since 1970 in the store."""

from datetime import UTC, datetime, timedelta
from typing import Final

from allocator.model.untrusted import escaped

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
EARLIEST: Final = 1_577_836_800_000  # 2020-01-01, before there was anything to record
LATEST: Final = 253_402_300_799_999  # the end of the year 9999


def milliseconds(text: str) -> int:
    """Return the time *text*, RFC 3339 with an offset, in milliseconds since 1970.

    Raises ``ValueError``, which says what is wrong with it.
    """
    try:
        return (datetime.fromisoformat(text) - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError, TypeError) as error:  # the last one without an offset
        raise ValueError(
            f'"{escaped(text)}" is not a time with an offset; accepted: 2026-01-31T09:30:00.000Z'
        ) from error


def rfc3339(at: int | None) -> str:
    """Return a time in milliseconds since 1970 as RFC 3339 in UTC, empty for ``None``."""
    if at is None:
        return ""
    moment = _EPOCH + min(max(at, 0), LATEST) * _MILLISECOND
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
