"""Durations of pages: as kubectl writes them, with units that each language has words for."""

import re
from datetime import timedelta
from typing import Final

from console.get.table import span
from console.languages.messages import PageMessage, joined_text, message

_PART: Final = re.compile("([0-9]+)([dhms])")


def duration(passed: timedelta) -> PageMessage:
    """Return a duration with two units at most: 40s, 5m30s, 5h40m, 3d4h."""
    return joined_text("", (_amount(number, unit) for number, unit in _PART.findall(span(passed))))


def _amount(number: str, unit: str) -> PageMessage:
    match unit:
        case "d":
            return message("{number}d", number=number)
        case "h":
            return message("{number}h", number=number)
        case "m":
            return message("{number}m", number=number)
        case _:
            return message("{number}s", number=number)
