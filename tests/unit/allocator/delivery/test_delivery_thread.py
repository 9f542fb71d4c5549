"""Records reach the console once each, in whole batches, and nobody who writes them waits."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest

from allocator.delivery.batch_queue import LARGEST_RECORD
from allocator.delivery.batch_text import MOST_BYTES, MOST_RECORDS
from allocator.delivery.delivery_client import Acknowledged, Answer, NotDelivered, TooLarge
from allocator.delivery.delivery_thread import AuditDelivery, DeliverySettings
from allocator.delivery.outbox_files import Outbox
from allocator.delivery.spool_files import Segment, Spool
from kube.clock import Clock
from tests.harness.lines import lines_of

QUICK = DeliverySettings(batch_seconds=0.01, first_pause=0.02, longest_pause=0.05, last_seconds=1.0)
AWAY = NotDelivered(why="away")


class FakeConsole:
    """Answers each call by the next of ``answers``, then acknowledges all."""

    def __init__(
        self,
        answers: Sequence[Answer] = (),
        *,
        largest: int | None = None,
        poison: bytes = b"?",
    ) -> None:
        self.poison = poison
        self.answers = list(answers)
        self.largest = largest
        self.calls: list[list[bytes]] = []
        self.stored: list[bytes] = []
        self.error: Exception | None = None
        self.gate, self.quick = threading.Event(), threading.Event()
        self.gate.set()
        self.quick.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def post(self, lines: bytes, *, records: int) -> Answer:
        if not self.quick.is_set():  # the thread does other things meanwhile
            await asyncio.to_thread(self.quick.wait, 5)
        self.gate.wait(5)
        sent = lines.splitlines()
        assert len(sent) == records
        self.calls.append(sent)
        if self.error is not None:
            raise self.error
        if self.largest is not None and len(lines) > self.largest:
            return TooLarge()
        if lines.startswith(self.poison):
            return NotDelivered(why="the console answers 500", others_may_pass=True)
        if self.answers:
            return self.answers.pop(0)
        self.stored += sent
        return Acknowledged(delivered=records)


class Counts:
    def __init__(self) -> None:
        self.dropped = self.delivered = self.rejected = 0

    def count_dropped(self, records: int) -> None:
        self.dropped += records

    def count_delivered(self, records: int) -> None:
        self.delivered += records

    def count_rejected(self, records: int) -> None:
        self.rejected += records


class Delivering:
    """A delivery to a fake console."""

    def __init__(
        self, console: FakeConsole, spool: Path | Spool | None, settings: DeliverySettings
    ) -> None:
        self.counts = Counts()
        self.console = console
        spool = Spool(spool) if isinstance(spool, Path) else spool
        outbox = Outbox(spool, count_lost=self.counts.count_dropped)
        self.delivery = AuditDelivery(outbox, console, counters=self.counts, settings=settings)

    def write(self, *records: str) -> None:
        self.delivery.write(lines_of("".join(f"{record}\n" for record in records).encode()))


@contextmanager
def delivering(
    console: FakeConsole, spool: Path | Spool | None = None, settings: DeliverySettings = QUICK
) -> Iterator[Delivering]:
    started = Delivering(console, spool, settings)
    started.delivery.start()
    try:
        yield started
    finally:
        console.gate.set()
        started.delivery.close()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.005)


def test_what_is_written_is_delivered(tmp_path: Path) -> None:
    """Once, and counted; then nothing waits and the spool is empty."""
    with delivering(FakeConsole(), tmp_path) as started:
        for number in range(30):
            started.write(f"{number}", f"{number}'")
        wait_until(lambda: len(started.console.stored) == 60)
        wait_until(lambda: started.delivery.queue_length == 0)
        wait_until(lambda: not any(tmp_path.iterdir()))  # files go last, in the thread

        assert started.counts.delivered == 60
        assert started.delivery.spooled_bytes == 0


def test_a_call_carries_a_bounded_number_of_records() -> None:
    """However many were written at once."""
    with delivering(FakeConsole()) as started:
        started.write(*map(str, range(3 * MOST_RECORDS + 1)))
        wait_until(lambda: len(started.console.stored) == 3 * MOST_RECORDS + 1)

    assert max(map(len, started.console.calls)) == MOST_RECORDS


def test_records_are_gathered_until_a_batch_is_full() -> None:
    """A call for each would cost the console more than the records."""
    with delivering(FakeConsole(), settings=replace(QUICK, batch_seconds=0.5)) as started:
        for number in range(5):
            started.write(str(number))
            time.sleep(0.01)
        wait_until(lambda: len(started.console.stored) == 5)
        assert len(started.console.calls) == 1
    with delivering(FakeConsole(), settings=replace(QUICK, batch_seconds=60.0)) as started:
        started.write(*map(str, range(MOST_RECORDS + 1)))
        wait_until(lambda: len(started.console.stored) == MOST_RECORDS + 1)
        started.write("the first")
        time.sleep(0.05)  # the thread gathers
        started.write(*map(str, range(MOST_RECORDS)))
        wait_until(lambda: len(started.console.stored) == 2 * (MOST_RECORDS + 1))
        assert [len(call) for call in started.console.calls] == [MOST_RECORDS, 1] * 2


def test_a_batch_that_is_full_before_the_thread_runs_is_sent_at_once() -> None:
    """Nobody can wake it then."""
    console = FakeConsole()
    started = Delivering(console, None, replace(QUICK, batch_seconds=60.0))
    started.write(*map(str, range(MOST_RECORDS + 1)))
    started.delivery.start()
    wait_until(lambda: len(console.stored) == MOST_RECORDS + 1)
    started.delivery.close()


def test_a_call_carries_a_bounded_number_of_bytes() -> None:
    """And what alone is too large is dropped and counted, and delays nothing."""
    large = "x" * (MOST_BYTES // 3)
    with delivering(FakeConsole()) as started:
        started.write(*[large] * 7, "y" * LARGEST_RECORD, "z")
        wait_until(lambda: len(started.console.stored) == 8)

    assert all(sum(map(len, call)) <= MOST_BYTES for call in started.console.calls)
    assert started.counts.dropped == 1


def test_while_the_console_is_away_records_wait_in_the_spool(tmp_path: Path) -> None:
    """In order, and all are there when it returns."""
    with delivering(FakeConsole([AWAY] * 8), tmp_path) as started:
        for number in range(20):
            started.write(str(number))
            time.sleep(0.005)
        wait_until(lambda: len(started.console.stored) == 20)

    assert started.console.stored == [str(number).encode() for number in range(20)]
    assert started.counts.dropped == 0


def test_what_was_not_acknowledged_is_sent_by_the_next_program(tmp_path: Path) -> None:
    """Whatever the first one died of."""
    with delivering(FakeConsole([AWAY] * 1000), tmp_path) as first:
        first.write("a", "b")
        wait_until(lambda: first.delivery.spooled_bytes > 0)
    with delivering(FakeConsole(), tmp_path) as second:
        wait_until(lambda: second.console.stored == [b"a", b"b"])


def stored_records(folder: Path) -> int:
    """Return how many records the files in *folder* hold, which end with that number."""
    return sum(int(file.stem.rpartition("-")[2]) for file in folder.glob("*.segment"))


class NotedSpool(Spool):
    """A spool that notes whether what it stores is durable."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.durable: list[bool] = []

    def store(self, data: bytes, *, records: int, durable: bool) -> Segment:
        self.durable.append(durable)
        return super().store(data, records=records, durable=durable)


