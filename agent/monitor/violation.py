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
CONTEXT_ALLOWANCE: Final = MiB(512)  # for one process
MOST_CONTEXTS: Final = 4  # processes beyond these add no allowance
MOST_PIDS_NAMED: Final = 4  # processes named in a note
MIB: Final = 1024 * 1024
SLACK_DIVISOR: Final = 50  # 1/50 of the promised memory is allowed on top


class ViolationKind(StrEnum):
    """What a container did. Public API: a metric's label."""

    MEMORY = "memory"  # more than it was promised
    DEVICE = "device"  # a GPU or MIG instance that was not promised to it
    UNPROMISED = "unpromised"  # a GPU, though its pod has no entry on this node
    LIMITS = "limits"  # it changed the limits in its region, or the region
    UNCOUNTED = "uncounted"  # its process is in no region, so that no limit holds for it
    NUMBERING = "numbering"  # it uses another GPU than the library counts it on
    COMPUTE = "compute"  # more than it was promised, although its launches wait
    DISK = "disk"  # it wrote more to the node's disk than its region needs


# What shows by regions, or is missing there, and not in what the driver says of a GPU alone.
OF_REGIONS: Final = frozenset(
    (
        ViolationKind.LIMITS,
        ViolationKind.UNCOUNTED,
        ViolationKind.NUMBERING,
        ViolationKind.COMPUTE,
        ViolationKind.DISK,
    )
)
# Of these, what is told and evicts nobody.
_TOLERATED: Final = OF_REGIONS - {ViolationKind.DISK}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPod:
    """A pod of this node as the API server describes it."""

    uid: str
    namespace: str
    name: str
    # names by the runtime's ids, as far as the API server knows them yet
    containers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # Never evicted: a DaemonSet or kubelet would recreate it here, or it is older than the ledger.
    exempt: bool = False


@dataclass(frozen=True, slots=True)
class LocatedProcess:
    """A process on a GPU, and where it runs."""

    process: Process
    cgroup: PodCgroup | None  # None: outside pods


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One container's misuse of one GPU."""

    kind: ViolationKind
    pod: LocalPod
    container: str  # name; empty if unknown
    gpu: str  # UUID
    note: str  # a sentence; its numbers change while the violation lasts

    @property
    def key(self) -> tuple[ViolationKind, str, str, str]:
        """Return what identifies the violation while it lasts."""
        return self.kind, self.pod.uid, self.container, self.gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedUse:
    """What is known about the node at one moment."""

    processes: Sequence[LocatedProcess]
    shares: Sequence[Share]  # what the ledger promises here
    pods: Mapping[str, LocalPod]  # by uid
    instances: Sequence[Instance] | None = ()  # MIG instances; None: not listed yet
    # memory that the status reports as used without an entry, by pod uid and GPU
    unpromised: Mapping[tuple[str, str], MiB] = field(default_factory=lambda: MappingProxyType({}))
    # bytes that regions count of a process, by its pid; absent: its container has no region
    counted: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    # processes of the agent's own on the GPUs, such as MPS servers: nobody is blamed for them
    reserved: Sequence[Process] = ()


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
        """Return the violation of *kind* by this group."""
        return Violation(kind=kind, pod=self.pod, container=self.container, gpu=self.gpu, note=note)


def violations(observed: ObservedUse) -> tuple[Violation, ...]:
    """Return all violations; processes of pods that the API server does not know are skipped."""
    promised = by_pod(observed.shares)
    instances = observed.instances or ()
    # An instance that is not listed yet, because it is new, is no violation.
    known = {None, *(instance.uuid for instance in instances)}
    found_violations = []
    for group in _groups(observed, promised):
        if group.pod.uid not in promised:
            note = f"uses {group.gpu} without an entry: {pids_text(group.processes)}"
            found_violations.append(group.violation(ViolationKind.UNPROMISED, note))
            continue
        forbidden = known - _allowed_instances(group.grants, instances)
        if misplaced := tuple(p for p in group.processes if p.instance in forbidden):
            place = misplaced[0].instance or group.gpu
            note = f"uses {place}, not in its entry: {pids_text(misplaced)}"
            found_violations.append(group.violation(ViolationKind.DEVICE, note))
        elif note := _memory_excess(group, observed.counted):
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
    """Return the instances that *grants* allow, by UUID; ``None`` is the whole GPU.

    On a GPU in MIG mode, ``None`` is an instance that the driver does not name.
    """
    places = {(g.gpu, g.placed.profile.id, g.placed.start) for g in grants if g.placed is not None}
    allowed = {i.uuid for i in instances if (i.gpu, i.profile, i.start) in places}
    return frozenset(allowed | {None}) if grants else frozenset()


