"""Records outlive the absence of the console, a kill of their program, and a bad disk."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from allocator.delivery.delivery_client import DeliveryClient
from allocator.delivery.delivery_metrics import DeliveryMetrics
from allocator.delivery.delivery_thread import AuditDelivery, DeliverySettings
from allocator.delivery.outbox_files import Outbox
from allocator.delivery.spool_files import Spool
from tests.cluster.ports import free_port
from tests.fakes.pki import Authority
from tests.fakes.records_console import RecordsConsole, SenderFiles, listening
from tests.harness.lines import lines_of

ROOT = Path(__file__).parents[4]
QUICK = DeliverySettings(batch_seconds=0.02, first_pause=0.1, longest_pause=0.2, last_seconds=0.5)


class Sending:
    """A delivery to a port, over real TLS."""

    def __init__(self, port: int, files: SenderFiles, spool: Path) -> None:
        self.registry = CollectorRegistry()
        metrics = DeliveryMetrics(self.registry)
        client = DeliveryClient(files.access(f"https://127.0.0.1:{port}"), timeout=2)
        outbox = Outbox(Spool(spool), count_lost=metrics.count_dropped)
        self.delivery = AuditDelivery(outbox, client, counters=metrics, settings=QUICK)
        metrics.follow(self.delivery)

    def write(self, *ids: str) -> None:
        records = (b'{"id":"%s"}\n' % each.encode() for each in ids)
        self.delivery.write(lines_of(b"".join(records)))

    def figure(self, name: str) -> float:
        value = self.registry.get_sample_value(name)
        assert value is not None
        return value


@contextmanager
def sending(port: int, files: SenderFiles, spool: Path) -> Iterator[Sending]:
    started = Sending(port, files, spool)
    started.delivery.start()
    try:
        yield started
    finally:
        started.delivery.close()


def wait_until(holds: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


@pytest.fixture
def authority() -> Authority:
    return Authority("ours")


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> SenderFiles:
    files = SenderFiles(tmp_path / "files")
    files.write(authority)
    return files


def numbers(first: int, last: int) -> tuple[str, ...]:
    return tuple(map(str, range(first, last)))


def test_records_outlive_an_absent_console(
    tmp_path: Path, files: SenderFiles, authority: Authority
) -> None:
    """It goes away in the middle, returns, and has each record once."""
    console, port = RecordsConsole(), free_port()
    with sending(port, files, tmp_path / "spool") as sender:
        sender.write(*numbers(0, 100))
        wait_until(lambda: sender.figure("vgpu_audit_spooled_bytes") > 0)
        with listening(console, authority, port):
            wait_until(lambda: len(console.stored) == 100)
            # Stored is not yet acknowledged: what is not would be sent again, and wait until then.
            wait_until(lambda: sender.figure("vgpu_audit_queue_length") == 0)
        sender.write(*numbers(100, 200))
        wait_until(lambda: sender.figure("vgpu_audit_spooled_bytes") > 0)
        waiting = sender.figure("vgpu_audit_queue_length")
        with listening(console, authority, port):
            wait_until(lambda: len(console.stored) == 200)
            wait_until(lambda: sender.figure("vgpu_audit_queue_length") == 0)

    assert waiting == 100
    assert sender.figure("vgpu_audit_delivered_total") == 200
    assert sender.figure("vgpu_audit_dropped_total") == 0
    assert sender.figure("vgpu_audit_spooled_bytes") == 0
    assert sorted(console.stored, key=int) == list(console.stored)


def test_an_answer_that_is_lost_stores_nothing_twice(
    tmp_path: Path, files: SenderFiles, authority: Authority
) -> None:
    """The console has the records, and gets them again, because it could not say so."""
    console = RecordsConsole()

    async def hang_up(
        _reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes
    ) -> None:
        console.store(body)
        console.script = None
        writer.transport.abort()

    console.script = hang_up
    with (
        listening(console, authority) as port,
        sending(port, files, tmp_path / "spool") as sender,
    ):
        sender.write(*numbers(0, 5))
        wait_until(lambda: sender.figure("vgpu_audit_delivered_total") == 5)

    assert console.stored == dict.fromkeys(numbers(0, 5), 2)


@pytest.mark.parametrize("away", [False, True], ids=["with-console", "console-away"])
def test_a_kill_loses_nothing_that_was_spooled_or_acknowledged(
    tmp_path: Path, files: SenderFiles, authority: Authority, *, away: bool
) -> None:
    """Of a program that writes all the time, the next one sends what the first had spooled."""
    console, port, spool = RecordsConsole(), free_port(), tmp_path / "spool"
    stored_at_kill: set[str] = set()
    for _ in range(3):
        with listening(console, authority, free_port() if away else port):
            program = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.harness.audit_sender"),
                    *(f"https://127.0.0.1:{port}", files.folder, spool),
                ],
                cwd=ROOT,
            )
            ready = (lambda: any(spool.glob("*.segment"))) if away else (lambda: console.calls > 2)
            try:
                wait_until(ready)
                time.sleep(0.7)
            finally:
                program.send_signal(signal.SIGKILL)
                program.wait()
        stored_at_kill |= console.stored.keys()
        spooled = spooled_ids(spool)
        with (
            listening(console, authority, port),
            sending(port, files, spool) as sender,
        ):
            wait_until(lambda: sender.figure("vgpu_audit_queue_length") == 0)

        assert sender.figure("vgpu_audit_dropped_total") == 0
        assert stored_at_kill | spooled <= console.stored.keys()
        assert spooled_ids(spool) == set()
        assert spooled or not away
        console.calls = 0


def spooled_ids(folder: Path) -> set[str]:
    """Return what a killed program left, by the test's own reading of it."""
    return {
        json.loads(line)["id"]
        for file in folder.glob("*.segment")
        for line in file.read_bytes().splitlines()[1:]
    }


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[None]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mount") is None, reason="mounts a file system"
)


