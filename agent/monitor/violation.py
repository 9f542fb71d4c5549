"""Violations: use of GPUs that exceeds the ledger, as the driver sees it.

The interception library counts only what goes through it. The driver sees every process on a GPU,
so use that bypasses the library or admission is found here.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from agent.driver.driver import Instance, Process
from agent.node.cgroup import PodCgroup
from agent.share import Share
from allocator.config.settings import Enforcement
from allocator.model.allocation import Grant
from allocator.model.request import Mode
from allocator.model.units import NO_MEMORY, MiB

# The driver counts what the library does not see: a context of each process, the code it loads,
# a collective library's buffers.
CONTEXT_ALLOWANCE: Final = MiB(512)  # of one process
MOST_CONTEXTS: Final = 4  # further processes bring no further allowance
MOST_PIDS_NAMED: Final = 4  # processes named in a note
SLACK_DIVISOR: Final = 50  # one in so many MiB of the promise comes on top


class ViolationKind(StrEnum):
    """What a container did. Public API: a metric's label."""

    MEMORY = "memory"  # more than it was promised
    DEVICE = "device"  # a GPU or MIG instance that another was promised, or nobody
    UNPROMISED = "unpromised"  # a GPU, by a pod that was promised none here
    LIMITS = "limits"  # the limits in its region are not those that were written there


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPod:
    """A pod of this node as the API server tells of it.

    ``containers`` has names by the runtime's id, as far as they are told yet. ``kept`` says that it
    is not to be evicted: a DaemonSet or kubelet itself would bring it back, or it is older than the
    ledger that does not name it.
    """

    uid: str
    namespace: str
    name: str
    containers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    exempt: bool = False


@dataclass(frozen=True, slots=True)
class LocatedProcess:
    """A process on a GPU, and where it runs; ``cgroup`` is ``None`` outside pods."""

    process: Process
    cgroup: PodCgroup | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One container's misuse of one GPU; ``container`` is empty where it is not known which.

    ``note`` is a sentence about it, whose numbers change while it lasts.
    """

    kind: ViolationKind
    pod: LocalPod
    container: str
    gpu: str
    note: str

    @property
    def key(self) -> tuple[ViolationKind, str, str, str]:
        """Return what stays the same while it lasts."""
        return self.kind, self.pod.uid, self.container, self.gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedUse:
    """What is known at one moment: processes, promises, pods by uid, instances of MIG.

    ``unpromised`` has the uids of pods with each GPU that they are told to use without an entry.
    ``instances`` are ``None`` while nobody has looked.
    """

    processes: Sequence[LocatedProcess]
    shares: Sequence[Share]
    pods: Mapping[str, LocalPod]
    instances: Sequence[Instance] | None = ()
    unpromised: frozenset[tuple[str, str]] = frozenset()


Shares = Sequence[Share]


def by_pod(shares: Iterable[Share]) -> dict[str, Shares]:
    """Return *shares* by the uid of their pod."""
    shares_by_pod: dict[str, list[Share]] = defaultdict(list)
    for share in shares:
        shares_by_pod[share.owner.uid].append(share)
    return dict(shares_by_pod)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """The processes of one container on one GPU, and what it was promised there."""

    pod: LocalPod
    container: str
    gpu: str
    processes: tuple[Process, ...]
    grants: tuple[Grant, ...]

    def violation(self, kind: ViolationKind, note: str) -> Violation:
        """Return this group's."""
        return Violation(kind=kind, pod=self.pod, container=self.container, gpu=self.gpu, note=note)


def violations(observed: ObservedUse) -> tuple[Violation, ...]:
    """Return all violations; processes of pods that the API server does not know are skipped."""
    promised = by_pod(observed.shares)
    instances = observed.instances or ()
    # An instance that was made a moment ago, or that nobody has looked at, is not judged.
    known = {None, *(instance.uuid for instance in instances)}
    found_violations = []
    for group in _groups(observed, promised):
        if group.pod.uid not in promised:
            note = f"uses {group.gpu} without an entry: {_pids(group.processes)}"
            found_violations.append(group.violation(ViolationKind.UNPROMISED, note))
            continue
        forbidden = known - _allowed_instances(group.grants, instances)
        if misplaced := tuple(p for p in group.processes if p.instance in forbidden):
            note = (
                f"uses {misplaced[0].instance or group.gpu}, not in its entry: {_pids(misplaced)}"
            )
            found_violations.append(group.violation(ViolationKind.DEVICE, note))
        elif note := _memory_excess(group):
            found_violations.append(group.violation(ViolationKind.MEMORY, note))
    return tuple(found_violations)


