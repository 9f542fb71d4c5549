"""Metrics of the delivery of audit records, which every program that writes records exports."""

from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge

# The name of each, without _total, and what it counts.
_DROPPED: Final = ("vgpu_audit_dropped", "Audit records given up because no queue had room.")
_DELIVERED: Final = ("vgpu_audit_delivered", "Audit records that the console acknowledged.")
_REJECTED: Final = ("vgpu_audit_rejected", "Audit records that the console did not accept.")
_LENGTH: Final = ("vgpu_audit_queue_length", "Audit records that wait for the console.")
_SPOOLED: Final = (
    "vgpu_audit_spooled_bytes",
    "Disk space that waiting audit records take in the spool.",
)


class WaitingRecords(Protocol):
    """What is read at a scrape, from another thread."""

    @property
    def queue_length(self) -> int:
        """Return how many records wait."""

    @property
    def spooled_bytes(self) -> int:
        """Return how much of the disk the spool takes."""


class DeliveryMetrics:
    """Counters and gauges on the registry of a program, at zero where nothing is delivered."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Declare every instrument."""
        self._dropped = Counter(*_DROPPED, registry=registry)
        self._delivered = Counter(*_DELIVERED, registry=registry)
        self._rejected = Counter(*_REJECTED, registry=registry)
        self._length = Gauge(*_LENGTH, registry=registry)
        self._spooled = Gauge(*_SPOOLED, registry=registry)

    def follow(self, waiting: WaitingRecords) -> None:
        """Export the figures of *waiting* from now on."""
        self._length.set_function(lambda: waiting.queue_length)
        self._spooled.set_function(lambda: waiting.spooled_bytes)

    def count_dropped(self, records: int = 1) -> None:
        """Count records that had to be given up."""
        self._dropped.inc(records)

    def count_delivered(self, records: int) -> None:
        """Count records that the console acknowledged."""
        self._delivered.inc(records)

    def count_rejected(self, records: int) -> None:
        """Count records that the console did not accept."""
        self._rejected.inc(records)
