"""Preemption: which pods kube-scheduler should evict from which node, so that a pod gets GPUs.

The scheduler knows sums of GPUs, but no placements. Its own proposal is kept where it makes room,
because it may be needed for CPUs, memory or ports as well; else the least important pods that make
room replace it. Nothing is evicted for a pod whose room is already becoming free.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from allocator.extender.index import Index
from allocator.extender.pod import SchedulingPod
from allocator.extender.schema import (
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    MetaPod,
    MetaVictims,
)
from allocator.ledger.assign import PodClaim
from allocator.placement.choose import PlacementPolicy
from allocator.scheduling.preempt_node import PreemptionNode, held_gpus, preemption_node
from allocator.scheduling.victims import MOST_TRIALS, Victim, least_victims, most_important_first

# Fit tests of a node without some of its pods, 0.1 to 0.4 ms each, per question: the scheduler
# waits. Nodes beyond are left out, as the scheduler leaves out nodes beyond its own sample.
MOST_LOOKS: Final = 2048
_FEWEST_TRIALS: Final = 8  # looks for a better set on each node, however many nodes there are
_NO_PODS: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Proposal:
    """Pods to evict from one node."""

    uids: tuple[str, ...]
    budget_violations: int = 0  # how many of them break a PodDisruptionBudget


def select_victims(
    index: Index, pod: SchedulingPod, args: ExtenderPreemptionArgs, *, policy: PlacementPolicy
) -> ExtenderPreemptionResult:
    """Return which pods to evict for *pod*, by node.

    A node that eviction does not help is left out, and no node has an empty list, which
    kube-scheduler treats as an error. An answer without nodes makes the scheduler wait and leave
    the pod nominated where it is.
    """
    proposed = proposals(args)
    match pod.claim:
        case PodClaim() as wanted:
            chosen = _Preemption(index=index, pod=pod, claim=wanted, policy=policy).answer(proposed)
        case None:  # it asks for nothing of ours: the scheduler knows better
            chosen = {name: proposal for name, proposal in proposed.items() if proposal.uids}
        case _:  # its request cannot be read, so no eviction helps
            chosen = {}
    return ExtenderPreemptionResult(
        node_name_to_meta_victims={name: _wire(proposal) for name, proposal in chosen.items()}
    )


def proposals(args: ExtenderPreemptionArgs) -> dict[str, Proposal]:
    """Return the scheduler's proposals by node, from either of the two forms of a question."""
    by_node = {
        name: Proposal(tuple(meta.uid for meta in one.pods or ()), one.num_pdb_violations)
        for name, one in (args.node_name_to_meta_victims or {}).items()
    }
    for name, whole in (args.node_name_to_victims or {}).items():
        uids = tuple(one.metadata.uid for one in whole.pods or ())
        by_node.setdefault(name, Proposal(uids, whole.num_pdb_violations))
    return by_node


def _wire(proposal: Proposal) -> MetaVictims:
    pods = tuple(MetaPod(uid=uid) for uid in proposal.uids)
    return MetaVictims(pods=pods, num_pdb_violations=proposal.budget_violations)


