"""The console records its own certificate, in its own store."""

import asyncio
import contextlib
from collections.abc import Sequence
from ipaddress import ip_address

from structlog.testing import capture_logs

from allocator.audit.record import CertificateRecord, Component
from allocator.audit.record_source import RecordSource
from certs.issue import IssueParameters, Names
from certs.refresh_controller import CertificateReason, Notice, throwaway
from certs.tls_server import ServingPair
from console.receive.certificate_log import (
    MOST_WAITING,
    RETRY_SECONDS,
    SENDER,
    ConsoleCertificateLog,
)
from console.receive.store_thread import QueueFullError, StoreThread
from console.records.rows import StoredRecord
from console.store.store import StoreError
from tests.fakes.kube_clock import FakeClock
from tests.fakes.record_store import FakeRecordStore

PARAMETERS = IssueParameters(names=Names(dns=("c",), addresses=(ip_address("127.0.0.1"),)))


class Kept(FakeRecordStore):
    """Keeps what is appended, after some failures."""

    def __init__(self, *failures: Exception) -> None:
        super().__init__()
        self.kept: list[StoredRecord] = []
        self.failures = list(failures)

    def append(self, records: Sequence[StoredRecord]) -> int:
        if self.failures:
            raise self.failures.pop(0)
        self.kept += records
        return len(records)


def serving() -> ServingPair:
    pair = ServingPair()
    assert pair.load(throwaway(PARAMETERS)[1]) == ()
    return pair


def stored(
    *news: ServingPair | Notice,
    failures: Sequence[Exception] = (),
    clock: FakeClock | None = None,
    wanted: int = 0,
) -> list[CertificateRecord]:
    """Tell a console's log of *news*, and return what it has stored."""
    store, clock = Kept(*failures), clock or FakeClock()

    async def run() -> None:
        with contextlib.closing(StoreThread(store)) as thread:
            log = ConsoleCertificateLog(
                writer=thread, source=RecordSource(Component.CONSOLE), clock=clock.clock()
            )
            for one in news:
                if isinstance(one, ServingPair):
                    log.note_loaded(one)
                else:
                    log.announce(one)
            running = asyncio.create_task(log.run())
            expected = wanted or min(len(news), MOST_WAITING)
            async with asyncio.timeout(10):
                while len(store.kept) < expected:  # noqa: ASYNC110 -- a thread does it
                    await asyncio.sleep(0.01)
            running.cancel()

    asyncio.run(run())
    assert {one.sender for one in store.kept} == {SENDER}
    records = [one.record for one in store.kept]
    assert all(isinstance(record, CertificateRecord) for record in records)
    return records  # type: ignore[return-value]  # as was just seen


def test_a_certificate_that_is_served_is_stored_with_its_end() -> None:
    """Both ports serve it; a store keeps one of two records with one identifier."""
    one, other = serving(), serving()

    first, second, third = stored(one, one, other)

    assert one.not_after is not None
    assert first.not_after == one.not_after.isoformat()
    assert first.component is Component.CONSOLE
    assert first.id == second.id != third.id
    assert first.text.endswith("of the console is in use")


def test_a_fault_is_stored_as_one() -> None:
    """What was not renewed is not done; its text steers no terminal."""
    (record,) = stored(Notice(CertificateReason.EXPIRING, "ends\x1b[2J soon" + "x" * 9999))

    assert not record.done
    assert record.text.startswith("console: ends\ufffd[2J soon")
    assert len(record.text) < 1100


def test_a_store_that_fails_gets_it_later() -> None:
    """Nothing is lost by a disk or queue that is full for a while; neither is asked at once."""
    clock = FakeClock()
    full = (
        StoreError("the disk is full"),
        QueueFullError("many wait"),
        StoreError("the disk is full"),
    )
    with capture_logs() as logs:
        assert len(stored(serving(), failures=full, clock=clock)) == 1

    assert clock.slept == [RETRY_SECONDS] * 3
    assert [(line["event"], line["why"]) for line in logs] == [
        ("record of a certificate not stored yet", str(error)) for error in full
    ]


def test_before_a_certificate_is_loaded_there_is_nothing_to_say() -> None:
    """The record that is stored is that of the one that was loaded then."""
    pair = serving()
    assert pair.fingerprint is not None

    (record,) = stored(ServingPair(), pair, wanted=1)

    assert record.text == f"serving certificate {pair.fingerprint[:16]} of the console is in use"


def test_what_waits_is_bounded() -> None:
    """A console whose store does not answer goes on."""
    notice = Notice(CertificateReason.RENEW_FAILED, "x")

    with capture_logs() as logs:
        assert len(stored(*[notice] * (2 * MOST_WAITING))) == MOST_WAITING
    dropped = [line for line in logs if line["event"] == "record of a certificate dropped"]
    assert len(dropped) == MOST_WAITING