def _groups(observed: ObservedUse, promised: Mapping[str, Shares]) -> Iterator[_Group]:
    uses: dict[tuple[str, str, str], list[Process]] = defaultdict(list)
    for located in observed.processes:
        if (
            located.cgroup is not None
            and (pod := observed.pods.get(located.cgroup.uid)) is not None
        ):
            container = pod.containers.get(located.cgroup.container or "", "")
            uses[pod.uid, container, located.process.gpu].append(located.process)
    for (uid, container, gpu), processes in sorted(uses.items(), key=lambda item: item[0]):
        yield _Group(
            pod=observed.pods[uid],
            container=container,
            gpu=gpu,
            processes=tuple(processes),
            grants=tuple(
                grant
                for share in promised.get(uid, ())
                if not container or container in share.owner.containers
                for grant in share.grants
                if grant.gpu == gpu
            ),
        )


def _allowed_instances(
    grants: Sequence[Grant], instances: Sequence[Instance]
) -> frozenset[str | None]:
    """Return on which instances of a GPU its holder may be; ``None`` is the GPU as a whole.

    On a GPU in MIG mode it is an instance that the driver does not tell.
    """
    places = {(g.gpu, g.placed.profile.id, g.placed.start) for g in grants if g.placed is not None}
    allowed = {i.uuid for i in instances if (i.gpu, i.profile, i.start) in places}
    return frozenset(allowed | {None}) if grants else frozenset()


def _memory_excess(group: _Group) -> str:
    """Return a note on memory above the limit, empty if there is none; MIG enforces its own."""
    soft = [grant.memory for grant in group.grants if grant.mode is not Mode.MIG]
    promised, used = sum(soft), sum(p.memory or 0 for p in group.processes)
    allowed = (
        promised
        + promised // SLACK_DIVISOR
        + CONTEXT_ALLOWANCE * min(len(group.processes), MOST_CONTEXTS)
    )
    if not soft or used <= allowed:
        return ""
    return f"uses {used} of {promised} MiB on {group.gpu}: {_pids(group.processes)}"


def _pids(processes: Sequence[Process]) -> str:
    numbers = [str(process.pid) for process in processes]
    shown = (
        numbers
        if len(numbers) <= MOST_PIDS_NAMED
        else [*numbers[:MOST_PIDS_NAMED], f"{len(numbers) - MOST_PIDS_NAMED} more"]
    )
    return f"pid {', '.join(shown)}"


def foreign_memory(observed: ObservedUse, gpus: Iterable[str]) -> dict[str, MiB]:
    """Return by GPU the memory of processes that nobody was promised it for.

    They are outside pods, or their pod has no share of that GPU. What is told as unpromised is
    taken already, and would count twice. What the driver does not tell of a process counts as
    nothing.
    """
    promised = {(s.owner.uid, grant.gpu) for s in observed.shares for grant in s.grants}
    promised |= observed.unpromised
    memory = dict.fromkeys(gpus, NO_MEMORY)
    for located in observed.processes:
        process, uid = located.process, located.cgroup.uid if located.cgroup else ""
        if process.gpu in memory and (uid, process.gpu) not in promised:
            memory[process.gpu] = MiB(memory[process.gpu] + (process.memory or 0))
    return memory


def unique_violations(violations_: Iterable[Violation]) -> tuple[Violation, ...]:
    """Return each violation once, whatever was noted about it."""
    return tuple({violation.key: violation for violation in violations_}.values())


@dataclass(frozen=True, slots=True)
class ViolationChanges:
    """What to do after a look: violations that began, and pods whose evictions are due."""

    begun: tuple[Violation, ...]
    to_evict: tuple[Violation, ...]


def violation_changes(
    before: Collection[Violation], now: Collection[Violation], enforcement: Enforcement
) -> ViolationChanges:
    """Return what to do, given the violations *now* and *before*, one look ago.

    The first look reports. Only the second one evicts, because what the driver says of a process
    that is ending may be inconsistent.
    """
    known = {violation.key for violation in before}
    lasting = tuple(v for v in now if v.key in known and evicts(v))
    return ViolationChanges(
        begun=tuple(v for v in now if v.key not in known),
        to_evict=lasting if enforcement is Enforcement.EVICT else (),
    )


def evicts(violation: Violation) -> bool:
    """Say whether a pod may be evicted for it: changed limits are put right, which is enough."""
    return violation.kind is not ViolationKind.LIMITS and not violation.pod.exempt