def test_what_is_not_acknowledged_soon_is_stored(tmp_path: Path) -> None:
    """The program may be killed while the console is slow; it stores nothing for others."""
    console = FakeConsole()
    console.quick.clear()
    with delivering(console, tmp_path, replace(QUICK, store_seconds=0.05)) as started:
        started.write("a", "b")
        wait_until(lambda: stored_records(tmp_path) == 2)
        assert console.stored == []
        console.quick.set()
        wait_until(lambda: started.counts.delivered == 2)
        wait_until(lambda: stored_records(tmp_path) == 0)


def test_what_is_acknowledged_soon_is_never_stored(tmp_path: Path) -> None:
    """A file would cost as much as the call."""
    console, spool = FakeConsole(), NotedSpool(tmp_path)
    with delivering(console, spool, replace(QUICK, store_seconds=0.2)) as started:
        started.write("a")
        wait_until(lambda: console.stored == [b"a"])
        time.sleep(0.3)

    assert spool.durable == []


@pytest.mark.parametrize("error", [None, RuntimeError("unexpected")])
def test_what_a_call_failed_with_is_stored_at_once(error: Exception | None, tmp_path: Path) -> None:
    """And so is what comes after it, so that it outlives a power failure."""
    console, spool = FakeConsole([AWAY] * 1000), NotedSpool(tmp_path)
    console.error = error
    pause = threading.Event()

    async def sleep(_: float) -> None:
        await asyncio.to_thread(pause.wait, 15)

    settings = replace(QUICK, store_seconds=60.0, clock=Clock(sleep=sleep))
    with delivering(console, spool, settings) as started:
        started.write("a")
        wait_until(lambda: stored_records(tmp_path) == 1)
        started.write("b")
        wait_until(lambda: stored_records(tmp_path) == 2)
        console.error, console.answers = None, []
        pause.set()
        wait_until(lambda: console.stored == [b"a", b"b"])

    assert spool.durable == [True, True]


