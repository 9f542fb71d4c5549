"""Events on pods and the Node."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agent.deviceplugin.container_edits import ContainerEdits
from agent.mig.plan import placement_name
from agent.mig.progress import Outcome
from agent.monitor.drift import HardwareDrift
from agent.monitor.repair_thread import RegionRepair
from agent.monitor.violation import LocalPod, Violation, ViolationKind
from agent.region.repair import RepairKind
from agent.share import Owner, Share
from allocator.catalog.vocabularies import OWN
from allocator.model.allocation import Grant
from allocator.model.untrusted import quote
from kube.events import Event, Reference, Severity

_DIGITS: Final = re.compile(r"\d+")


def allocation_note(share: Share, content: ContainerEdits) -> str:
    """Return what the container of *share* was given."""
    gpus = map(_grant_text, share.grants, content.shown)
    return f"container {quote(share.owner.container)}: {'; '.join(gpus)}"


def without_numbers(sentence: str) -> str:
    """Return *sentence* without its numbers."""
    return _DIGITS.sub("", sentence)


def _grant_text(grant: Grant, shown: str) -> str:
    if grant.placed is not None:
        return f"{placement_name(grant.placed)} of {grant.gpu} ({shown})"
    cores = f" and {grant.cores} % of its compute" if grant.cores else ""
    return f"{grant.memory} MiB{cores} on {grant.gpu}"


REPORTER: Final = f"{OWN}agent"


@dataclass(frozen=True, slots=True)
class _EventKind:
    severity: Severity
    reason: str
    action: str


_ALLOCATED: Final = _EventKind(Severity.NORMAL, "VgpuAllocated", "Allocate")
_REFUSED: Final = _EventKind(Severity.WARNING, "VgpuAllocateFailed", "Allocate")
_UNHEALTHY: Final = _EventKind(Severity.WARNING, "GpuUnhealthy", "Check")
_RECOVERED: Final = _EventKind(Severity.NORMAL, "GpuRecovered", "Check")
_DRIFT: Final = _EventKind(Severity.WARNING, "VgpuDrift", "Reconcile")
_BREACHED: Final = _EventKind(Severity.WARNING, "VgpuLimitBreached", "Enforce")
_MISCOUNTED: Final = _EventKind(Severity.WARNING, "VgpuMiscounted", "Enforce")
_REPAIRED: Final = _EventKind(Severity.NORMAL, "VgpuRegionRepaired", "Repair")
_UNPROMISED: Final = _EventKind(Severity.WARNING, "VgpuUnpromisedUse", "Enforce")
_MPS_TROUBLE: Final = _EventKind(Severity.WARNING, "VgpuMpsTrouble", "Recover")
_VIOLATIONS: Final = {
    ViolationKind.MEMORY: _BREACHED,
    ViolationKind.LIMITS: _BREACHED,
    ViolationKind.COMPUTE: _BREACHED,
    ViolationKind.DISK: _BREACHED,
    ViolationKind.NUMBERING: _MISCOUNTED,
    ViolationKind.UNCOUNTED: _MISCOUNTED,
    ViolationKind.DEVICE: _UNPROMISED,
    ViolationKind.UNPROMISED: _UNPROMISED,
}
_REPAIRS: Final = {
    RepairKind.STARTUP_LOCK: (
        "a process was killed at its start and kept the next ones waiting; they go on now"
    ),
    RepairKind.SLOT_LOCK: (
        "a process was killed while it held the list of processes; the next ones go on now"
    ),
    RepairKind.COUNTER_LOCK: (
        "a process was killed while it allocated, and others waited for it; they go on now"
    ),
    RepairKind.COUNTER: (
        "the library counted less than nothing and refused every allocation; the count is what"
        " the driver sees now"
    ),
    RepairKind.FILE: "the region was put back in its place",
}
_RECONFIGURATION: Final = {
    Outcome.DONE: _EventKind(Severity.NORMAL, "MigReconfigured", "Reconfigure"),
    Outcome.FAILED: _EventKind(Severity.WARNING, "MigReconfigureFailed", "Reconfigure"),
}


class NodeEvents:
    """Writes Events about pods and their node; sending one must not block.

    A container that crashes gets the same devices again, and one that is refused retries every ten
    seconds. So the last Event about each slot's holder is remembered, and not repeated.
    """

    def __init__(self, node: Callable[[], Reference], send: Callable[[Event], None]) -> None:
        """Say nothing yet."""
        self._node = node
        self._send = send
        self._allocated: dict[str, tuple[str, str]] = {}
        self._refused: dict[str, tuple[str, str]] = {}

    def record_allocation(self, slot: str, share: Share, edits: ContainerEdits) -> None:
        """Report once what a container received; *slot* is the first of its slots."""
        note = allocation_note(share, edits)
        last = share.owner.uid, note
        if self._allocated.get(slot) != last:
            self._allocated[slot] = last
            self._record_on_pod(_ALLOCATED, share.owner, note)

    def record_refusal(self, slot: str, owner: Owner, why: str) -> None:
        """Report why a container cannot start; a note whose numbers alone changed is repeated."""
        note = f"container {quote(owner.container)}: {why}"
        uid, before = self._refused.get(slot, ("", ""))
        if uid == owner.uid and without_numbers(before) == without_numbers(note):
            note = before
        self._refused[slot] = owner.uid, note
        self._record_on_pod(_REFUSED, owner, note)

    def record_reconfiguration(self, gpu: str, outcome: Outcome, note: str) -> None:
        """Report that instances of *gpu* were reconfigured, or that it failed."""
        self._record_on_gpu(_RECONFIGURATION[outcome], gpu, note)

    def record_health(self, gpu: str, why: str) -> None:
        """Report *why* a GPU left service; empty if it is back."""
        self._record_on_gpu(_UNHEALTHY if why else _RECOVERED, gpu, why or "is healthy again")

    def record_mps_trouble(self, pod: LocalPod | None, gpu: str, note: str) -> None:
        """Report what became of an MPS daemon on a pod that it hurts, or on the Node."""
        if pod is None:
            self._record_on_gpu(_MPS_TROUBLE, gpu, note)
        else:
            self._record(_MPS_TROUBLE, f"GPU {quote(gpu)}: {note}", about=_pod(pod))

    def record_violation(self, violation: Violation) -> None:
        """Report a violation on its pod."""
        kind = _VIOLATIONS[violation.kind]
        subject = f"container {quote(violation.container)} " if violation.container else ""
        self._record(kind, f"{subject}{violation.note}", about=_pod(violation.pod))

    def record_repair(self, repair: RegionRepair) -> None:
        """Report on its pod that a region was repaired."""
        container = quote(repair.owner.container)
        self._record_on_pod(
            _REPAIRED, repair.owner, f"container {container}: {_REPAIRS[repair.kind]}"
        )

    def record_drift(self, drift: HardwareDrift) -> None:
        """Report a difference from the ledger on the Node."""
        note = f"GPU {quote(drift.gpu)}: {drift.what}"
        related = None if drift.pod is None else _pod(drift.pod)
        self._record(_DRIFT, note, about=self._node(), related=related)

    def _record_on_pod(self, kind: _EventKind, owner: Owner, note: str) -> None:
        pod, space = owner.pod, owner.namespace
        about = Reference(api_version="v1", kind="Pod", name=pod, namespace=space, uid=owner.uid)
        self._record(kind, note, about=about, related=self._node())

    def _record_on_gpu(self, kind: _EventKind, gpu: str, note: str) -> None:
        self._record(kind, f"GPU {quote(gpu)}: {note}", about=self._node())

    def _record(
        self, kind: _EventKind, note: str, *, about: Reference, related: Reference | None = None
    ) -> None:
        self._send(
            Event(
                regarding=about,
                severity=kind.severity,
                reason=kind.reason,
                action=kind.action,
                note=note,
                related=related,
            )
        )


def _pod(pod: LocalPod) -> Reference:
    return Reference(
        api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid
    )
