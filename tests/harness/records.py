"""Reads records as strictly as nothing else does.

A field that the schema lacks is an error, and so is what the console would not take.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import orjson

from allocator.audit.line_buffer import LineBuffer
from allocator.audit.lines import line_of
from allocator.audit.record import AnyRecord, Component, parse_record
from allocator.audit.record_source import RecordSource
from allocator.audit.record_writer import RecordWriter
from console.receive.sender import Sender, rejection
from console.records.times import milliseconds
from tests.builders.gpunodes import NOON


class UnknownFieldError(AssertionError):
    """A record has what the schema does not know."""


class RejectedError(AssertionError):
    """A record that the console would not take."""


def known_record(line: bytes | str) -> AnyRecord:
    """Return the record of *line*; raises where a field is unknown, or null."""
    record = parse_record(line)
    wrong = list(_wrong_fields(orjson.loads(line), record, ""))
    if wrong:
        raise UnknownFieldError(f"{type(record).__name__}: {', '.join(wrong)}")
    return record


def strict_record(line: bytes | str) -> AnyRecord:
    """Return the record of *line*; raises also where the console would not take it."""
    record = known_record(line)
    why = _rejection(record)
    if why:
        raise RejectedError(f"{type(record).__name__}: {why}")
    return record


def _rejection(record: AnyRecord) -> str:
    """Return why the console would not take *record* from the program that wrote it."""
    if record.component is Component.CONSOLE:
        return ""  # it stores those itself
    node = record.node if record.component is Component.AGENT else ""
    sender = Sender(component=record.component, node=node)
    return rejection(record, sender, milliseconds(record.at))


def _wrong_fields(raw: object, value: object, place: str) -> Iterator[str]:
    if isinstance(value, msgspec.Struct) and isinstance(raw, dict):
        tag = type(value).__struct_config__.tag_field
        for key, item in raw.items():
            if key == tag:
                continue
            if key not in value.__struct_encode_fields__ or item is None:
                yield f"{place}{key}"
            else:
                yield from _wrong_fields(item, getattr(value, key), f"{place}{key}.")
    elif isinstance(value, tuple | list) and isinstance(raw, list):
        for position, (one, other) in enumerate(zip(raw, value, strict=True)):
            yield from _wrong_fields(one, other, f"{place}{position}.")


class KeptRecords(list[Mapping[str, Any]]):
    """Keeps records as they are written, and checks that each can be read."""

    def remember(self, record: Mapping[str, Any], /) -> None:
        line = line_of(record)
        assert line is not None, record
        strict_record(line)
        super().append(orjson.loads(line))

    append = remember

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        return [record for record in self if record["kind"] == kind]


def writer(kept: KeptRecords) -> RecordWriter:
    """Return what writes the records of a webhook to *kept*, at noon."""
    return RecordWriter(sink=kept, source=RecordSource(Component.WEBHOOK), now=lambda: NOON)


class CheckingSink:
    """Forgets records, but for those that the schema does not know: they end the program."""

    def write(self, lines: LineBuffer, /) -> None:
        for chunk in lines.chunks():
            assert chunk.endswith(b"\n")
            for line in chunk.splitlines():
                strict_record(line)
