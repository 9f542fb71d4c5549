"""The audit log: a record costs its caller no waiting, and one bad sink keeps nothing back."""

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from allocator.audit.audit_log import (
    BATCH,
    AuditLog,
    FileSink,
    Sink,
)
from allocator.audit.line_buffer import MOST_PENDING, LineBuffer, LineEnd
from allocator.audit.lines import line_of
from allocator.audit.record import SettingsRecord
from allocator.audit.record_writer import LARGEST_BATCH
from tests.harness.lines import lines_of
from tests.harness.records import strict_record

RECORD: Mapping[str, Any] = {
    "kind": "settings",
    "id": "0" * 32,
    "at": "2026-05-04T12:00:00.000+00:00",
    "component": "webhook",
    "configmap": "c",
    "content_digest": "d",
    "text": "fleet: open\n",
}


class Lines:
    def __init__(self) -> None:
        self.data = b""

    def write(self, lines: LineBuffer, /) -> None:
        self.data += b"".join(lines.chunks())


class File:
    def __init__(self) -> None:
        self.data = b""
        self.flushed = 0

    def write(self, data: bytes, /) -> None:
        self.data += data

    def flush(self) -> None:
        self.flushed += 1


class Slow(Lines):
    def write(self, lines: LineBuffer, /) -> None:
        time.sleep(0.1)
        super().write(lines)


class FullDisk(Lines):
    def write(self, _lines: LineBuffer, /) -> None:
        raise OSError(28, "No space left on device")


def written(*sinks: Sink, records: int = 1) -> int:
    """Write to *sinks* and return how many records were dropped."""
    dropped: list[None] = []

    async def write() -> None:
        journal = AuditLog(sinks, dropped=lambda: dropped.append(None))
        for _ in range(records):
            journal.remember(RECORD)
        task = asyncio.create_task(journal.run())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(write())
    return len(dropped)


def test_each_sink_gets_whole_lines() -> None:
    """In the order of the records, also those that are pending when the program ends."""
    one, other = Lines(), Lines()

    assert written(one, other, records=3) == 0
    assert one.data == other.data
    assert [type(strict_record(line)) for line in one.data.splitlines()] == [SettingsRecord] * 3


def test_a_sink_that_fails_keeps_nothing_from_the_others() -> None:
    """Standard output may be closed, or a disk full."""
    lines = Lines()

    assert written(FullDisk(), lines) == 0
    assert lines.data.count(b"\n") == 1


def test_what_finds_the_queue_full_is_dropped_and_counted() -> None:
    """A slow reader costs records, never the memory of the program."""
    lines = Lines()
    most = MOST_PENDING // len(line_of(RECORD) or b"")

    assert written(lines, records=most + 4) == 4
    assert lines.data.count(b"\n") == most


def test_lines_in_parts_are_bounded_too() -> None:
    """By all that is written of them."""
    dropped = list[None]()
    journal = AuditLog((Lines(),), dropped=lambda: dropped.append(None))
    for _ in range(2000):
        journal.remember_parts(b"x" * 384, LineEnd(b"", b"x" * 16_000))

    assert len(dropped) == 2000 - MOST_PENDING // 16_384


def test_nothing_is_lost_when_the_program_ends_during_a_write() -> None:
    """The thread goes on, and then writes the rest."""
    slow = Slow()

    async def write() -> None:
        journal = AuditLog((slow,), dropped=lambda: None)
        task = asyncio.create_task(journal.run())
        for _ in range(5):
            journal.remember(RECORD)
            await asyncio.sleep(0.06)
        task.cancel()
        journal.remember(RECORD)
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(write())

    assert slow.data.count(b"\n") == 6


def test_what_cannot_be_written_is_dropped_and_counted() -> None:
    """Settings that are too large are not cut, and nobody who asked notices."""
    dropped: list[None] = []
    journal = AuditLog((), dropped=lambda: dropped.append(None))

    journal.remember({**RECORD, "text": "x" * 2**21})

    assert len(dropped) == 1


def test_a_sink_can_be_switched_while_it_is_in_use() -> None:
    """By a setting."""
    file, enabled = File(), [False]
    sink = FileSink(file=file, enabled=lambda: enabled[-1])

    sink.write(lines_of(b"{}\n"))
    assert (file.data, file.flushed) == (b"", 0)
    enabled.append(True)
    sink.write(lines_of(b"[]\n"))

    assert (file.data, file.flushed) == (b"[]\n", 1)


def test_records_are_made_several_at_a_time() -> None:
    """As many as wait, or as few as hold much; what is left at each write."""
    journal, made = AuditLog((), dropped=lambda: None), list[int]()

    for number in range(BATCH - 1):
        journal.defer(partial(made.append, number), 10)
    assert made == []
    journal.defer(lambda: made.append(-1), 10)
    assert made == [*range(BATCH - 1), -1]
    journal.defer(lambda: made.append(-2), LARGEST_BATCH)
    assert made[-1] == -2


def fail() -> None:
    raise ValueError("a record that nobody foresaw")


def test_a_record_that_cannot_be_made_costs_only_itself() -> None:
    """It is counted, and logged with what went wrong."""
    lines, dropped = Lines(), list[None]()

    async def write() -> None:
        journal = AuditLog((lines,), dropped=lambda: dropped.append(None))
        journal.defer(fail, 1)
        journal.defer(lambda: journal.remember(RECORD), 1)
        task = asyncio.create_task(journal.run())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(write())

    assert (len(dropped), lines.data.count(b"\n")) == (1, 1)