def _memory_excess(group: _Group, counted: Mapping[int, int]) -> str:
    """Return a note on memory above the limit, or nothing; the hardware limits MIG instances.

    It names the processes that the library does not count as they are: they escaped its limit.
    """
    soft = [grant.memory for grant in group.grants if grant.mode is not Mode.MIG]
    promised, used = sum(soft), _used_memory(group.processes)
    if not soft or used <= _allowed_memory(promised, group.processes):
        return ""
    uncounted = tuple(
        p
        for p in group.processes
        if p.pid in counted and (p.memory or 0) > counted[p.pid] // MIB + CONTEXT_ALLOWANCE
    )
    escaped = f"; the library does not count all of {pids_text(uncounted)}" if uncounted else ""
    return f"uses {used} of {promised} MiB on {group.gpu}: {pids_text(group.processes)}{escaped}"


def _used_memory(processes: Iterable[Process]) -> int:
    return sum(process.memory or 0 for process in processes)


def _allowed_memory(promised: int, processes: Collection[Process]) -> int:
    """Return what *processes* with a share of *promised* MiB may hold by the driver's count."""
    contexts = min(len(processes), MOST_CONTEXTS)
    return promised + promised // SLACK_DIVISOR + CONTEXT_ALLOWANCE * contexts


def pids_text(processes: Sequence[Process]) -> str:
    """Return the pids of *processes* on the node, the first few by number."""
    numbers = [str(process.pid) for process in processes]
    shown = (
        numbers
        if len(numbers) <= MOST_PIDS_NAMED
        else [*numbers[:MOST_PIDS_NAMED], f"{len(numbers) - MOST_PIDS_NAMED} more"]
    )
    return f"pid {', '.join(shown)}"


def foreign_memory(observed: ObservedUse, gpus: Iterable[str]) -> dict[str, MiB]:
    """Return by GPU the memory held by processes without an entry.

    They run outside pods, or their pod has no share of that GPU. Use that the status reports as
    unpromised would count twice, so of that only what is more than any share of this size may hold
    is counted: nobody limits it. Memory that the driver does not report counts as 0.
    """
    promised = {(s.owner.uid, grant.gpu) for s in observed.shares for grant in s.grants}
    memory = dict.fromkeys(gpus, NO_MEMORY)
    uses: dict[tuple[str, str], list[Process]] = defaultdict(list)
    for located in observed.processes:
        process, uid = located.process, located.cgroup.uid if located.cgroup else ""
        if process.gpu in memory and (uid, process.gpu) not in promised:
            uses[uid, process.gpu].append(process)
    for process in observed.reserved:
        if process.gpu in memory:
            uses["", process.gpu].append(process)
    for key, processes in uses.items():
        reported = observed.unpromised.get(key)
        known = 0 if reported is None else _allowed_memory(reported, processes)
        excess = max(0, _used_memory(processes) - known)
        memory[key[1]] = MiB(memory[key[1]] + excess)
    return memory


def reached_devices(observed: ObservedUse) -> dict[str, frozenset[str]]:
    """Return, by pod without any share, the GPUs and MIG instances that it has processes on."""
    promised = {share.owner.uid for share in observed.shares}
    reached: dict[str, set[str]] = defaultdict(set)
    for located in observed.processes:
        if located.cgroup is not None and located.cgroup.uid not in promised:
            process = located.process
            reached[located.cgroup.uid].add(process.instance or process.gpu)
    return {uid: frozenset(devices) for uid, devices in reached.items()}


def unique_violations(violations_: Iterable[Violation]) -> tuple[Violation, ...]:
    """Return each violation once, although notes differ."""
    return tuple({violation.key: violation for violation in violations_}.values())


@dataclass(frozen=True, slots=True)
class ViolationChanges:
    """What to do after a monitoring cycle."""

    begun: tuple[Violation, ...]  # to be reported
    to_evict: tuple[Violation, ...]  # their pods are to be evicted


def violation_changes(
    before: Collection[Violation], now: Collection[Violation], enforcement: Enforcement
) -> ViolationChanges:
    """Return what to do, given the violations of this cycle, *now*, and of the one *before*.

    The first cycle with a violation reports it. Only the second one evicts, because the driver may
    report an ending process inconsistently.
    """
    known = {violation.key for violation in before}
    lasting = tuple(v for v in now if v.key in known and evicts(v))
    return ViolationChanges(
        begun=tuple(v for v in now if v.key not in known),
        to_evict=lasting if enforcement is Enforcement.EVICT else (),
    )


def evicts(violation: Violation) -> bool:
    """Say whether a pod may be evicted for *violation*.

    Only use that the driver sees evicts, and a file that grows again and again. What is wrong in a
    region is restored, and what the library counts is evidence against nobody.
    """
    return violation.kind not in _TOLERATED and not violation.pod.exempt
