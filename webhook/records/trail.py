"""AuditTrail: with what the parts of the webhook write their records."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from allocator.audit.record import Component
from allocator.audit.record_source import RecordSource
from allocator.audit.record_writer import (
    DeferRecord,
    RecordSink,
    RecordWriter,
    RememberParts,
    make_now,
)
from allocator.replay.snapshot_records import SnapshotRecords
from webhook.binding.audit_record import BindRecords
from webhook.binding.decide import BindInputs
from webhook.records.pass_records import PassRecords
from webhook.replicas.replica_records import ReplicaRecords


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTrail:
    """One source of identifiers, one sink, and the snapshots that were written there."""

    sink: RecordSink
    defer: DeferRecord
    source: RecordSource
    writer: RecordWriter
    snapshots: SnapshotRecords
    replicas: ReplicaRecords | None = None  # where the sink joins the parts of a line

    def node_digest(self, inputs: BindInputs) -> str:
        """Return the digest of the boards and GPUs in *inputs*."""
        return self.snapshots.node(inputs.node, inputs.vocabularies, inputs.geometries)

    def pass_records(
        self,
        caller: Callable[[], tuple[str, ...]] | None = None,
        *,
        now: Callable[[], int],
    ) -> PassRecords:
        """Return what makes the records of passes of pods, whose callers had to show *caller*.

        *now* returns nanoseconds since 1970.
        """
        return PassRecords(
            self.sink,
            self.source if caller is None else self.source.reviewed_by(caller),
            fleet_digest=self.snapshots.fleet,
            defer=self.defer,
            replicas=self.replicas,
            now=now,
        )

    def bind_records(
        self, settings_digest: Callable[[], str], caller: Callable[[], tuple[str, ...]]
    ) -> BindRecords:
        """Return what makes the records of binds, whose callers had to show *caller*."""
        return BindRecords(
            source=self.source.reviewed_by(caller),
            settings_digest=settings_digest,
            snapshot_digest=self.node_digest,
        )


def audit_trail(  # noqa: PLR0913 -- whose it is, and where it leads
    sink: RecordSink,
    *,
    instance: str,
    version: str,
    entropy: int,
    now: Callable[[], datetime],
    defer: DeferRecord = make_now,
    parts: RememberParts | None = None,
) -> AuditTrail:
    """Return the trail of *instance*; *entropy* is random, and *now* returns the time in UTC.

    *defer* takes what makes records of reviews, which may be done later; *parts* takes
    records in two parts.
    """
    source = RecordSource(Component.WEBHOOK, instance=instance, version=version, entropy=entropy)
    writer = RecordWriter(sink=sink, source=source, now=now)
    snapshots = SnapshotRecords(writer)
    return AuditTrail(
        sink=sink,
        defer=defer,
        source=source,
        writer=writer,
        snapshots=snapshots,
        replicas=(None if parts is None else ReplicaRecords(parts, source, lone=sink, defer=defer)),
    )
