"""Times as people type them: an age such as 90m, or a time of RFC 3339."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from allocator.model.untrusted import zoned_time

ACCEPTED: Final = "30m, 12h, 7d, 2w, or a time such as 2026-05-01T08:00:00Z"
_AGE: Final = re.compile(r"([0-9]{1,6})([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(text: str, now: datetime) -> str | None:
    """Return the time that *text* means, in RFC 3339 and UTC; ``None`` where it means none."""
    age = _AGE.fullmatch(text)
    try:
        if age is not None:
            return rfc3339(now - timedelta(**{_UNITS[age[2]]: int(age[1])}))
        time = zoned_time(text)
        return None if time is None else rfc3339(time)
    except OverflowError:
        return None


def rfc3339(time: datetime) -> str:
    """Return a time in UTC with milliseconds, as records have it."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
