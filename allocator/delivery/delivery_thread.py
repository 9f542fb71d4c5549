"""Delivery: takes lines of records, and sends them to the console from a thread of its own.

Whoever writes never waits: lines go into a bounded queue in memory. Four times a second, or when
there are enough, the thread moves them to the outbox, and sends from there. They leave it when the
console has acknowledged them. What it does not acknowledge at once goes into the spool, and is sent
by the next program where this one is killed. The console may get a record twice, and knows it by
its id.
"""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from allocator.audit.line_buffer import LineBuffer
from allocator.delivery.batch_queue import QUEUE_LIMIT, BatchQueue
from allocator.delivery.batch_text import MOST_BYTES, MOST_RECORDS
from allocator.delivery.delivery_client import Acknowledged, Answer, NotDelivered, TooLarge
from allocator.delivery.outbox_files import Batch, Outbox, Parcel
from kube.clock import SYSTEM, Clock

# A killed program loses what it has not stored, so both together are half a second.
BATCH_SECONDS: Final = 0.25  # for which lines are gathered
STORE_SECONDS: Final = 0.25  # that the console has for acknowledging a batch that is not stored
FIRST_PAUSE: Final = 2.0  # seconds; half of it is fixed, so at least one passes
LONGEST_PAUSE: Final = 30.0  # seconds
LOG_INTERVAL: Final = 30.0  # seconds between two lines about one thing
LAST_SECONDS: Final = 2.0  # for sending what is left when the program ends
_SHORTEST_PAUSE: Final = 1.0  # seconds, whatever the console asks for
log = structlog.get_logger(__name__)


class RecordsClient(Protocol):
    """Sends lines of records; :class:`allocator.delivery.delivery_client.DeliveryClient` does."""

    async def post(self, lines: bytes, *, records: int) -> Answer:
        """Send *lines*, which are that many *records*; raises nothing."""


