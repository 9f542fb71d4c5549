"""Groups for tests: a cluster of supernodes, whose pods get whole GPUs on the nodes they go to."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from allocator.extender.pod import SchedulingPod
from allocator.extender.reasons import FailureReason
from allocator.groups.members import GroupPod
from allocator.groups.tree import decode_tree
from allocator.model.allocation import Entry
from allocator.model.gpu import Node
from allocator.model.request import Mode, PodRequest
from allocator.model.usage import with_grants
from allocator.scheduling.group_steering import GroupSteering
from allocator.supernode.group_pods import GroupPods
from tests.builders.gpunodes import NOON, entry
from tests.builders.model import A100_40, ask, nodes_of, pod, soft_grant
from tests.builders.supernodes import Boxes, node_group

TWO_BOXES: Boxes = {
    "sb1": {"df1": ("n1", "n2"), "df2": ("n3", "n4")},
    "sb2": {"df3": ("n5", "n6"), "df4": ("n7", "n8")},
}
PATIENCE = timedelta(seconds=300)


def whole(gpus: int = 8) -> PodRequest:
    """Return the request of a pod for whole GPUs."""
    return pod(ask(40000, cores=100, count=gpus))


@dataclass(slots=True)
class SupernodeCluster:
    """Nodes of 8 GPUs, jobs, and what each pod was given, at one moment."""

    boxes: Boxes = field(default_factory=lambda: TWO_BOXES)
    now: datetime = NOON
    pods: GroupPods = field(default_factory=GroupPods)
    entries: dict[str, tuple[str, Entry]] = field(default_factory=dict)
    nominations: dict[str, tuple[SchedulingPod, ...]] = field(default_factory=dict)
    unavailable: set[str] = field(default_factory=set)
    sick: set[str] = field(default_factory=set)  # nodes none of whose GPUs is healthy
    modes: dict[str, Mode] = field(default_factory=dict)  # of the GPUs of nodes, where not usual
    products: dict[str, str] = field(default_factory=dict)
    why_unknown: str = ""
    extra: Sequence[str] = ()  # nodes in no supernode

    @property
    def names(self) -> list[str]:
        inside = [
            name for flies in self.boxes.values() for nodes in flies.values() for name in nodes
        ]
        return [*inside, *self.extra]

    def make(self, job: str, *names: str, size: int = 0, created: datetime | None = None) -> None:
        """Create pods of *job*; the first one names the *size* of a group."""
        made = {
            name: GroupPod(
                uid=name,
                job=f"team-a/{job}",
                name=name,
                size=size if number == 0 else 0,
                created=created or self.now,
            )
            for number, name in enumerate(names)
        }
        self.pods.update(made)

    def place(self, uid: str, node: str, *, gpus: int = 8, bound: bool = False) -> None:
        """Give pod *uid* the first idle GPUs of *node*."""
        idle = [one for one in self.node(node).gpus if not one.grants][:gpus]
        grants = [soft_grant(40000, 100, gpu=one.uuid) for one in idle]
        self.entries[uid] = node, entry(uid, *grants, since=self.now)
        known = self.pods.pod(uid)
        if bound and known is not None:
            self.pods.update({uid: replace(known, node=node)})

    def end(self, *uids: str) -> None:
        """Let pods end, and free what they had."""
        self.pods.update(dict.fromkeys(uids))
        for uid in uids:
            self.entries.pop(uid, None)

    def node(self, name: str) -> Node:
        grants = [
            grant
            for node, one in self.entries.values()
            if node == name
            for part in one.containers
            for grant in part.grants
        ]
        mode = self.modes.get(name, Mode.HAMI_CORE)
        made = nodes_of(8, self.products.get(name, A100_40), name=name, mode=mode)
        healthy = name not in self.sick
        gpus = tuple(replace(gpu, healthy=healthy) for gpu in made.gpus)
        return with_grants(replace(made, gpus=gpus), grants)

    def steering(self) -> GroupSteering:
        known = frozenset(self.names) - self.unavailable
        return GroupSteering(
            tree=decode_tree(json.dumps(node_group(self.boxes))).tree,
            pods=self.pods,
            node_of=lambda name: self.node(name) if name in known else None,
            entry_of=self.entries.get,
            nominations=self.nominations,
            now=self.now,
            patience=PATIENCE,
            why_unknown=self.why_unknown,
        )

    def _failures(self, uid: str, gpus: int) -> Mapping[str, FailureReason]:
        pod = self.pods.pod(uid)
        return self.steering().failures(self.names, pod=pod, uid=uid, request=whole(gpus))

    def open_nodes(self, uid: str, *, gpus: int = 8) -> list[str]:
        """Return the nodes that a scheduler may send pod *uid* to, as far as groups go."""
        failures = self._failures(uid, gpus)
        return [name for name in self.names if name not in failures]

    def closed_nodes(self, uid: str, *, gpus: int = 8) -> list[str]:
        """Return the other nodes."""
        return list(self._failures(uid, gpus))

    def reasons(self, uid: str, *, gpus: int = 8) -> Mapping[str, str]:
        failures = self._failures(uid, gpus)
        return {name: reason.text for name, reason in failures.items()}

    def refusal(self, uid: str, node: str, *, gpus: int = 8) -> str:
        """Return why a bind of pod *uid* to *node* would be denied."""
        steering = self.steering()
        return steering.refusal(node, pod=self.pods.pod(uid), uid=uid, request=whole(gpus))