@dataclass(slots=True, kw_only=True)
class _Preemption:
    """One question."""

    index: Index
    pod: SchedulingPod
    claim: PodClaim
    policy: PlacementPolicy
    looks: int = MOST_LOOKS  # fit tests left
    trials: int = MOST_TRIALS  # for a better set on one node; fewer where there are many nodes

    def answer(self, proposed: Mapping[str, Proposal]) -> dict[str, Proposal]:
        """Return evictions by node, of those *proposed*; none where room is becoming free."""
        nominated = self._case(self.index.nomination(self.pod), Proposal(()))
        if nominated is not None and self._must_wait(nominated):
            return {}
        kept: dict[str, Proposal] = {}
        already_leaving: dict[str, Proposal] = {}
        short: list[_Case] = []
        for name, proposal in proposed.items():
            case = self._case(name, proposal)
            if case is None or not all(map(case.is_less_important, proposal.uids)):
                continue
            if self._fits(case, _NO_PODS):  # what is short there is none of ours
                kept |= {name: proposal} if proposal.uids else {}
            elif self._fits(case, case.awaited_uids):
                return {}
            elif (leaving_victims := self._leaving_victims(case)) is not None:
                already_leaving[name] = leaving_victims
            else:
                short.append(case)
        return already_leaving or kept | dict(self._evictions(short))

    def _case(self, name: str, proposal: Proposal) -> "_Case | None":
        candidate = preemption_node(
            self.index, name, pod=self.pod, claim=self.claim, policy=self.policy
        )
        if candidate is None:
            return None
        return _Case(candidate=candidate, proposal=proposal, pod=self.pod, pods=self.index.pods)

    def _fits(self, case: "_Case", gone: frozenset[str]) -> bool:
        self.looks -= 1
        return case.candidate.fits(gone)

    def _must_wait(self, case: "_Case") -> bool:
        """Say whether the pod has to wait for ending pods of this node, without evictions.

        Where there is room already, the scheduler still counts terminating pods in its sums.
        """
        gone = case.candidate.coming_uids
        if not gone:
            return False
        if self._fits(case, _NO_PODS):
            return any(map(case.is_less_important, case.candidate.terminating))
        return self._fits(case, gone)

    def _leaving_victims(self, case: "_Case") -> Proposal | None:
        """Return pods that are terminating already, where their room is enough.

        The scheduler deletes no pod twice, but being named a node it nominates the pod to it.
        """
        leaving = case.candidate.coming_uids - case.awaited_uids
        if not leaving or case.names_pods_without_gpu:
            return None
        return case.as_proposal(self._least(case, leaving, case.awaited_uids))

    def _evictions(self, short: Sequence["_Case"]) -> Iterator[tuple[str, Proposal]]:
        """Yield evictions on nodes that are *short* of room, while there are looks left."""
        ordered = sorted(short, key=lambda case: case.order)
        self.trials = min(MOST_TRIALS, max(_FEWEST_TRIALS, MOST_LOOKS // 2 // max(1, len(ordered))))
        for case in ordered:
            evicted = self._chosen_victims(case) if self.looks > 0 else None
            if evicted is not None:
                yield case.candidate.node.name, evicted

    def _chosen_victims(self, case: "_Case") -> Proposal | None:
        coming = case.candidate.coming_uids
        proposed = case.holders - coming - case.candidate.overdue
        if proposed and self._fits(case, coming | proposed):
            return case.as_proposal(map(case.victim, case.proposal.uids))
        # A proposed pod without a GPU is there for other resources; so may be all the others.
        kept = frozenset(case.proposal.uids) if case.names_pods_without_gpu else _NO_PODS
        victims = self._least(case, case.evictable - kept, coming | proposed & kept)
        return None if victims is None else case.as_proposal((*map(case.victim, kept), *victims))

    def _least(
        self, case: "_Case", uids: Iterable[str], gone: frozenset[str]
    ) -> Sequence[Victim] | None:
        """Return the smallest set of the pods *uids* that must go besides those *gone*."""
        candidates = [case.victim(uid) for uid in uids]
        return least_victims(
            candidates,
            lambda more: self._fits(case, gone | more),
            same_gpu=case.candidate.wants_single_gpu,
            trials=self.trials,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One node, and which pods the scheduler would evict from it for *pod*."""

    candidate: PreemptionNode
    proposal: Proposal
    pod: SchedulingPod
    pods: Mapping[str, SchedulingPod]

    @property
    def holders(self) -> frozenset[str]:
        """Return the proposed pods that hold a GPU here."""
        return frozenset(uid for uid in self.proposal.uids if uid in self.candidate.entries)

    @property
    def names_pods_without_gpu(self) -> bool:
        """Say whether a pod without a GPU here is proposed."""
        return len(self.holders) < len(self.proposal.uids)

    @property
    def awaited_uids(self) -> frozenset[str]:
        """Return pods whose room is coming and that the answer may not name."""
        there = self.candidate
        return there.ended | {uid for uid in there.terminating if not self.is_less_important(uid)}

    @property
    def evictable(self) -> frozenset[str]:
        """Return pods that hold a GPU here and may be evicted.

        The scheduler rejects an answer that names a pod which it does not see on the node.
        """
        there, offered = self.candidate, frozenset(self.proposal.uids)
        return frozenset(
            uid
            for uid in there.entries.keys() - there.coming_uids - there.overdue
            if self.is_less_important(uid)
            and (uid in offered or self.pods[uid].node == there.node.name)
        )

    @property
    def order(self) -> tuple[int, int, int, str]:
        """Return a sort key by which the nodes that the scheduler will prefer come first."""
        highest = max((self.victim(uid).priority for uid in self.proposal.uids), default=0)
        number = len(self.proposal.uids)
        return self.proposal.budget_violations, highest, number, self.candidate.node.name

    def is_less_important(self, uid: str) -> bool:
        """Say whether a pod has a lower priority; one not known yet is taken to."""
        return uid not in self.pods or self.pods[uid].priority < self.pod.priority

    def victim(self, uid: str) -> Victim:
        """Return pod *uid* as a possible victim."""
        known, entry = self.pods.get(uid), self.candidate.entries.get(uid)
        return Victim(
            uid=uid,
            priority=self.pod.priority - 1 if known is None else known.priority,
            created="" if known is None else known.created,
            proposed=uid in self.proposal.uids,
            gpus=frozenset() if entry is None else frozenset(held_gpus(entry)),
        )

    def as_proposal(self, victims: Iterable[Victim] | None) -> Proposal | None:
        """Return *victims* as an answer, the most important first, as the scheduler expects.

        Budget violations are known only of pods that the scheduler proposed itself.
        """
        if victims is None:
            return None
        ordered = most_important_first(tuple(victims))
        proposed = sum(victim.proposed for victim in ordered)
        violations = min(self.proposal.budget_violations, proposed)
        return Proposal(tuple(victim.uid for victim in ordered), violations)
