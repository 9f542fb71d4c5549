"""Implementations that get one thing wrong: each must be caught by the invariant that it breaks."""

from collections.abc import Mapping
from dataclasses import replace

from allocator.cluster.pods import Pods
from allocator.controllers.gpunode import GpuNodeController
from allocator.ledger.ledger import Ledger
from allocator.ledger.lifecycle import NodeIdentity
from allocator.request.pod_summary import PodSummary
from webhook.admission.context import AdmissionContext
from webhook.binding.batch import Outcome
from webhook.binding.binding_server import BindingHandler
from webhook.binding.commit_client import CommitQueues
from webhook.binding.decide import BindRequest, conflict
from webhook.binding.late_commit_controller import LateCommitController


class Undead(Pods):
    """Takes no pod for one that has ended."""

    def update(self, changes: Mapping[str, PodSummary | None]) -> None:
        super().update({uid: pod and replace(pod, over=False) for uid, pod in changes.items()})


class Trusting(LateCommitController):
    """Looks at no pod that was told nothing, as if nobody could be bound past the hook."""

    def _pods_without_entry(self) -> list[tuple[PodSummary, str]]:
        return [place for place in super()._pods_without_entry() if place[0].assignment_json]


class Unmoved(GpuNodeController):
    """Does not see that a node was booted."""

    def _due_nodes(
        self, machines: Mapping[str, NodeIdentity], ledgers: Mapping[str, Ledger]
    ) -> list[str]:
        return super()._due_nodes({n: replace(m, boot="") for n, m in machines.items()}, ledgers)


class _Hurried(CommitQueues):
    async def read_ledger(self, node: str) -> Ledger | None:
        return self.cached_ledger(node) or await super().read_ledger(node)


class Rash(BindingHandler):
    """Refuses on what a cache says of a ledger."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._queues = _Hurried(
            calls=self.calls,
            cached_ledger=self.cached_ledger,
            is_current=self.is_current,
            clock=self.clock,
            patience=self.patience,
        )


class Moody(BindingHandler):
    """Refuses about every second time."""

    async def commit(self, wish: BindRequest, around: AdmissionContext) -> Outcome:
        if self.clock.random() < 0.5:
            return conflict("not now")
        return await super().commit(wish, around)
