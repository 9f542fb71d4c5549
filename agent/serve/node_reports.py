"""Reports of what happens on this node: Events for users, and records for auditors."""

from dataclasses import dataclass

from agent.deviceplugin.container_edits import ContainerEdits
from agent.mig.progress import Outcome
from agent.monitor.drift import HardwareDrift
from agent.monitor.repair_thread import RegionRepair
from agent.monitor.violation import LocalPod, Violation
from agent.serve.node_events import NodeEvents
from agent.serve.node_records import NodeRecords
from agent.share import Owner, Share


@dataclass(frozen=True, slots=True)
class NodeReports:
    """Passes each report on to both; drift and repairs are told as Events only."""

    events: NodeEvents
    records: NodeRecords

    def record_allocation(self, slot: str, share: Share, edits: ContainerEdits) -> None:
        """Report what a container received; *slot* is the first of its slots."""
        self.events.record_allocation(slot, share, edits)
        self.records.write_allocation(slot, share, edits)

    def record_refusal(self, slot: str, owner: Owner, why: str) -> None:
        """Report why a container cannot start."""
        self.events.record_refusal(slot, owner, why)
        self.records.write_refusal(slot, owner, why)

    def record_reconfiguration(self, gpu: str, outcome: Outcome, note: str) -> None:
        """Report that instances of *gpu* were reconfigured, or that it failed."""
        self.events.record_reconfiguration(gpu, outcome, note)
        self.records.write_reconfiguration(gpu, outcome, note)

    def record_health(self, gpu: str, why: str) -> None:
        """Report *why* a GPU left service; empty if it is back."""
        self.events.record_health(gpu, why)
        self.records.write_health(gpu, why)

    def record_mps_trouble(self, pod: LocalPod | None, gpu: str, note: str) -> None:
        """Report what became of an MPS daemon: an Event only."""
        self.events.record_mps_trouble(pod, gpu, note)

    def record_violation(self, violation: Violation) -> None:
        """Report a violation that began."""
        self.events.record_violation(violation)
        self.records.write_violation(violation)

    def record_repair(self, repair: RegionRepair) -> None:
        """Report that a region was repaired."""
        self.events.record_repair(repair)

    def record_drift(self, drift: HardwareDrift) -> None:
        """Report a difference from the ledger."""
        self.events.record_drift(drift)
