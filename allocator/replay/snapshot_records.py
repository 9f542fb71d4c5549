"""SnapshotRecords: what decisions rest on, written once and named by its digest."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from allocator.audit.record_source import content_id, milliseconds_of
from allocator.audit.record_writer import RecordWriter
from allocator.catalog.vocabularies import Vocabulary
from allocator.mig.geometry import Geometries
from allocator.model.gpu import GpuKind, Node, Snapshot
from allocator.replay.content import content_digest
from allocator.replay.fleet_codec import encode_fleet
from allocator.replay.node_codec import encode_node

MOST_REMEMBERED: Final = 8192  # digests; a node that changes has a new one
# A record may have been dropped, and a store may have forgotten one that nothing named for long.
WRITTEN_AGAIN_AFTER: Final = timedelta(hours=1)


class SnapshotRecords:
    """Names snapshots by their content; writes a content that was not written of late."""

    def __init__(self, writer: RecordWriter) -> None:
        """Write through *writer*."""
        self._writer = writer
        self._written: OrderedDict[str, datetime] = OrderedDict()  # by digest, the oldest first
        # The parts of the last fleet, with its digest: reviews by the thousand share them.
        self._offers: Mapping[GpuKind, int] | None = None
        self._vocabularies: Sequence[Vocabulary] = ()
        self._mixed = self._complete = False
        self._digest = ""
        self._due = 0  # when that is written again, in milliseconds since 1970

    def fleet(self, snapshot: Snapshot, vocabularies: Sequence[Vocabulary], at: int) -> str:
        """Return the digest of the kinds of GPU in *snapshot*, for a decision at CREATE.

        *at* is when that was made, in milliseconds since 1970.
        """
        offers = snapshot.offers
        if (
            (offers is self._offers or offers == self._offers)
            and vocabularies is self._vocabularies
            and snapshot.mixed == self._mixed
            and snapshot.complete == self._complete
            and at < self._due
        ):
            self._offers = offers  # the next comparison is the faster
            return self._digest
        digest = self._written_digest(encode_fleet(snapshot, vocabularies))
        self._offers, self._vocabularies = offers, vocabularies
        self._mixed, self._complete, self._digest = snapshot.mixed, snapshot.complete, digest
        self._due = milliseconds_of(self._written[digest] + WRITTEN_AGAIN_AFTER)
        return digest

    def node(
        self, node: Node, vocabularies: Sequence[Vocabulary], geometries: Geometries | None
    ) -> str:
        """Return the digest of the boards and GPUs of *node*, for decisions at its binds."""
        content = encode_node(node, geometries=geometries, vocabularies=vocabularies)
        return self._written_digest(content, node=node.name)

    def _written_digest(self, content: Mapping[str, Any], *, node: str | None = None) -> str:
        """Return the digest of *content*, which is written unless that was done of late."""
        digest, now = content_digest(content), self._writer.now()
        before = self._written.get(digest)
        if before is not None and now - before < WRITTEN_AGAIN_AFTER:
            return digest
        self._written[digest] = now
        self._written.move_to_end(digest)
        if len(self._written) > MOST_REMEMBERED:
            self._written.popitem(last=False)
        self._writer.write(
            "snapshot",
            {"content_digest": digest, "content": content, "node": node},
            record_id=content_id("snapshot", digest),
        )
        return digest
