"""Which records the store takes: the others are named, with what would be accepted."""

import re
from typing import Final

import msgspec

from allocator.audit.record import AnyRecord
from allocator.model.untrusted import escaped
from console.records.times import EARLIEST, milliseconds

SKEW: Final = 10 * 60 * 1000  # milliseconds that a record may be ahead of our clock
LARGEST: Final = 2 * 1024 * 1024  # bytes of one record as JSON
LONGEST_NAME: Final = 253  # characters, of an object
LONGEST_TEXT: Final = 256  # characters of what lists can be filtered by; the rest is cut
_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_NAMES: Final = ("instance", "node", "namespace", "pod", "pod_uid", "digest")


def record_defect(record: AnyRecord, now: int) -> str:
    """Return why the store cannot keep *record*, empty where it can.

    *now* is the time in milliseconds since 1970. A record of the future would stay the latest one,
    and would never be old enough to be removed.
    """
    if _ID.fullmatch(record.id) is None:
        return f'id "{escaped(record.id)}" is not accepted; accepted: 32 digits of 0-9a-f'
    try:
        at = milliseconds(record.at)
    except ValueError as error:
        return f"at: {error}"
    if at < EARLIEST:
        return f"at: {escaped(record.at)} is before 2020; accepted: the time of the event"
    if at > now + SKEW:
        return (
            f"at: {escaped(record.at)} is in the future; accepted: at most 10 minutes ahead of"
            " the console's clock"
        )
    for name in _NAMES:
        if len(getattr(record, name)) > LONGEST_NAME:
            return f"{name} is longer than {LONGEST_NAME} characters"
    return _size_defect(record)


def _size_defect(record: AnyRecord) -> str:
    try:
        size = len(msgspec.json.encode(record))
    except (UnicodeEncodeError, RecursionError, TypeError, ValueError) as error:
        return f"cannot be encoded: {escaped(str(error))}"
    return f"has {size} bytes; accepted: at most {LARGEST}" if size > LARGEST else ""


def term(text: str) -> str:
    """Return *text* as lists are filtered by it: cut, and without what a database refuses."""
    short = text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
    return short.replace("\0", "\ufffd") if "\0" in short else short
