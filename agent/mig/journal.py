"""Journal records: what the agent did, or was about to do, to MIG instances; one line each.

After a crash the journal says which instances are ours. A line is the CRC-32 of its JSON in eight
hex digits, a space and the JSON. Every record names the boot it was written under: a reboot removes
all instances, so older records are void.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final
from zlib import crc32

import msgspec

_EXCERPT_LENGTH: Final = 60  # characters of a damaged line that a report quotes


class JournalAct(StrEnum):
    """What a record says of a place; the first two are written before the driver call."""

    PREPARE = "prepare"  # an instance, or what it lacks, is about to be created
    DOOM = "doom"  # it is about to be destroyed
    COMMIT = "commit"  # it exists and has a UUID
    GONE = "gone"  # no instance of ours exists: destroyed, rolled back, or found missing


class PlacementKey(msgspec.Struct, frozen=True, order=True):
    """A place on one GPU: the id of a profile on its board, and the first memory slot."""

    gpu: str
    profile: int
    start: int


class JournalRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line; ``uuid`` is the MIG instance's, where one is known."""

    boot: str
    act: JournalAct
    place: PlacementKey
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Says that the instance at a place is ours."""

    pending: bool  # a change was recorded and its end was not
    uuid: str | None = None  # of the instance; None before it is known


Marks = Mapping[PlacementKey, Mark]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The content of a journal, as far as it is of the present boot."""

    marks: Marks
    damage: tuple[str, ...]  # a sentence about each damaged line


def line_of(record: JournalRecord) -> bytes:
    """Return *record* as a line with its end."""
    body = msgspec.json.encode(record)
    return b"%08x %s\n" % (crc32(body), body)


def apply_record(marks: Marks, record: JournalRecord) -> Marks:
    """Return *marks* with *record* applied."""
    after = {place: mark for place, mark in marks.items() if place != record.place}
    if record.act is not JournalAct.GONE:
        pending = record.act is not JournalAct.COMMIT
        after[record.place] = Mark(pending=pending, uuid=record.uuid)
    return MappingProxyType(after)


def records_of(marks: Marks, boot: str) -> Iterable[JournalRecord]:
    """Return the fewest records that say the same as *marks*."""
    for place, mark in sorted(marks.items(), key=lambda pair: pair[0]):
        act = JournalAct.PREPARE if mark.pending else JournalAct.COMMIT
        yield JournalRecord(boot=boot, act=act, place=place, uuid=mark.uuid)


def parse_journal(data: bytes, boot: str) -> History:
    """Return the marks and the damage of a journal; records of other boots than *boot* are void.

    A last line without its end is left by a crash. It is not damage: its change was never begun.
    """
    marks: Marks = MappingProxyType({})
    damage: list[str] = []
    *lines, tail = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        record = _parse_record(line)
        if record is None:
            damage.append(f"line {number} is damaged: {_excerpt(line)}")
        elif record.boot == boot:
            marks = apply_record(marks, record)
    record = _parse_record(tail)
    if record is not None and record.boot == boot:
        marks = apply_record(marks, record)
    return History(marks=marks, damage=tuple(damage))


def _parse_record(line: bytes) -> JournalRecord | None:
    checksum, _, body = line.partition(b" ")
    if checksum != b"%08x" % crc32(body):
        return None
    try:
        return msgspec.json.decode(body, type=JournalRecord)
    except (ValueError, RecursionError):  # of msgspec, and of text that is no UTF-8
        return None


def _excerpt(line: bytes) -> str:
    return ascii(line[:_EXCERPT_LENGTH].decode(errors="replace"))
