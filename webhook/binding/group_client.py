"""Groups at a bind: whether the node is in the domain of the pod's group, and who began first.

Replicas decide on caches, and two groups that begin at one moment may both see room that is enough
for one of them only. So whoever opens a group reads all ledgers again once its entry is written.
One of two that began at once then sees the other. One of them withdraws its entry and is denied,
so that neither holds half of what both need.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from allocator.cluster.assumed_pods import AssumedPods
from allocator.cluster.inventory import GPU_NODES
from allocator.cluster.objects import decode_gpu_node
from allocator.groups.members import GroupPod
from allocator.ledger.commit import remove_entries
from allocator.ledger.ledger import Ledger
from allocator.model.allocation import Entry
from allocator.model.decision import Reason
from allocator.model.untrusted import quote
from allocator.scheduling.group_steering import GroupPicture, GroupSteering, LedgerIndex
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import ConflictError, InvalidError, NotFoundError
from webhook.binding.decide import BindRequest, Denied, conflict
from webhook.binding.scheduler_pod import member_of

ATTEMPTS: Final = 6  # to see the other one withdraw
PAUSE: Final = 0.1  # seconds between two of them
TIMEOUT: Final = 3.0  # seconds for all ledgers; the hook has five


class _Items(msgspec.Struct, frozen=True):
    items: tuple[msgspec.Raw, ...] = ()


_ITEMS: Final = msgspec.json.Decoder(_Items)


class GroupSource(Protocol):
    """What is known of groups."""

    @property
    def pods(self) -> GroupPicture:
        """Return the pods of jobs."""

    def steering(self, assumed_pods: AssumedPods) -> GroupSteering | None:
        """Return the cluster as watches have it; ``None`` where no supernodes are."""

    def steering_on_ledgers(
        self, ledgers: LedgerIndex, assumed_pods: AssumedPods
    ) -> GroupSteering | None:
        """Return the same with *ledgers* in the place of those that watches have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGuard:
    """Judges binds by groups; nobody is kept from anything where no supernodes are."""

    calls: ApiClient
    groups: GroupSource
    assumed_pods: AssumedPods  # pods that are being bound
    ledger_of: Callable[[str], Ledger | None]  # a cached ledger by node
    # Names of schedulers that choose between dragonflies and switchboxes themselves.
    tier_choosers: Callable[[], Collection[str]] = tuple
    clock: Clock = SYSTEM

    def denial(self, bind: BindRequest) -> Denied | None:
        """Return why the pod may not be bound to the node because of groups, if so."""
        steering = self.groups.steering(self.assumed_pods)
        return None if steering is None else self._denial(bind, steering)

    def opens_group(self, bind: BindRequest) -> bool:
        """Say whether no other pod of the pod's group is known to be bound.

        Entries say nothing: another review may have written one, which looks once more only now, or
        never because it crashed.
        """
        steering = self.groups.steering(self.assumed_pods)
        return steering is not None and steering.opens(
            self._pod(bind), bind.live.uid, bind.wanted.request
        )

    async def confirm(
        self, bind: BindRequest, written: Entry, *, earlier: bool = False
    ) -> Denied | None:
        """Return why the pod, whose entry opened its group, may not stay, if so.

        Then the entry is removed as it was *written*. One that another review wrote before
        (*earlier*) or has renewed since stays: that review may have let the Binding pass.
        """
        pod = self._pod(bind)
        for attempt in range(1, ATTEMPTS + 1):
            index = await self._read_ledgers()
            steering = self.groups.steering_on_ledgers(index, self.assumed_pods)
            if (
                steering is None
                or pod is None
                or (
                    steering.is_together(bind.bound.node, pod, bind.wanted.request)
                    and not self._is_undecided(pod, index)
                    and self._denial(bind, steering) is None
                )
            ):
                ledger = index.ledgers.get(bind.bound.node)
                if ledger is not None and ledger.entry(bind.live.uid) is not None:
                    return None
                break  # another review of the pod has withdrawn it
            if attempt == ATTEMPTS or not steering.goes_first(pod, bind.wanted.request):
                if not earlier:
                    await self._withdraw(written, index.ledgers.get(bind.bound.node))
                break
            await self.clock.sleep(PAUSE)
        text = f"node {quote(bind.bound.node)}: another group takes its room at this moment"
        return Denied(conflict(f"{text} [{Reason.GROUP}]"), Reason.GROUP)

    def _is_undecided(self, pod: GroupPod, index: LedgerIndex) -> bool:
        """Say whether another member of the pod's job may be bound to either of two nodes.

        So it is after an answer that was lost, and nobody knows yet where the group is.
        """
        members = (one for one in self.groups.pods.job(pod.job) if one.uid != pod.uid)
        return any(not one.node and one.uid in index.doubled for one in members)

    def _denial(self, bind: BindRequest, steering: GroupSteering) -> Denied | None:
        node = bind.bound.node
        text = steering.refusal(
            node,
            pod=self._pod(bind),
            uid=bind.live.uid,
            request=bind.wanted.request,
            any_tier=bind.live.pod.spec.scheduler_name in self.tier_choosers(),
        )
        if not text:
            return None
        message = f"node {quote(node)}: {text} [{Reason.GROUP}]"
        return Denied(conflict(message), Reason.GROUP)

    def _pod(self, bind: BindRequest) -> GroupPod | None:
        """Return the pod as a member of its job; from the pod itself where no watch told of it."""
        known = self.groups.pods.pod(bind.live.uid)
        return known or member_of(bind.live.pod.metadata, namespace=bind.bound.namespace)

    async def _read_ledgers(self) -> LedgerIndex:
        raw = await self.calls.get(GPU_NODES, timeout=TIMEOUT)
        items = _ITEMS.decode(raw).items
        ledgers = (decode_gpu_node(bytes(item), self.ledger_of) for item in items)
        return LedgerIndex.of(ledgers)

    async def _withdraw(self, written: Entry, ledger: Ledger | None) -> None:
        """Remove the entry from *ledger* as it was read, unless another review has renewed it."""
        present = None if ledger is None else ledger.entry(written.uid)
        if ledger is None or present is None or present.since != written.since:
            return
        try:
            path = f"{GPU_NODES}/{ledger.name}"
            await self.calls.json_patch(path, remove_entries(ledger, written.uid))
        except (ConflictError, InvalidError, NotFoundError):
            return  # it expires like any entry whose pod is not bound
