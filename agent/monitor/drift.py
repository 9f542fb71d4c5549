"""Drift: differences between the ledger and what the GPUs of a node hold.

Drift is reported on the Node, for its operator; a violation is reported on the pod, for its user.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from agent.mig.plan import placement_name
from agent.monitor.violation import LocalPod, ObservedUse, Violation
from agent.monitor.violation import ViolationKind as Misuse
from allocator.ledger.drift import DriftKind
from allocator.model.untrusted import quote

REPORTED_KINDS: Final = (
    DriftKind.MISSING,
    DriftKind.EXTRA,
    DriftKind.DIFFERENT,
)  # what a node can tell of
# A difference is reported only after this many seconds: creating an instance takes a few, and so
# does ending a process.
LASTING_SECONDS: Final = 10.0
DriftKey = tuple[DriftKind, str, str]
_VIOLATION_DRIFTS: Final = MappingProxyType(
    {
        Misuse.UNPROMISED: (DriftKind.EXTRA, "uses it without an entry on this node"),
        Misuse.DEVICE: (DriftKind.EXTRA, "uses a device there that its entry does not list"),
        Misuse.LIMITS: (DriftKind.DIFFERENT, "has limits in its region that differ from its entry"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareDrift:
    """One difference between the ledger and a GPU."""

    kind: DriftKind
    gpu: str  # UUID
    what: str  # a sentence without figures, so that it stays the same while the difference lasts
    pod: LocalPod | None = None  # the pod that it concerns, if it concerns one

    @property
    def key(self) -> DriftKey:
        """Return what identifies the difference."""
        return self.kind, self.gpu, self.what


def drifts(observed: ObservedUse, violations: Iterable[Violation]) -> tuple[HardwareDrift, ...]:
    """Return each difference once: those in *observed*, then those that *violations* imply."""
    differences = (
        *_missing_instances(observed),
        *_violation_drifts(violations),
        *_foreign_processes(observed),
    )
    return tuple({drift.key: drift for drift in differences}.values())


def _missing_instances(observed: ObservedUse) -> Iterator[HardwareDrift]:
    """Yield promised MIG instances that do not exist or have no compute instance."""
    if observed.instances is None:
        return
    existing = {(i.gpu, i.profile, i.start) for i in observed.instances if i.uuid is not None}
    for share in observed.shares:
        owner = share.owner
        for grant in share.grants:
            placed = grant.placed
            if placed is None or (grant.gpu, placed.profile.id, placed.start) in existing:
                continue
            pod = LocalPod(uid=owner.uid, namespace=owner.namespace, name=owner.pod)
            what = (
                f"pod {_pod_name(pod)} is promised {placement_name(placed)}, which does not exist"
            )
            yield HardwareDrift(kind=DriftKind.MISSING, gpu=grant.gpu, what=what, pod=pod)


def _violation_drifts(violations: Iterable[Violation]) -> Iterator[HardwareDrift]:
    for violation in violations:
        if (kind_and_text := _VIOLATION_DRIFTS.get(violation.kind)) is not None:
            kind, text = kind_and_text
            pod = violation.pod
            yield HardwareDrift(
                kind=kind, gpu=violation.gpu, what=f"pod {_pod_name(pod)} {text}", pod=pod
            )


def _foreign_processes(observed: ObservedUse) -> Iterator[HardwareDrift]:
    """Yield GPUs whose memory is held by processes outside the pods of this node."""
    for located in observed.processes:
        of_local_pod = located.cgroup is not None and located.cgroup.uid in observed.pods
        if located.process.memory and not of_local_pod:
            what = "processes outside the pods of this node hold memory on it"
            yield HardwareDrift(kind=DriftKind.EXTRA, gpu=located.process.gpu, what=what)


def _pod_name(pod: LocalPod) -> str:
    return quote(f"{pod.namespace}/{pod.name}")


@dataclass(frozen=True, slots=True)
class LastingDrift:
    """How long each difference has lasted, and which have been reported."""

    # when each difference was first seen, in monotonic seconds
    since: Mapping[DriftKey, float] = field(default_factory=lambda: MappingProxyType({}))
    reported: frozenset[DriftKey] = frozenset()

    def advance(
        self, hardware_drifts: Iterable[HardwareDrift], now: float
    ) -> tuple["LastingDrift", tuple[HardwareDrift, ...]]:
        """Return the next state, and the differences that are to be reported now."""
        present = {drift.key: drift for drift in hardware_drifts}
        since = {key: self.since.get(key, now) for key in present}
        lasting = frozenset(key for key, began in since.items() if now - began >= LASTING_SECONDS)
        to_report = tuple(present[key] for key in present if key in lasting - self.reported)
        return LastingDrift(since, lasting), to_report
