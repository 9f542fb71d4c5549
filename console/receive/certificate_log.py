"""Records of the console's own certificate, written to the store that it serves."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Never

import structlog

from allocator.audit.record import CertificateRecord, Component
from allocator.audit.record_source import RecordSource, content_id
from allocator.model.untrusted import inert
from certs.refresh_controller import CertificateReason, Notice
from certs.tls_server import ServingPair
from console.receive.store_thread import QueueFullError, StoreThread
from console.records.rows import StoredRecord
from console.store.store import StoreError
from kube.clock import SYSTEM, Clock

SENDER: Final = "the console itself"
LONGEST_TEXT: Final = 1000  # characters
MOST_WAITING: Final = 64  # records
RETRY_SECONDS: Final = 10.0
log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class ConsoleCertificateLog:
    """Takes news of the certificate, and stores them behind whoever has them."""

    writer: StoreThread
    source: RecordSource
    now: Callable[[], datetime] = SYSTEM.wall
    clock: Clock = SYSTEM
    _waiting: asyncio.Queue[CertificateRecord] = field(
        default_factory=lambda: asyncio.Queue(MOST_WAITING), init=False
    )

    def note_loaded(self, pair: ServingPair) -> None:
        """Record that *pair* is served from now on; both ports serve the same one."""
        if pair.fingerprint is None or pair.not_after is None:
            return
        self._take(
            f"serving certificate {pair.fingerprint[:16]} of the console is in use",
            not_after=pair.not_after.isoformat(),
            record_id=content_id("console certificate", pair.fingerprint),
        )

    def announce(self, notice: Notice) -> None:
        """Record *notice*."""
        done = notice.reason is CertificateReason.RENEWED
        self._take(f"console: {inert(notice.note[:LONGEST_TEXT])}", done=done)

    def _take(
        self, text: str, *, done: bool = True, not_after: str = "", record_id: str = ""
    ) -> None:
        stamp = self.source.stamp(self.now())
        record = CertificateRecord(
            id=record_id or stamp.id,
            at=stamp.at,
            component=Component.CONSOLE,
            instance=stamp.instance,
            version=stamp.version,
            text=text,
            done=done,
            not_after=not_after,
        )
        try:
            self._waiting.put_nowait(record)
        except asyncio.QueueFull:
            log.warning("record of a certificate dropped", text=text)

    async def run(self) -> Never:
        """Store what was taken, for ever; a store that fails is tried again."""
        while True:
            record = await self._waiting.get()
            while not await self._stored(record):
                await self.clock.sleep(RETRY_SECONDS)

    async def _stored(self, record: CertificateRecord) -> bool:
        try:
            await self.writer.append([StoredRecord(record=record, sender=SENDER)])
        except (QueueFullError, StoreError) as error:
            log.warning("record of a certificate not stored yet", why=str(error))
            return False
        return True
