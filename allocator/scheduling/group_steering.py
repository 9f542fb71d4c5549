"""Groups among all pods: where a pod of a group may go, and what others leave to groups."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final, Protocol

from allocator.extender.pod import BINDING_PRIORITY, SchedulingPod
from allocator.extender.reasons import FailureReason
from allocator.families.registry import modes_of
from allocator.groups.domains import Fabric, GroupDomain, GroupNeed, GroupWaits, Idle, Reservation
from allocator.groups.members import Group, GroupPod, group_of, groups_of
from allocator.groups.tree import Tree
from allocator.ledger.assign import PodClaim
from allocator.ledger.ledger import Ledger
from allocator.model.allocation import Entry
from allocator.model.gpu import Gpu, Node
from allocator.model.request import Mode, PodRequest
from allocator.model.usage import without_entries
from allocator.placement.candidates import exclusion
from allocator.placement.fit import headroom, peak, takes

# After the last pod that a job has made; within it, pods that its group lacks may still come.
MAKING: Final = timedelta(seconds=30)
OUTSIDE: Final = FailureReason("outside the domain of the pod's group", lasting=True)
UNKNOWN_TREE: Final = FailureReason(
    "the tree of dragonflies and switchboxes is not known", lasting=True
)
GROUP_RESERVED: Final = FailureReason("GPUs reserved for a group", lasting=True)


class GroupPicture(Protocol):
    """The pods of jobs."""

    def pod(self, uid: str) -> GroupPod | None:
        """Return a pod by its uid, if it is of a job."""

    def job(self, name: str) -> Collection[GroupPod]:
        """Return the pods of a job."""

    def waiting_jobs(self, made_after: datetime) -> list[str]:
        """Return the jobs that have groups, and pods without a node or made after that time."""

    def has_groups(self) -> bool:
        """Say whether any job has groups."""


@dataclass(frozen=True, slots=True)
class LedgerIndex:
    """Ledgers that were read at one moment, and the node of each pod's entry."""

    ledgers: Mapping[str, Ledger]  # by node
    entries: Mapping[str, tuple[str, Entry]]  # by pod uid
    doubled: frozenset[str] = frozenset()  # uids of pods with entries on several nodes

    @classmethod
    def of(cls, ledgers: Iterable[Ledger]) -> "LedgerIndex":
        """Return the index of *ledgers*."""
        known = {ledger.name: ledger for ledger in ledgers}
        entries: dict[str, tuple[str, Entry]] = {}
        doubled = set()
        for name, ledger in known.items():
            for entry in ledger.entries:
                if entry.uid in entries:
                    doubled.add(entry.uid)
                entries[entry.uid] = name, entry
        return cls(known, entries, frozenset(doubled))


