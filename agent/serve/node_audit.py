"""The agent's audit log: records of this node, to standard output and to the console.

The certificate by which the console knows the agent is recorded too, whenever it is another one.
"""

import asyncio
import contextlib
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path
from typing import Final, Never

from agent.health.start_times import StartTimes
from agent.monitor.metrics import AgentMetrics
from agent.monitor.violation import ObservedUse
from agent.node.node_informer import NodeInformer
from agent.serve.node_records import LONGEST_TEXT, NodeRecords
from agent.serve.options import AgentOptions
from allocator.audit.audit_log import AuditLog, FileSink, Sink
from allocator.audit.line_buffer import LineBuffer
from allocator.audit.record import Component
from allocator.audit.record_source import ENTROPY_BITS, RecordSource, content_id
from allocator.audit.record_writer import RecordWriter, WriteRecord
from allocator.cli.audit import audit_delivery
from allocator.model.untrusted import inert
from certs.pem import certificates, fingerprint
from certs.rotation_policy import DEFAULT, is_expiring
from kube.clock import SYSTEM

CERTIFICATE_SECONDS: Final = 60.0  # between two looks; the delivery reads it as often
MOST_BYTES: Final = 64 * 1024  # of a certificate with its chain


class ClientCertificateLog:
    """Records which certificate the console knows the agent of *node* by, and what is wrong."""

    def __init__(
        self, node: str, write_record: WriteRecord, *, now: Callable[[], datetime] = SYSTEM.wall
    ) -> None:
        """Write nothing yet."""
        self._node = node
        self._write_record = write_record
        self._now = now
        self._used = ""  # fingerprint of the last one
        self._fault = ""  # of the last look

    def note(self, text: bytes | str) -> None:
        """Look at the *text* of the file, PEM, or at why it could not be read."""
        found = certificates(text) if isinstance(text, bytes) else ()
        if not found:
            why = text if isinstance(text, str) else "it holds no certificate, in PEM"
            self._tell(f"the client certificate cannot be read: {why}")
            return
        until, used = found[0].not_valid_after_utc, fingerprint(found[0])
        if used != self._used:
            self._used = used
            fields = {
                "node": self._node,
                "text": f"client certificate {used[:16]} is in use",
                "not_after": until.isoformat(),
            }
            record_id = content_id("client certificate", self._node, used)
            self._write_record("certificate", fields, record_id=record_id)
        expiring = is_expiring(until, self._now(), DEFAULT)
        note = f"the client certificate ends at {until.isoformat()} and was not renewed"
        self._tell(note if expiring else "")

    def _tell(self, fault: str) -> None:
        """Record a *fault* that is another one than before; empty: there is none."""
        if fault and fault != self._fault:
            fields = {"node": self._node, "text": inert(fault[:LONGEST_TEXT]), "done": False}
            self._write_record("certificate", fields)
        self._fault = fault


def _bytes_of(file: Path) -> bytes | str:
    """Return the content of a *file*, or why it cannot be read."""
    try:
        with file.open("rb") as opened:
            return opened.read(MOST_BYTES)
    except OSError as error:
        return str(error)


class NodeAudit:
    """Makes the records of a node, and writes them behind the calls that they are about.

    It is a sink itself, because the delivery begins later than the log.
    """

    def __init__(
        self,
        options: AgentOptions,
        informer: NodeInformer,
        metrics: AgentMetrics,
        *,
        version: str,
    ) -> None:
        """Write nothing before :meth:`run`."""
        self._options = options
        self._informer = informer
        self._metrics = metrics.delivery
        self._start_times = StartTimes(metrics.observe_start)
        self._delivery: tuple[Sink, ...] = ()
        output = FileSink(file=sys.stdout.buffer, enabled=lambda: informer.settings.audit.stdout)
        self._log = AuditLog((output, self), dropped=self._metrics.count_dropped)
        source = RecordSource(
            Component.AGENT,
            instance=options.instance,
            version=version,
            entropy=secrets.randbits(ENTROPY_BITS),
        )

        def digest_of(uid: str) -> str:
            pod = informer.pods.get(uid)
            return "" if pod is None else pod.digest

        writer = RecordWriter(sink=self._log, source=source, now=SYSTEM.wall)
        self._write_record = writer.write
        self.records = NodeRecords(options.node, writer, digest_of=digest_of)

    def note_starts(self, observed: ObservedUse) -> None:
        """Record and count what was seen running for the first time."""
        self.records.write_started(observed)
        self._start_times.observe(observed.shares, self._informer.pods)

    async def run(self) -> None:
        """Write what is recorded, for ever; on cancellation write the rest."""
        await self._log.run()

    async def follow_certificate(self) -> Never:
        """Record the certificate of the delivery, for ever."""
        audit = self._options.audit
        file = None if audit is None else audit.certificates / "tls.crt"
        certificate = ClientCertificateLog(self._options.node, self._write_record)
        while True:
            if file is not None:
                certificate.note(await asyncio.to_thread(_bytes_of, file))
            await asyncio.sleep(CERTIFICATE_SECONDS)

    @contextlib.asynccontextmanager
    async def deliver(self) -> AsyncIterator[None]:
        """Deliver records during the block, and send what is left after it."""
        async with audit_delivery(self._options.audit, self._metrics) as self._delivery:
            yield

    def write(self, lines: LineBuffer, /) -> None:
        """Pass *lines* on, if they are delivered at all."""
        for sink in self._delivery:
            sink.write(lines)
