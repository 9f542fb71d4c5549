"""The agent's audit log: records of this node, to standard output and to the console."""

import contextlib
import secrets
import sys
from collections.abc import AsyncIterator

from agent.monitor.metrics import AgentMetrics
from agent.monitor.violation import ObservedUse
from agent.node.node_informer import NodeInformer
from agent.serve.node_records import NodeRecords
from agent.serve.options import AgentOptions
from agent.serve.start_times import StartTimes
from allocator.audit.audit_log import AuditLog, Sink, SwitchedSink
from allocator.audit.record import Component
from allocator.audit.record_source import ENTROPY_BITS, RecordSource
from allocator.audit.record_writer import RecordWriter
from allocator.cli.audit import audit_delivery
from kube.clock import SYSTEM


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
        output = SwitchedSink(
            sink=sys.stdout.buffer, enabled=lambda: informer.settings.audit.stdout
        )
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
        self.records = NodeRecords(options.node, writer, digest_of=digest_of)

    def note_starts(self, observed: ObservedUse) -> None:
        """Record and count what was seen running for the first time."""
        self.records.write_started(observed)
        self._start_times.observe(observed.shares, self._informer.pods)

    async def run(self) -> None:
        """Write what is recorded, for ever; on cancellation write the rest."""
        await self._log.run()

    @contextlib.asynccontextmanager
    async def deliver(self) -> AsyncIterator[None]:
        """Deliver records during the block, and send what is left after it."""
        async with audit_delivery(self._options.audit, self._metrics) as self._delivery:
            yield

    def write(self, data: bytes, /) -> None:
        """Pass *data* on, if it is delivered at all."""
        for sink in self._delivery:
            sink.write(data)

    def flush(self) -> None:
        """Hand on what was written."""
        for sink in self._delivery:
            sink.flush()
