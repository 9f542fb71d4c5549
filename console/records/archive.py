"""Lines of an archive: a record as JSON, with who delivered it as one more field ``sender``.

A line of a program's standard output is a line of an archive too; its sender is unknown.
"""

from typing import Final

import msgspec

from allocator.audit.record import parse_record
from allocator.model.untrusted import escaped
from console.records.bounds import value_fault
from console.records.limits import LARGEST, record_defect
from console.records.rows import StoredRecord

LONGEST_LINE: Final = LARGEST + 4096  # bytes
_LONGEST_SENDER: Final = 253  # characters


class BadLineError(ValueError):
    """A line that is no record that the store could keep; says why."""


class _Delivery(msgspec.Struct):
    sender: str = ""


_DELIVERY: Final = msgspec.json.Decoder(_Delivery)


def archive_line(stored: StoredRecord) -> bytes:
    """Return *stored* as one line, with its line break."""
    record = msgspec.json.encode(stored.record)
    if not stored.sender:
        return record + b"\n"
    return b'%b,"sender":%b}\n' % (record[:-1], msgspec.json.encode(stored.sender))


def parse_line(line: bytes, now: int) -> StoredRecord:
    """Return the record of a line; *now* is the time in milliseconds since 1970.

    Raises :class:`BadLineError`.
    """
    if len(line) > LONGEST_LINE:
        raise BadLineError(f"is longer than {LONGEST_LINE} bytes")
    try:
        record, sender = parse_record(line), _DELIVERY.decode(line).sender
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadLineError(
            f"is no audit record: {escaped(str(error))}; accepted: JSON as docs/records.md says"
        ) from error
    defect = record_defect(record, now) or value_fault(record)
    if defect:
        raise BadLineError(defect)
    return StoredRecord(record=record, sender=sender[:_LONGEST_SENDER])