class DeliveryCounters(Protocol):
    """Counts records for metrics, from any thread."""

    def count_dropped(self, records: int) -> None:
        """Count records that had to be given up."""

    def count_delivered(self, records: int) -> None:
        """Count records that the console acknowledged."""

    def count_rejected(self, records: int) -> None:
        """Count records that the console did not accept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    """Bounds and times, in one place so that tests can shorten them."""

    queue_limit: int = QUEUE_LIMIT  # bytes
    batch_seconds: float = BATCH_SECONDS
    store_seconds: float = STORE_SECONDS
    first_pause: float = FIRST_PAUSE  # seconds
    longest_pause: float = LONGEST_PAUSE  # seconds
    last_seconds: float = LAST_SECONDS
    clock: Clock = SYSTEM


class AuditDelivery:
    """A sink of JSON lines whose thread sends them to the console."""

    def __init__(
        self,
        outbox: Outbox,
        client: AbstractAsyncContextManager[RecordsClient],
        *,
        counters: DeliveryCounters,
        settings: DeliverySettings | None = None,
    ) -> None:
        """Do nothing yet; the thread owns *outbox* and *client* from :meth:`start` on."""
        self._outbox = outbox
        self._client = client
        self._counters = counters
        self._settings = settings or DeliverySettings()
        self._queue = BatchQueue(self._settings.queue_limit)
        self._lock = threading.Lock()  # of the queue; nobody holds it for long
        self._loop: asyncio.AbstractEventLoop | None = None
        self._arrived = asyncio.Event()  # lines in the queue
        self._filled = asyncio.Event()  # a batch in the queue, or the program ends
        self._moved = asyncio.Event()  # batches in the outbox
        self._stopping = asyncio.Event()
        self._closed = False
        self._failures = 0  # calls in a row
        self._failure_logged = "", 0.0  # why, and when
        self._rejection_logged: float | None = None
        self._most_records = MOST_RECORDS
        self._thread = threading.Thread(target=self._run, name="audit-delivery", daemon=True)

    @property
    def queue_length(self) -> int:
        """Return how many records wait, in memory or in the spool."""
        return self._queue.records + self._outbox.records

    @property
    def spooled_bytes(self) -> int:
        """Return how much of the disk the spool takes."""
        return self._outbox.spooled_bytes

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def write(self, lines: LineBuffer, /) -> None:
        """Queue *lines*, or drop and count them; never waits."""
        with self._lock:
            before = self._queue.batches
            dropped = self._queue.add(lines)
            filled = before <= 1 < self._queue.batches
        if dropped:
            self._counters.count_dropped(dropped)
        if not before:
            self._set(self._arrived)
        if filled:
            self._set(self._filled)

    def close(self) -> None:
        """Spool what is left, try briefly to send it, and end the thread; waits some seconds."""
        self._closed = True
        if not self._thread.is_alive():
            return
        for event in (self._stopping, self._arrived, self._filled):
            self._set(event)
        self._thread.join(self._settings.last_seconds + 1.0)

    def _set(self, event: asyncio.Event) -> None:
        loop = self._loop
        if loop is not None:  # otherwise the thread looks when it begins
            with suppress(RuntimeError):  # the thread has ended
                loop.call_soon_threadsafe(event.set)

    def _run(self) -> None:
        try:
            asyncio.run(self._deliver())
        except Exception:
            log.exception("delivery of audit records ended")

    async def _deliver(self) -> None:
        self._outbox.open()
        self._loop = asyncio.get_running_loop()
        self._arrived.set()  # lines may have come before the loop was known
        with self._lock:
            if self._queue.batches > 1:
                self._filled.set()
        if self._closed:
            self._stopping.set()
        async with self._client as client:
            sender = asyncio.create_task(self._send_forever(client))
            try:
                await self._move_forever()
            finally:
                self._store_all()
                sender.cancel()
                await asyncio.wait([sender])
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.last_seconds):
                    await self._send_rest(client)
            self._outbox.close()

    async def _move_forever(self) -> None:
        """Move lines from the queue to the outbox, until the program ends."""
        while not self._stopping.is_set():
            await self._arrived.wait()
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.batch_seconds):
                    await self._filled.wait()
            self._move()
        self._move()

    def _move(self) -> None:
        with self._lock:
            batches = self._queue.take()
        self._filled.clear()
        if not batches:
            return
        added = [self._outbox.add(batch) for batch in batches]
        if self._failures:
            self._store_all()
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(self._settings.store_seconds, self._store, added)
        self._moved.set()

    def _store(self, batches: Sequence[Batch]) -> None:
        self._outbox.store(batches, durable=False)

    def _store_all(self) -> None:
        """Store all that waits; once a call failed, it may wait for long."""
        self._outbox.store_all(durable=self._failures > 0)

    async def _send_forever(self, client: RecordsClient) -> None:
        while True:
            try:
                await self._send_once(client)
            except Exception:
                # Nothing that a console answers may end the delivery.
                log.exception("delivery of audit records failed")
                self._failures += 1
                self._store_all()
                await self._settings.clock.sleep(self._settings.longest_pause)

    async def _send_once(self, client: RecordsClient) -> None:
        """Wait for something to send, send it, and wait as long as the answer asks for."""
        if (parcel := self._next()) is None:
            self._moved.clear()
            await self._moved.wait()
        elif (pause := await self._send(client, parcel)) > 0:
            await self._settings.clock.sleep(pause)

    async def _send_rest(self, client: RecordsClient) -> None:
        """Send what is left, until a call fails."""
        while (parcel := self._next()) is not None:
            if await self._send(client, parcel) > 0:
                return

    def _next(self) -> Parcel | None:
        return self._outbox.next(most_records=self._most_records, most_bytes=MOST_BYTES)

    async def _send(self, client: RecordsClient, parcel: Parcel) -> float:
        """Send once; return the seconds to wait before the next call."""
        return self._settle(parcel, await client.post(parcel.data, records=parcel.records))

    def _settle(self, parcel: Parcel, answer: Answer) -> float:
        """Do what *answer* asks for; return the seconds to wait."""
        match answer:
            case Acknowledged():
                self._note_success(answer)
                self._outbox.remove(parcel.batches)
            case TooLarge():
                self._make_smaller(parcel)
            case NotDelivered():
                if answer.others_may_pass:
                    self._outbox.defer(parcel.batches)
                return self._note_failure(answer)
        return 0.0

    def _note_success(self, answer: Acknowledged) -> None:
        if self._failures:
            log.info("audit records reach the console again", waiting=self.queue_length)
        self._failures, self._most_records = 0, MOST_RECORDS
        self._counters.count_delivered(answer.delivered)
        if answer.rejected:
            self._note_rejection(answer.rejected, answer.reasons)

    def _note_failure(self, answer: NotDelivered) -> float:
        self._failures += 1
        self._store_all()
        settings = self._settings
        now, (why, logged) = settings.clock.monotonic(), self._failure_logged
        if self._failures == 1 or (answer.why != why and now - logged >= LOG_INTERVAL):
            self._failure_logged = answer.why, now
            log.warning("audit records wait for the console", why=answer.why)
        pause = settings.clock.backoff(
            self._failures, first=settings.first_pause, most=settings.longest_pause
        )
        return pause if answer.pause is None else max(answer.pause, _SHORTEST_PAUSE, pause)

    def _make_smaller(self, parcel: Parcel) -> None:
        """Send fewer batches at once, or half of one; a single record is given up."""
        if len(parcel.batches) > 1:
            self._most_records = 1
        elif parcel.records > 1:
            self._outbox.split(parcel.batches[0])
        else:
            self._outbox.remove(parcel.batches)
            self._note_rejection(1, (f"a record of {len(parcel.data)} bytes is too large",))

    def _note_rejection(self, records: int, reasons: tuple[str, ...]) -> None:
        """Count it, and log it now and then."""
        self._counters.count_rejected(records)
        now, logged = self._settings.clock.monotonic(), self._rejection_logged
        if logged is None or now - logged >= LOG_INTERVAL:
            self._rejection_logged = now
            log.warning("console rejects records", records=records, why=reasons)