@needs_root
@pytest.mark.parametrize("state", ["full", "read-only"])
def test_a_disk_that_takes_nothing_delays_nothing(
    tmp_path: Path, files: SenderFiles, authority: Authority, *, state: str
) -> None:
    """Records wait in memory instead, and are delivered."""
    console, port, spool = RecordsConsole(), free_port(), tmp_path / "disk"
    with small_disk(spool, "size=64k" if state == "full" else "ro,size=64k"):
        if state == "full":
            (spool / "filler").write_bytes(b"x" * 60 * 1024)
        with sending(port, files, spool) as sender:
            began = time.monotonic()
            for number in range(40):
                sender.write(f"{number}", "x" * 2000 + str(number))
                time.sleep(0.005)
            seconds = time.monotonic() - began
            wait_until(lambda: sender.figure("vgpu_audit_queue_length") == 80)
            with listening(console, authority, port):
                wait_until(lambda: sender.figure("vgpu_audit_queue_length") == 0)

        assert seconds < 10
        assert len(console.stored) == 80
        assert sender.figure("vgpu_audit_dropped_total") == 0
        assert list(spool.glob("*.segment*")) == []


@needs_root
def test_a_disk_that_is_full_for_a_while_is_used_again(
    tmp_path: Path, files: SenderFiles, authority: Authority
) -> None:
    """What waited in memory meanwhile is delivered with the rest."""
    console, port, spool = RecordsConsole(), free_port(), tmp_path / "disk"
    with small_disk(spool, "size=128k"), sending(port, files, spool) as sender:
        filler = spool / "filler"
        filler.write_bytes(b"x" * 124 * 1024)
        sender.write("in memory", "x" * 8000)
        wait_until(lambda: sender.figure("vgpu_audit_queue_length") == 2)
        time.sleep(0.1)
        in_memory = sender.figure("vgpu_audit_spooled_bytes")
        filler.unlink()
        sender.write("on disk")
        wait_until(lambda: sender.figure("vgpu_audit_spooled_bytes") > 0)
        with listening(console, authority, port):
            wait_until(lambda: sender.figure("vgpu_audit_queue_length") == 0)

    assert in_memory == 0
    assert set(console.stored) == {"in memory", "x" * 8000, "on disk"}