@dataclass(frozen=True, kw_only=True)
class GroupSteering:
    """The cluster at one moment, as far as groups go."""

    tree: Tree
    pods: GroupPicture
    node_of: Callable[[str], Node | None]  # with all grants; None where nothing is given out
    entry_of: Callable[[str], tuple[str, Entry] | None]  # by pod uid, with the name of its node
    # Pods that are being bound, by node; those with an entry do not count.
    nominations: Mapping[str, tuple[SchedulingPod, ...]] = field(default_factory=dict)
    now: datetime
    patience: timedelta  # for how long a pod that waits holds room
    why_unknown: str = ""  # why there is no tree, if so

    def failures(
        self, names: Sequence[str], *, pod: GroupPod | None, uid: str, request: PodRequest
    ) -> Mapping[str, FailureReason]:
        """Return which of *names* a pod may not go to because of groups, and why.

        *pod* is the pod as a member of its job, ``None`` where it is of none.
        """
        own = self._group(pod, request)
        if own is None:
            return self._reserved_failures(uid, request, names)
        if self.why_unknown:
            return dict.fromkeys(names, UNKNOWN_TREE)
        need, usable = self._need(own, uid, request), self._usable(uid, request)
        chosen = self._fabric(own, uid).choose(need, usable, among=frozenset(names))
        if isinstance(chosen, GroupWaits):
            return dict.fromkeys(names, FailureReason(f"group {chosen.text}", lasting=True))
        return {name: OUTSIDE for name in names if name not in chosen.nodes}

    def refusal(
        self,
        node: str,
        *,
        pod: GroupPod | None,
        uid: str,
        request: PodRequest,
        any_tier: bool = False,
    ) -> str:
        """Return why the pod may not be bound to *node* because of groups; empty if it may.

        *any_tier* says that its scheduler chooses between dragonflies and switchboxes.
        """
        own = self._group(pod, request)
        if own is None:
            reserved = self._reserved_failures(uid, request, (node,))
            return "its free GPUs are reserved for a group of pods" if reserved else ""
        if self.why_unknown:
            return f"{UNKNOWN_TREE.text}: {self.why_unknown}"
        need, usable = self._need(own, uid, request), self._usable(uid, request)
        taken = self._fabric(own, uid).takes(node, need, usable, any_tier=any_tier)
        if isinstance(taken, GroupDomain):
            return ""
        return OUTSIDE.text if taken is None else taken.text

    def opens(self, pod: GroupPod | None, uid: str, request: PodRequest) -> bool:
        """Say whether no other pod of its group is known to be bound.

        An entry alone is no proof of where the group is: it may be withdrawn, or be one of two.
        """
        own = self._group(pod, request)
        return own is not None and not any(one.node for one in own.members if one.uid != uid)

    def is_together(self, node: str, pod: GroupPod, request: PodRequest) -> bool:
        """Say whether *node* and all pods of the group that have a node are in one domain.

        :meth:`refusal` follows the most pods of a group that is apart already. Pods that came at
        once to a wrong domain would vouch for each other so.
        """
        own = self._group(pod, request)
        if own is None:
            return True
        placed = self._need(own, pod.uid, request).placed.keys()
        around = (one.nodes for one in self.tree.around.get(node, ()))
        return any(placed <= set(nodes) for nodes in ((node,), *around))

    def goes_first(self, pod: GroupPod, request: PodRequest) -> bool:
        """Say whether of all pods that open a group at this moment *pod* is the one that stays."""
        own = self._group(pod, request)
        if own is None:
            return True
        groups = [
            group
            for job in self.pods.waiting_jobs(self.now - MAKING)
            for group in self._groups(job)
        ]
        openers = [
            (*group.key, one.uid)
            for group in (*groups, own)
            for one in group.members
            if not one.node and self._coming_to(one.uid)
        ]
        return (*own.key, pod.uid) <= min(openers, default=(*own.key, pod.uid))

    def _group(self, pod: GroupPod | None, request: PodRequest) -> Group | None:
        if pod is None:
            return None
        return group_of(pod, self.pods.job(pod.job), gpus=gpus_of(request))

    def _need(self, group: Group, uid: str, request: PodRequest) -> GroupNeed:
        """Return what the group needs, pod *uid* counted as waiting."""
        others = [one for one in group.members if one.uid != uid]
        placed = self._nodes_of(others)
        gpus = gpus_of(request)
        members = sum(placed.values())
        waiting = 1 + len(others) - members
        missing = max(1, group.size // gpus) - len(group.members)
        if missing > 0 and self._is_being_made(group):
            waiting += missing
        return GroupNeed(gpus=gpus, waiting=waiting, placed=placed)

    def _is_being_made(self, group: Group) -> bool:
        """Say whether the job may still be making pods of *group*."""
        made = [one.created for one in group.members if one.created is not None]
        return self.now - max(made, default=self.now) < MAKING

    def _nodes_of(self, pods: Iterable[GroupPod]) -> dict[str, int]:
        placed: dict[str, int] = {}
        for pod in pods:
            node = pod.node or self._coming_to(pod.uid)
            if node:
                placed[node] = placed.get(node, 0) + 1
        return placed

    def _coming_to(self, uid: str) -> str:
        found = self.entry_of(uid)
        return found[0] if found is not None else self._assumed_nodes.get(uid, "")

    def _entry(self, uid: str) -> Entry | None:
        found = self.entry_of(uid)
        return None if found is None else found[1]

    @cached_property
    def _assumed_nodes(self) -> Mapping[str, str]:
        return {
            pod.uid: name
            for name, pods in self.nominations.items()
            for pod in pods
            if pod.priority >= BINDING_PRIORITY
        }

    def _fabric(self, own: Group | None, uid: str) -> Fabric:
        """Return the fabric as pod *uid* finds it, whose own entry counts as free."""
        idle = self._idle(uid)
        reservations = [
            reservation
            for job in self.pods.waiting_jobs(self.now - MAKING)
            for group in self._groups(job)
            if own is None or group.key != own.key
            if (reservation := self._reservation(group, uid, idle)) is not None
        ]
        return Fabric(tree=self.tree, idle=idle, reservations=reservations)

    def _groups(self, job: str) -> list[Group]:
        pods = self.pods.job(job)
        return groups_of(pods, gpus=max(map(self._gpus_held, pods), default=0))

    def _gpus_held(self, pod: GroupPod) -> int:
        """Return how many GPUs *pod* has or is getting; 0 where that is not known."""
        entry = self._entry(pod.uid)
        if entry is not None:
            return len({grant.gpu for part in entry.containers for grant in part.grants})
        node = self._assumed_nodes.get(pod.uid, "")
        found = [one for one in self.nominations.get(node, ()) if one.uid == pod.uid]
        return _gpus_claimed(found[0]) if found else 0

    def _reservation(self, group: Group, uid: str, idle: Idle) -> Reservation | None:
        """Return the room that pods of *group* hold; pod *uid* holds none against itself."""
        placed = self._nodes_of(group.members)
        gpus = max(map(self._gpus_held, group.members), default=0)
        if not placed or not gpus:
            return None
        latest = max(
            (entry.since for one in group.members if (entry := self._entry(one.uid)) is not None),
            default=self.now,
        )
        pods = sum(
            self.now - max(one.created or latest, latest) < self.patience
            for one in group.members
            if one.uid != uid and not one.node and not self._coming_to(one.uid)
        )
        if self._is_being_made(group):
            pods += max(0, group.size // gpus - len(group.members))
        need = GroupNeed(gpus=gpus, waiting=pods, placed=placed)
        chosen = Fabric(tree=self.tree, idle=idle).choose(need, idle)
        if isinstance(chosen, GroupDomain):
            return Reservation(chosen.domain, gpus, pods) if pods else None
        around = [one for name in placed for one in self.tree.around.get(name, ())]
        widest = max(around, key=lambda one: (one.tier, one.name), default=None)
        return Reservation(widest, gpus, pods) if widest is not None and pods else None

    def _reserved_failures(
        self, uid: str, request: PodRequest, names: Sequence[str]
    ) -> Mapping[str, FailureReason]:
        """Return the nodes whose idle GPUs groups need."""
        fabric = self._fabric(None, uid)
        if not fabric.reservations:
            return {}
        gpus = gpus_of(request)
        held = frozenset(name for one in fabric.reservations for name in one.domain.nodes)
        inside = (name for name in names if name in held)
        return {name: GROUP_RESERVED for name in inside if not fabric.spares(name, gpus)}

    def _idle(self, uid: str) -> Idle:
        return self._counter(uid, lambda gpu: gpu.healthy)

    def _usable(self, uid: str, request: PodRequest) -> Idle:
        return self._counter(uid, lambda gpu: _suits(gpu, request))

    def _counter(self, uid: str, counts: Callable[[Gpu], bool]) -> Idle:
        """Return what counts the GPUs of a node that are idle but for pod *uid*, each node once."""
        own, known = self.entry_of(uid), dict[str, int]()

        def idle(name: str) -> int:
            count = known.get(name)
            if count is None:
                node = self.node_of(name)
                if node is not None and own is not None and own[0] == name:
                    node = without_entries(node, (own[1],))
                count = known[name] = 0 if node is None else self._idle_gpus(node, uid, counts)
            return count

        return idle

    def _idle_gpus(self, node: Node, uid: str, counts: Callable[[Gpu], bool]) -> int:
        coming = sum(
            _gpus_claimed(pod)
            for pod in self.nominations.get(node.name, ())
            if pod.priority >= BINDING_PRIORITY and pod.uid != uid and not self.entry_of(pod.uid)
        )
        return max(0, sum(not gpu.grants and counts(gpu) for gpu in node.gpus) - coming)


def gpus_of(request: PodRequest) -> int:
    """Return how many GPUs a pod holds at one time at most."""
    return peak(request.containers, [one.count for one in request.containers])


def _gpus_claimed(pod: SchedulingPod) -> int:
    return gpus_of(pod.claim.request) if isinstance(pod.claim, PodClaim) else 0


def _suits(gpu: Gpu, request: PodRequest) -> bool:
    """Say whether an idle *gpu* suits each container; an instance of MIG is no whole GPU."""
    if gpu.mode is Mode.MIG or exclusion(gpu, request, modes_of(request)) is not None:
        return False
    free = headroom(gpu)
    return all(takes(container, free) for container in request.containers)