def test_a_program_that_ends_stores_what_is_left_before_it_sends(tmp_path: Path) -> None:
    """It may be killed while it does."""
    console = FakeConsole()
    console.quick.clear()
    settings = replace(QUICK, batch_seconds=30.0, store_seconds=60.0, last_seconds=5.0)
    with delivering(console, tmp_path, settings) as started:
        started.write("a")
        ending = threading.Thread(target=started.delivery.close)
        ending.start()
        wait_until(lambda: stored_records(tmp_path) == 1)
        console.quick.set()
        ending.join()

    assert console.stored == [b"a"]


def test_a_program_that_ends_sends_what_is_left() -> None:
    """Also what was written just now, and without a spool."""
    with delivering(FakeConsole(), settings=DeliverySettings(batch_seconds=30.0)) as started:
        started.write("a")
        started.write("b")

    assert started.console.stored == [b"a", b"b"]
    assert started.counts.dropped == 0


def test_a_program_that_ends_without_console_and_spool_counts_what_it_loses() -> None:
    """And does not wait for the console."""
    with delivering(FakeConsole([AWAY] * 1000)) as started:
        started.write("a", "b")
        wait_until(lambda: len(started.console.calls) > 0)
        began = time.monotonic()

    assert started.counts.dropped == 2
    assert time.monotonic() - began < 10


def test_a_delivery_that_is_closed_at_once_ends() -> None:
    """Also before its thread ran, and a second time."""
    with delivering(FakeConsole()) as started:
        started.write("a")
    started.delivery.close()

    assert started.console.stored == [b"a"]


def test_a_console_that_hangs_delays_no_writer() -> None:
    """Beyond the bound of the queue records are dropped, and counted."""
    console = FakeConsole()
    console.gate.clear()
    settings = DeliverySettings(queue_limit=1000, batch_seconds=0.01)
    with delivering(console, settings=settings) as started:
        started.write("first")
        time.sleep(0.1)  # the thread hangs in its call from here on
        began = time.monotonic()
        for _ in range(1000):
            started.write("x" * 9)
        seconds = time.monotonic() - began

        assert seconds < 4  # a call hangs for five
        assert started.counts.dropped == 900
        assert started.delivery.queue_length == 101
        console.gate.set()
        wait_until(lambda: len(console.stored) == 101)


def test_rejected_records_are_counted_and_not_sent_again() -> None:
    """The others are delivered."""
    console = FakeConsole([Acknowledged(delivered=2, rejected=1, reasons=("no id",))])
    with delivering(console) as started:
        started.write("a", "b", "c")
        wait_until(lambda: started.counts.rejected == 1)
        started.write("d")
        wait_until(lambda: console.stored == [b"d"])

    assert (started.counts.delivered, started.counts.dropped) == (3, 0)
    assert console.calls == [[b"a", b"b", b"c"], [b"d"]]


def test_what_is_too_large_is_halved_until_it_is_not(tmp_path: Path) -> None:
    """A single record that is too large is given up, and counted as rejected."""
    with delivering(FakeConsole(largest=20), tmp_path) as started:
        started.write(*(f"{number:04d}" for number in range(40)), "x" * 50, "last")
        wait_until(lambda: len(started.console.stored) == 41)
        wait_until(lambda: started.delivery.queue_length == 0)

    assert sorted(started.console.stored) == started.console.stored
    assert (started.counts.rejected, started.counts.dropped) == (1, 0)


def test_a_batch_that_the_console_cannot_take_holds_up_no_other() -> None:
    """It is tried again, and delivered once it can be."""
    console = FakeConsole(poison=b"a")
    with delivering(console) as started:
        started.write("a" * (MOST_BYTES - 9))
        wait_until(lambda: len(console.calls) > 0)
        started.write("b" * (MOST_BYTES - 9))
        wait_until(lambda: len(console.stored) == 1)

        assert console.stored[0].startswith(b"b")
        console.poison = b"c"
        wait_until(lambda: len(console.stored) == 2)


def test_an_unexpected_error_ends_no_delivery() -> None:
    """It is logged, and the records are sent again."""
    console = FakeConsole()
    console.error = RuntimeError("unexpected")
    with delivering(console) as started:
        started.write("a")
        wait_until(lambda: len(console.calls) > 2)
        console.error = None
        wait_until(lambda: console.stored == [b"a"])


def test_a_pause_that_the_console_asks_for_is_kept() -> None:
    """It is busy, and everybody calls it again at once otherwise."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    settings = replace(QUICK, clock=Clock(sleep=sleep, random=lambda: 1.0))
    console = FakeConsole([NotDelivered(why="503", pause=7.0), AWAY, AWAY, AWAY])
    with delivering(console, settings=settings) as started:
        started.write("a")
        wait_until(lambda: console.stored == [b"a"])

    assert slept == [7.0, 0.04, 0.05, 0.05]
