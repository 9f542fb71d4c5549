"""Cursors: the place in a list where the next page begins, sealed.

A cursor holds a row's number, which would tell how much there is beyond a reader's scope. So it is
encrypted, and one that was changed is refused.
"""

import base64
import re
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from console.records.query import BadCursorError

KEY_BYTES: Final = 32
_LONGEST: Final = 128
_PLACE: Final = re.compile(rb"(-?\d{1,16}) (\d{1,18})", re.ASCII)

Place = tuple[int, int]  # the time of the last row of a page, and its number


def sealed_cursor(key: bytes, of: str, place: Place) -> str:
    """Return the cursor of *place* in the list that is named *of*."""
    at, number = place
    data = AESSIV(key).encrypt(b"%d %d" % (at, number), [of.encode()])
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def opened_cursor(key: bytes, of: str, cursor: str) -> Place | None:
    """Return the place that *cursor* names, ``None`` for an empty one.

    Raises :class:`BadCursorError` for a cursor of another list, or that no list returned.
    """
    if not cursor:
        return None
    try:
        padded = cursor[:_LONGEST] + "=" * (-len(cursor) % 4)
        data = base64.b64decode(padded, altchars=b"-_", validate=True)
        place = _PLACE.fullmatch(AESSIV(key).decrypt(data, [of.encode()]))
    except (ValueError, InvalidTag) as error:
        raise BadCursorError(
            "the cursor is not one of this list; accepted: `after` as the page before returned it"
        ) from error
    if place is None:
        raise BadCursorError("the cursor holds no place of a list")
    return int(place[1]), int(place[2])
