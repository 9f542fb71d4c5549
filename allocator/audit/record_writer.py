"""RecordWriter: how controllers write records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from allocator.audit.line_buffer import LineEnd
from allocator.audit.record_source import RecordSource, stamp_fields


class RecordSink(Protocol):
    """Where records go; must neither block nor fail."""

    def remember(self, record: Mapping[str, Any], /) -> None:
        """Take a note of one record."""


# Takes a note of one record, the start of a line and its end, which other lines may have too.
RememberParts = Callable[[bytes, LineEnd], None]
# Lets what makes records make them soon, together with others. The number is about the bytes that
# are held until then; with LARGEST_BATCH of them it is done at once.
DeferRecord = Callable[[Callable[[], None], int], None]
LARGEST_BATCH: Final = 1024 * 1024  # bytes of reviews that are held for their records


def make_now(make: Callable[[], None], _size: int) -> None:
    """Let *make* make a record at once; others do that later, and hold some bytes until then."""
    make()


class WriteRecord(Protocol):
    """Writes a record of a kind, as :meth:`RecordWriter.write` does."""

    def __call__(self, kind: str, fields: Mapping[str, Any], /, *, record_id: str = "") -> None:
        """Write it."""


def write_nothing(_kind: str, _fields: Mapping[str, Any], /, *, record_id: str = "") -> None:
    """Write no record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordWriter:
    """Writes records of one program to *sink*; *now* returns the time in UTC."""

    sink: RecordSink
    source: RecordSource
    now: Callable[[], datetime]

    def write(self, kind: str, fields: Mapping[str, Any], /, *, record_id: str = "") -> None:
        """Write a record of *kind* with *fields*, without those that are ``None``.

        With *record_id* it is stored once, however often it is written.
        """
        record = stamp_fields(kind, self.source.stamp(self.now()))
        if record_id:
            record["id"] = record_id
        record.update({name: value for name, value in fields.items() if value is not None})
        self.sink.remember(record)
