"""Groups as the cluster has them: the tree, the pods of jobs and the ledgers, at one moment."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from allocator.cluster.assumed_pods import AssumedPods
from allocator.cluster.configmaps import SETTINGS_NAME
from allocator.cluster.inventory import Inventory
from allocator.extender.index import Index
from allocator.extender.pod import SchedulingPod
from allocator.extender.reasons import FailureReason
from allocator.groups.node_groups_client import NodeGroups
from allocator.ledger.assign import PodClaim
from allocator.model.allocation import Entry
from allocator.model.gpu import Node
from allocator.scheduling.group_steering import GroupSteering, LedgerIndex
from allocator.supernode.group_pods import GroupPods
from kube.clock import SYSTEM, Clock
from kube.events import Event, Reference, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupService:
    """What decisions about groups rest on."""

    inventory: Inventory
    node_groups: NodeGroups
    pods: GroupPods = field(default_factory=GroupPods)
    clock: Clock = SYSTEM

    def failures(
        self, index: Index, pod: SchedulingPod, names: Sequence[str]
    ) -> Mapping[str, FailureReason]:
        """Return which of *names* do not take *pod* because of groups, and why."""
        member = self.pods.pod(pod.uid) or pod.member
        sized = member is not None and member.size > 0
        if not isinstance(pod.claim, PodClaim) or not (sized or self.pods.has_groups()):
            return {}
        if not self.node_groups.wanted:
            return {}
        request = pod.claim.request
        return self._steering_on(index).failures(names, pod=member, uid=pod.uid, request=request)

    def steering(self, assumed_pods: AssumedPods) -> GroupSteering | None:
        """Return the cluster as watches have it; ``None`` where no supernodes are.

        *assumed_pods* are those that are being bound.
        """
        if not self.node_groups.wanted:
            return None
        return self._steering_on(assumed_pods.with_assumed(self.inventory.index()))

    def steering_on_ledgers(
        self, ledgers: LedgerIndex, assumed_pods: AssumedPods
    ) -> GroupSteering | None:
        """Return the same with *ledgers* in the place of those that watches have."""
        if not self.node_groups.wanted:
            return None
        nominations = assumed_pods.with_assumed(self.inventory.index()).nominations

        def node_of(name: str) -> Node | None:
            ledger = ledgers.ledgers.get(name)
            if ledger is None or ledger.closed or not self.inventory.is_current(ledger):
                return None
            return ledger.node

        return self._steering(node_of, ledgers.entries.get, nominations)

    def _steering_on(self, index: Index) -> GroupSteering:
        def node_of(name: str) -> Node | None:
            info = index.node_infos.get(name)
            return None if info is None or info.closed else info.node

        def entry_of(uid: str) -> tuple[str, Entry] | None:
            for name in self.inventory.nodes_with_entry(uid):
                entry = index.entries(name).get(uid)
                if entry is not None:
                    return name, entry
            return None

        return self._steering(node_of, entry_of, index.nominations)

    def _steering(
        self,
        node_of: Callable[[str], Node | None],
        entry_of: Callable[[str], tuple[str, Entry] | None],
        nominations: Mapping[str, tuple[SchedulingPod, ...]],
    ) -> GroupSteering:
        nodes = self.inventory.nodes() or {}

        def open_node(name: str) -> Node | None:
            known = nodes.get(name)
            return None if known is not None and known.cordoned else node_of(name)

        return GroupSteering(
            tree=self.node_groups.tree,
            pods=self.pods,
            node_of=open_node,
            entry_of=entry_of,
            nominations=nominations,
            now=self.clock.wall(),
            patience=timedelta(seconds=self.inventory.settings.gang_timeout_seconds),
            why_unknown=self.node_groups.why_unknown,
        )


def group_service(
    inventory: Inventory, namespace: str, record: Callable[[Event], None]
) -> GroupService:
    """Return the service whose tree is where the settings say, which are in *namespace*."""
    settings = Reference(
        api_version="v1", kind="ConfigMap", name=SETTINGS_NAME, namespace=namespace
    )

    def report(why: str) -> None:
        text = f"nodeGroupURL {inventory.settings.node_group_url} could not be read: {why}"
        record(
            Event(
                regarding=settings,
                severity=Severity.WARNING,
                reason="VgpuNodeGroupsUnknown",
                action="Read",
                note=f"{text}; pods of groups wait, or go by the last tree",
            )
        )

    node_groups = NodeGroups(lambda: inventory.settings.node_group_url, report=report)
    return GroupService(inventory=inventory, node_groups=node_groups)
