"""Snapshots of records: each content is written once, and named by its digest."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from allocator.audit.record import Component
from allocator.audit.record_source import RecordSource, milliseconds_of
from allocator.audit.record_writer import RecordWriter
from allocator.catalog.vocabularies import VOCABULARIES
from allocator.replay.fleet_codec import decode_fleet
from allocator.replay.node_codec import decode_node
from allocator.replay.snapshot_records import (
    MOST_REMEMBERED,
    WRITTEN_AGAIN_AFTER,
    SnapshotRecords,
)
from tests.builders.model import T4, nodes_of, snapshot, soft_grant
from tests.harness.records import KeptRecords

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


class Site:
    def __init__(self) -> None:
        self.kept = KeptRecords()
        self.now = NOON
        source = RecordSource(Component.WEBHOOK)
        self.records = SnapshotRecords(
            RecordWriter(sink=self.kept, source=source, now=lambda: self.now)
        )

    @property
    def at(self) -> int:
        """Return now in milliseconds."""
        return milliseconds_of(self.now)


def test_thousands_of_decisions_share_one_snapshot() -> None:
    """Also where the inventory is read anew and holds the same kinds of GPU."""
    site, fleet = Site(), snapshot(nodes_of(2, T4))
    again = replace(fleet, version="2", offers=dict(fleet.offers))

    digests = {site.records.fleet(one, VOCABULARIES, site.at) for one in (fleet, fleet, again)}

    (record,) = site.kept
    assert digests == {record["content_digest"]}
    assert decode_fleet(record["content"]).offers == fleet.offers


def test_another_fleet_has_another_digest() -> None:
    """A kind more, an inventory that is not complete, or other words of requests."""
    site, fleet = Site(), snapshot(nodes_of(2, T4))
    configured = (replace(VOCABULARIES[0], memory_factor=7), *VOCABULARIES[1:])

    digests = {
        site.records.fleet(fleet, VOCABULARIES, site.at),
        site.records.fleet(
            snapshot(nodes_of(2, T4), nodes_of(4, name="n1")), VOCABULARIES, site.at
        ),
        site.records.fleet(replace(fleet, complete=not fleet.complete), VOCABULARIES, site.at),
        site.records.fleet(replace(fleet, mixed=True), VOCABULARIES, site.at),
        site.records.fleet(fleet, configured, site.at),
    }

    assert len(digests) == len(site.kept) == 5
    assert len({record["id"] for record in site.kept}) == 5


def test_what_is_granted_on_a_node_is_not_part_of_it() -> None:
    """So that binds to one node share its content."""
    site, node = Site(), nodes_of(2, T4)
    first, *others = node.gpus
    busy = replace(node, gpus=(replace(first, grants=(soft_grant(100, gpu=first.uuid),)), *others))

    digests = {site.records.node(one, VOCABULARIES, None) for one in (node, busy)}

    (record,) = site.kept
    assert digests == {record["content_digest"]}
    assert record["node"] == node.name
    assert decode_node(record["content"]).node == node


def test_a_snapshot_is_written_again_after_an_hour() -> None:
    """A record of it may have been dropped; the identifier is the same, so a store has it once."""
    site, fleet = Site(), snapshot(nodes_of(2, T4))

    for seconds in (0, 1, WRITTEN_AGAIN_AFTER.total_seconds() - 1, 1):
        site.now += timedelta(seconds=seconds)
        site.records.fleet(fleet, VOCABULARIES, site.at)

    first, second = site.kept
    assert first["id"] == second["id"]
    assert datetime.fromisoformat(first["at"]) == NOON
    assert datetime.fromisoformat(second["at"]) == NOON + WRITTEN_AGAIN_AFTER


def test_memory_is_bounded() -> None:
    """A node that changes for ever costs no more than the last digests."""
    site, node = Site(), nodes_of(1, T4)

    for number in range(MOST_REMEMBERED + 10):
        site.records.node(replace(node, name=f"n{number}"), VOCABULARIES, None)

    assert len(site.records._written) == MOST_REMEMBERED  # noqa: SLF001 -- what is bounded
