"""RecordSource: identifiers of records, and the fields that all records of a program share."""

import hashlib
from collections.abc import Callable
from datetime import datetime, tzinfo
from itertools import count
from typing import Any, Final, cast

from allocator.audit.record import SCHEMA, Component
from allocator.model.value import Value

ENTROPY_BITS: Final = 42  # of random bits that tell one run of a program from all others
_VERSION_7: Final = "7"  # of a UUID: made of a time
_VERSION_8: Final = "8"  # of a UUID: made in a way of one's own
_VARIANT: Final = 0x8 << 60
_DIGITS: Final = "0123456789abcdef"
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
        self._sixteen, self._sixteen_text = -1, ""  # of numbers, and the digits they lead to
        # The last millisecond and its zone, with the texts that they lead to: reviews share them.
        self._millisecond, self._zone = -1, cast("tzinfo | None", None)
        self._time_text, self._time_digits = "", ""
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
        record_id, text = self.identity(at)
        return RecordStamp(
            record_id,
            text,
            self._component,
            self._instance,
            self._version,
            self._caller() if caller is None else caller,
        )

    def identity(self, at: datetime) -> tuple[str, str]:
        """Return the identifier of a new record about *at*, and *at* as it is written."""
        number = next(self._numbers)
        milliseconds, zone = int(at.timestamp() * 1000), at.tzinfo
        if number >> 12 != self._rounds:
            self._rounds = number >> 12
            self._tail_text = f"{self._tail | self._rounds & _COUNTED:016x}"
        if number >> 4 != self._sixteen:
            self._sixteen = number >> 4
            self._sixteen_text = f"{self._sixteen & 0xFF:02x}"
        if milliseconds != self._millisecond or zone is not self._zone:
            self._millisecond, self._zone = milliseconds, zone
            self._time_text = at.isoformat(timespec="milliseconds")
            self._time_digits = f"{milliseconds:012x}{_VERSION_7}"
        digits = f"{self._time_digits}{self._sixteen_text}{_DIGITS[number & 0xF]}{self._tail_text}"
        return digits, self._time_text

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
