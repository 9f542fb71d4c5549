"""RecordSource: identifiers of records, and the fields that all records of a program share."""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

from allocator.audit.record import SCHEMA, Component
from allocator.model.value import Value

ENTROPY_BITS: Final = 42  # of random bits that tell one run of a program from all others
_VERSION_7: Final = "7"  # of a UUID: made of a time
_VERSION_8: Final = "8"  # of a UUID: made in a way of one's own
_VARIANT: Final = 0x8 << 60
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
# Numbers as they are written. Records are made by the thousand, and formatting each number took
# most of the time of an identifier.
THREE_DIGITS: Final = tuple([f"{number:03d}" for number in range(1000)])
_TWO_HEX_DIGITS: Final = tuple([f"{number:02x}" for number in range(256)])
_HEX_DIGITS: Final = "0123456789abcdef"
_SECONDS_LENGTH: Final = len("2026-05-04T12:00:00")
_COUNTED: Final = 0xFFFFF  # the part of the counter that is in the second half of a UUID


class RecordStamp(Value, frozen=True):
    """What a record has of its program and of the moment it is written; see ``Record``."""

    id: str
    at: str  # RFC 3339 in UTC, milliseconds
    component: str = Component.WEBHOOK.value
    instance: str = ""
    version: str = ""
    caller: tuple[str, ...] = ()  # what the caller of a review had to show


def _nobody() -> tuple[str, ...]:
    return ()


class RecordSource:
    """Stamps the records of one program.

    An identifier is the time, a counter and bits that are random for each run of a program, so it
    costs no system call and no two programs issue the same one.
    """

    def __init__(
        self,
        component: Component,
        *,
        instance: str = "",
        version: str = "",
        entropy: int = 0,
        caller: Callable[[], tuple[str, ...]] = _nobody,
    ) -> None:
        """Stamp for *instance* of *component*, with ``ENTROPY_BITS`` random bits of *entropy*.

        *caller* returns what callers of reviews have to show now.
        """
        self._component = component.value  # an encoder takes far longer over an enum
        self._instance = instance
        self._version = version
        self._tail = _VARIANT | (entropy & (1 << ENTROPY_BITS) - 1) << 20
        self._rounds, self._tail_text = -1, ""  # of the counter, and the digits they lead to
        # The last millisecond, with the texts that it leads to: reviews share them.
        self._millisecond, self._time_text, self._time_digits = -1, "", ""
        self._json_start = self._json_end = ""  # of both fields, around what is the record's own
        # The same of its second, and of the 256 milliseconds around it.
        self._second, self._second_text = -1, ""
        self._span, self._span_digits = -1, ""
        self._caller = caller
        self._numbers = count()

    @property
    def program(self) -> tuple[str, str, str]:
        """Return component, instance and version."""
        return self._component, self._instance, self._version

    @property
    def caller(self) -> Callable[[], tuple[str, ...]]:
        """Return what says what callers of reviews have to show now."""
        return self._caller

    def stamp(self, at: datetime, caller: tuple[str, ...] | None = None) -> RecordStamp:
        """Return the stamp of a record about *at*, which has a time zone.

        *caller* is what the caller had to show then, which otherwise is what callers show now.
        """
        return self.stamp_at(milliseconds_of(at), caller)

    def stamp_at(self, at: int, caller: tuple[str, ...] | None = None) -> RecordStamp:
        """Return the stamp of a record about *at*, in milliseconds since 1970."""
        record_id, text = self.identity(at)
        return RecordStamp(
            record_id,
            text,
            self._component,
            self._instance,
            self._version,
            self._caller() if caller is None else caller,
        )

    def identity(self, at: int) -> tuple[str, str]:
        """Return the identifier of a new record, and its time as it is written.

        *at* is in milliseconds since 1970.
        """
        first, last = self._next(at)
        return f"{self._time_digits}{first}{last}{self._tail_text}", self._time_text

    def identity_json(self, at: int) -> tuple[str, str, str, str]:
        """Return the JSON of ``id`` and ``at`` of a new record, in parts; see :meth:`identity`.

        Whoever joins them joins more to them, and each text that is made costs time.
        """
        first, last = self._next(at)
        return self._json_start, first, last, self._json_end

    def _next(self, at: int) -> tuple[str, str]:
        """Return the digits of a new record's own number, after noting those around them."""
        number = next(self._numbers)
        rounds = number >> 12
        if at != self._millisecond or rounds != self._rounds:
            if rounds != self._rounds:
                self._rounds = rounds
                self._tail_text = f"{self._tail | rounds & _COUNTED:016x}"
            if at != self._millisecond:
                self._note_time(at)
            self._json_start = f'"id":"{self._time_digits}'
            self._json_end = f'{self._tail_text}","at":"{self._time_text}"'
        return _TWO_HEX_DIGITS[number >> 4 & 0xFF], _HEX_DIGITS[number & 0xF]

    def _note_time(self, at: int) -> None:
        second, span = at // 1000, at >> 8
        if second != self._second:
            moment = datetime.fromtimestamp(second, UTC)
            self._second, self._second_text = second, moment.isoformat()[:_SECONDS_LENGTH]
        if span != self._span:
            self._span = span
            self._span_digits = f"{span:010x}"
        self._millisecond = at
        self._time_text = f"{self._second_text}.{THREE_DIGITS[at % 1000]}+00:00"
        self._time_digits = f"{self._span_digits}{_TWO_HEX_DIGITS[at & 0xFF]}{_VERSION_7}"

    def reviewed_by(self, caller: Callable[[], tuple[str, ...]]) -> "RecordSource":
        """Return a source with the same counter, for reviews whose callers show *caller*."""
        reviews = RecordSource(
            Component(self._component),
            instance=self._instance,
            version=self._version,
            caller=caller,
        )
        reviews._tail, reviews._numbers = self._tail, self._numbers
        return reviews


def milliseconds_of(at: datetime) -> int:
    """Return the milliseconds from 1970 until *at*, which has a time zone."""
    return (at - _EPOCH) // _MILLISECOND


UNNAMED: Final = RecordSource(Component.WEBHOOK)


def stamp_fields(kind: str, stamp: RecordStamp) -> dict[str, Any]:
    """Return the fields that a record of *kind* has of its *stamp*."""
    fields: dict[str, Any] = {
        "kind": kind,
        "id": stamp.id,
        "schema": SCHEMA,
        "at": stamp.at,
        "component": stamp.component,
    }
    if stamp.instance:
        fields["instance"] = stamp.instance
    if stamp.version:
        fields["version"] = stamp.version
    if stamp.caller:
        fields["caller"] = stamp.caller
    return fields


def content_id(*parts: str) -> str:
    """Return the identifier of a record that is the same whoever writes it, and however often.

    Settings and snapshots are such records: a restarted program does not store them again. It is
    a UUID of version 8 without hyphens, made of a digest of *parts*.
    """
    body = "".join(f"{len(part)}:{part}" for part in parts)
    digits = hashlib.sha256(body.encode(errors="surrogatepass")).hexdigest()
    return f"{digits[:12]}{_VERSION_8}{digits[13:16]}8{digits[17:32]}"
